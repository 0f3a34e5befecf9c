"""Passive forces, tendons and their velocity derivative against MuJoCo in float64."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from alloy.physics import forward, io, passive
from tests.physics.fixture import GYM_MODELS, assert_close, fixture, load

FORCES = "qfrc_spring qfrc_damper qfrc_gravcomp qfrc_fluid qfrc_passive".split()

# springs of every joint type away from their rest, damping everywhere, turned bodies
SPRINGS = """
<mujoco><worldbody>
  <body pos="0 0 1"><joint type="free" stiffness="3" damping=".4"/>
    <geom type="box" size=".1 .2 .3"/>
    <body pos=".3 0 0" euler="20 0 0"><joint type="hinge" axis="1 1 0" stiffness="2" springref="40"
      ref="10" damping=".3"/><geom size=".1" pos=".1 0 0"/>
      <body pos=".3 0 0"><joint type="ball" stiffness="5" damping=".2"/><geom size=".1"/>
        <body pos=".3 0 0"><joint type="slide" axis="0 1 0" stiffness="7" springref=".2"/>
          <geom size=".1"/></body></body></body></body>
  <body pos="3 0 0"><joint type="ball"/><geom size=".1" pos=".1 0 0"/></body>
</worldbody></mujoco>"""

# tendons within a chain, across branches and across trees; one with a dead band
TENDONS = """
<mujoco><worldbody>
  <body><joint name="a" type="slide" axis="1 0 0" damping=".2"/><geom size=".1" mass="1"/></body>
  <body pos="0 1 0"><joint name="b" axis="0 1 0" stiffness="1"/><geom size=".1" pos=".1 0 0"/>
    <body pos=".3 0 0"><joint name="c" axis="0 1 0"/><geom size=".1" pos=".1 0 0"/></body>
    <body pos="0 .3 0"><joint name="d" axis="1 0 0"/><geom size=".1" pos=".1 0 0"/></body></body>
</worldbody>
<tendon>
  <fixed name="chain" stiffness="4" damping="2">
    <joint joint="b" coef="2"/><joint joint="c" coef="-1"/></fixed>
  <fixed name="branch" stiffness="3" damping="1" springlength="-.2 .1">
    <joint joint="c" coef="1.5"/><joint joint="d" coef=".5"/></fixed>
  <fixed name="trees" damping=".7"><joint joint="a" coef="3"/><joint joint="d" coef="-2"/></fixed>
  <fixed name="idle"><joint joint="a" coef="1"/></fixed>
</tendon></mujoco>"""

GRAVCOMP = """
<mujoco><option gravity="1 2 -9"/><worldbody>
  <body gravcomp=".8" pos="0 0 1" euler="30 0 10"><freejoint/><geom type="box" size=".1 .2 .3"/>
    <body pos=".3 0 0"><joint axis="0 1 1" actuatorgravcomp="true" damping="1"/>
      <geom size=".1" pos=".2 0 0"/>
      <body gravcomp="1.5" pos=".3 0 0"><joint name="s" type="slide" axis="0 1 0"/>
        <geom size=".1" pos=".1 .1 0"/></body></body></body>
</worldbody><actuator><motor joint="s"/></actuator></mujoco>"""

# a massless body between two heavy ones, a fixed body with mass, wind
FLUID = """
<mujoco><option density="900" viscosity="3" wind=".5 -1 2"/><worldbody>
  <body pos="0 0 1"><freejoint/><geom type="box" size=".1 .2 .3" pos=".05 0 0" euler="10 20 30"/>
    <body pos=".3 0 0"><joint axis="0 1 1" damping=".1"/>
      <geom type="capsule" size=".05 .2" euler="0 40 0"/>
      <body pos=".3 0 0"><body pos=".1 0 0"><joint type="ball"/>
        <geom type="ellipsoid" size=".1 .2 .05" contype="0" conaffinity="0"/>
    </body></body></body></body>
  <body pos="4 0 0"><geom size=".3"/></body>
</worldbody></mujoco>"""

MODELS = {
    "springs": SPRINGS, "tendons": TENDONS, "gravcomp": GRAVCOMP, "fluid": FLUID,
    "viscous": FLUID.replace('density="900"', ""), "dense": FLUID.replace('viscosity="3"', ""),
    "swimmer": "swimmer.xml", "humanoid": "humanoid.xml", "cheetah": "half_cheetah.xml",
}  # fmt: skip


def oracle_derivative(mj, mjd):
    """MuJoCo's qDeriv after an implicitfast step from the state in mjd, as a dense matrix."""
    mj.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    mujoco.mj_step(mj, mjd)
    dense = np.zeros((mj.nv, mj.nv))
    for i in range(mj.nv):
        row = slice(mj.D_rowadr[i], mj.D_rowadr[i] + mj.D_rownnz[i])
        dense[i, mj.D_colind[row]] = mjd.qDeriv[row]
    return dense


@pytest.mark.parametrize("name", MODELS)
def test_passive_forces_equal_mujoco(name):
    for seed in range(4):
        f = fixture(MODELS[name], seed)
        d = passive.passive(f.m, passive.tendon(f.m, f.d))
        for field in (*FORCES, "ten_length", "ten_velocity"):
            assert_close(getattr(d, field), getattr(f.mjd, field), field)


@pytest.mark.parametrize("name", MODELS)
def test_passive_derivative_equals_mujoco(name):
    f = fixture(MODELS[name], 1)
    f.mj.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ACTUATION)
    actual = passive.damping_derivative(f.m, passive.tendon(f.m, f.d))
    assert_close(actual.expand(1, -1, -1), oracle_derivative(f.mj, f.mjd), "derivative")


@pytest.mark.parametrize("flags", ("spring", "damper", "gravity", "spring damper"))
@pytest.mark.parametrize("name", ("springs", "tendons", "gravcomp", "fluid"))
def test_disabled_passive_forces_equal_mujoco(name, flags):
    bits = [getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag.upper()}") for flag in flags.split()]
    f = fixture(MODELS[name], 2, disableflags=sum(int(bit) for bit in bits))
    d = passive.passive(f.m, passive.tendon(f.m, f.d))
    for field in FORCES:
        assert_close(getattr(d, field), getattr(f.mjd, field), field)
    actual = passive.damping_derivative(f.m, d)
    if name != "gravcomp":
        assert_close(actual.expand(1, -1, -1), oracle_derivative(f.mj, f.mjd), "derivative")


def test_worlds_with_their_own_parameters():
    mj = load(TENDONS)
    m, separate = io.put_model(mj, dtype=torch.float64), []
    stiff = m.jnt_stiffness * torch.tensor([[1.0], [3.0]])
    damp = m.dof_damping + torch.tensor([[0.0], [2]])
    qpos = torch.linspace(-1, 1, 2 * mj.nq, dtype=torch.float64).reshape(2, -1)
    qvel = 3 * qpos.flip(1)
    for k in range(2):
        mj.jnt_stiffness[:], mj.dof_damping[:] = stiff[k].numpy(), damp[k].numpy()
        mjd = mujoco.MjData(mj)
        mjd.qpos[:], mjd.qvel[:] = qpos[k].numpy(), qvel[k].numpy()
        mujoco.mj_forward(mj, mjd)
        separate.append(mjd.qfrc_passive.copy())
    d = io.make_data(m, 2)
    d = forward.velocity(
        replace(m, jnt_stiffness=stiff, dof_damping=damp),
        forward.position(m, replace(d, qpos=qpos, qvel=qvel)),
    )
    np.testing.assert_allclose(d.qfrc_passive.numpy(), separate, rtol=1e-9, atol=1e-12)


def test_c08_springdamper():
    """Time constant and damping ratio of a hinge become stiffness and damping (newton#3735)."""
    f = fixture(
        '<mujoco><worldbody><body><joint axis="0 1 0" springdamper=".2 1.5"/>'
        '<geom size=".1" mass="2"/></body></worldbody></mujoco>'
    )
    assert f.m.jnt_stiffness.item() == pytest.approx(0.0888889, abs=1e-7)
    assert f.m.dof_damping.item() == pytest.approx(0.08, abs=1e-12)
    d = passive.passive(f.m, f.d)
    expected = -0.08888888888888889 * f.d.qpos - 0.08 * f.d.qvel
    torch.testing.assert_close(d.qfrc_passive, expected, rtol=1e-9, atol=1e-12)


def test_c01_degrees_scale_angles_only():
    """angle="degree" converts references and ranges, never stiffness or damping (newton#2504)."""
    f = fixture(
        '<mujoco><compiler angle="degree"/><worldbody><body><joint axis="0 1 0" damping="2" '
        'stiffness="3" ref="30" springref="60"/><geom size=".1" mass="1"/><body pos=".3 0 0">'
        '<joint axis="0 1 0" range="-90 45"/><geom size=".1" mass="1"/></body></body></worldbody>'
        "</mujoco>"
    )
    assert f.m.qpos0[0].tolist() == pytest.approx([0.523599, 0], abs=1e-6)
    assert f.m.qpos_spring[0, 0].item() == pytest.approx(1.047198, abs=1e-6)
    assert f.m.jnt_range[0, 1].tolist() == pytest.approx([-1.570796, 0.785398], abs=1e-6)
    assert f.m.efc.nl == 1 and f.m.efc.limit_joints.tolist() == [1]
    d = passive.passive(f.m, f.d)
    assert d.qfrc_spring[0, 0].item() == pytest.approx(3 * (np.pi / 3 - f.mjd.qpos[0]))
    assert d.qfrc_damper[0, 0].item() == pytest.approx(-2 * f.mjd.qvel[0])


def test_c51_gravity_compensation():
    """Compensated bodies float (newton#2625)."""
    text = """
    <mujoco><option gravity="0 -10 0"/><worldbody>
      <body gravcomp="1" quat=".70710678118654752 0 0 .70710678118654752"><freejoint/>
        <geom size=".1" mass="3"/>
        <body gravcomp="1"><joint type="slide" axis="1 0 0"/>
          <geom size=".1" mass="2"/></body></body>
    </worldbody><option><flag contact="disable"/></option></mujoco>"""
    m = io.put_model(load(text), dtype=torch.float64)
    d = forward.forward(m, io.make_data(m, 1))
    expected = torch.tensor([[0, 50.0, 0, 0, 0, 0, 20]], dtype=torch.float64)
    torch.testing.assert_close(d.qfrc_gravcomp, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(d.qacc, torch.zeros_like(d.qacc), rtol=0, atol=1e-12)
    m = io.put_model(load(text.replace("<flag", '<flag gravity="disable"')), dtype=torch.float64)
    d = forward.forward(m, io.make_data(m, 1))
    assert not d.qfrc_gravcomp.any() and not d.qacc.any()


@pytest.mark.parametrize("source", GYM_MODELS)
def test_passive_force_in_float32(source):
    f = fixture(source)
    m = io.put_model(f.mj)
    d = passive.passive(m, passive.tendon(m, io.put_data(m, f.mj, f.mjd)))
    assert d.qfrc_passive.dtype == torch.float32
    np.testing.assert_allclose(d.qfrc_passive[0].numpy(), f.mjd.qfrc_passive, rtol=2e-3, atol=2e-4)
