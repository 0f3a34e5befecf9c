"""Transmissions, activations, forces and their velocity derivative against MuJoCo in float64."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from alloy.physics import actuation, forward, io, passive
from tests.physics.fixture import GYM_MODELS, assert_close, fixture, load
from tests.physics.test_passive import oracle_derivative

FIELDS = "actuator_length actuator_velocity actuator_force qfrc_actuator act_dot".split()

# a chain of scalar joints with a tendon across branches; %s takes the actuators
CHAIN = """
<mujoco><worldbody>
  <body><joint name="a" type="slide" axis="1 0 0" %s/><geom size=".1"/>
    <body pos=".3 0 0"><joint name="b" axis="0 1 0" damping=".1"/>
      <geom size=".1" pos=".1 0 0"/></body>
    <body pos="0 .3 0"><joint name="c" axis="1 0 0"/><geom size=".1" pos="0 .1 0"/></body>
    <body name="ball" pos="0 0 .4"><joint name="d" type="ball"/>
      <geom size=".1" pos="0 .1 0"/></body>
  </body>
  <body pos="2 0 0" quat="1 .2 .3 0"><joint name="f" type="free"/><geom size=".1"/></body>
</worldbody>
<tendon><fixed name="t" %s>
  <joint joint="b" coef="2"/><joint joint="c" coef="-1.5"/></fixed></tendon>
<actuator>%s</actuator></mujoco>"""


def chain(actuators: str, joint: str = "", tendon: str = "") -> str:
    return CHAIN % (joint, tendon, actuators)


SERVOS = """<position joint="a" kp="20" kv="2"/><velocity joint="b" kv="3" gear="2"/>
  <motor joint="c" gear="-4"/>"""
AFFINE = """<general joint="b" gear="2" gaintype="affine" gainprm="1 2 3" biastype="affine"
  biasprm=".3 -2 -1"/><general joint="c" gainprm="2 9 9" biasprm="5 5 5"/>
  <damper joint="a" kv="2" ctrlrange="0 1"/>"""
DYNAMICS = """<intvelocity joint="a" kp="20" kv="2" actrange="-.3 .3"/>
  <motor joint="b"/>
  <general joint="b" dyntype="filter" dynprm=".05" gaintype="affine" gainprm="3 1 2"/>
  <general joint="c" dyntype="filterexact" dynprm=".04" gainprm="5" actearly="true"/>
  <general joint="c" dyntype="integrator" gaintype="affine" gainprm="5 0 2" actearly="true"
    actlimited="true" actrange="-.01 .2"/>
  <general joint="a" dyntype="filter" dynprm="0" gainprm="1e-12"/>"""
MODELS = {
    "servos": chain(SERVOS),
    "affine": chain(AFFINE),
    "dynamics": chain(DYNAMICS),
    "filters": chain('<general joint="a" dyntype="filter" dynprm=".2"/>'
                     '<general joint="b" dyntype="filter" dynprm=".1"/>'),
    "limits": chain(
        '<motor joint="a" ctrlrange="-.2 .3"/><position joint="a" kp="9" forcerange="-.5 .5"/>'
        '<position joint="a" kp="9" kv="3"/><motor joint="b"/>', 'actuatorfrcrange="-1 2"'),
    "tendon": chain(
        '<position tendon="t" kp="5" kv="2" gear="3"/><motor joint="b"/>'),
    "tendon limit": chain(
        '<position tendon="t" kp="50" kv="2" gear="3"/><motor tendon="t" forcerange="-.1 .1"/>'
        '<motor joint="b"/>', tendon='actuatorfrcrange="-1 1"'),
    "turns": chain(
        '<position joint="d" kp="5" kv="2" gear="1 2 3"/>'
        '<general jointinparent="d" gear="3 -2 1" biastype="affine" biasprm="0 -3 -1"/>'
        '<position joint="a" kp="3" kv="1"/>'
        '<general joint="f" gear="1 2 3 4 5 6" biastype="affine" biasprm="1 2 -3"/>'
        '<general jointinparent="f" gear="6 5 4 3 2 1" biastype="affine" biasprm="1 2 -3"/>'
        '<motor jointinparent="b" gear="2"/><motor tendon="t"/>'),
    "gravcomp": chain('<position joint="a" kp="3" kv="1"/>', 'actuatorgravcomp="true"')
        .replace('name="ball"', 'gravcomp="2"').replace('axis="1 0 0" a', 'axis="0 0 1" a'),
    "gravcomp limit": chain('<position joint="a" kp="3" kv="1"/>',
                            'actuatorgravcomp="true" actuatorfrcrange="-1 2"')
        .replace('name="ball"', 'gravcomp="2"').replace('axis="1 0 0" a', 'axis="0 0 1" a'),
    "none": chain("").replace('axis="1 0 0" ', 'axis="0 0 1" actuatorgravcomp="true" ', 1),
}  # fmt: skip


@pytest.mark.parametrize("name", [*MODELS, *GYM_MODELS])
def test_actuation_equals_mujoco(name):
    for seed in range(4):
        f = fixture(MODELS.get(name, name), seed)
        d = actuation.actuation(f.m, f.d)
        for field in FIELDS:
            assert_close(getattr(d, field), getattr(f.mjd, field), f"{field}, seed {seed}")


@pytest.mark.parametrize("name", MODELS)
def test_derivative_and_next_activation_equal_mujoco(name):
    for seed in range(4):
        f = fixture(MODELS[name], seed)
        d = actuation.actuation(f.m, passive.tendon(f.m, f.d))
        actual = actuation.velocity_derivative(f.m, d) + passive.damping_derivative(f.m, d)
        assert_close(actual, oracle_derivative(f.mj, f.mjd), f"derivative, seed {seed}")
        assert_close(actuation.next_activation(f.m, d), f.mjd.act, "act")


@pytest.mark.parametrize("flag", ("actuation", "clampctrl"))
@pytest.mark.parametrize("name", ("dynamics", "limits", "gravcomp", "turns"))
def test_disabled_features_equal_mujoco(name, flag):
    bit = int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag.upper()}"))
    f = fixture(MODELS[name], 3, disableflags=bit)
    d = actuation.actuation(f.m, passive.tendon(f.m, f.d))
    for field in FIELDS:
        assert_close(getattr(d, field), getattr(f.mjd, field), field)
    actual = actuation.velocity_derivative(f.m, d) + passive.damping_derivative(f.m, d)
    assert_close(actual, oracle_derivative(f.mj, f.mjd), "derivative")
    assert_close(actuation.next_activation(f.m, d), f.mjd.act, "act")


def test_disabled_groups_equal_mujoco():
    text = chain(
        '<position joint="a" kp="5" kv="2" group="3"/><motor joint="b" group="3" forcerange="5 7"/>'
        '<intvelocity joint="b" kp="3" kv="1" group="3" actrange="-.1 .1"/>'
        '<general joint="c" dyntype="filter" dynprm=".1" group="0"/><motor joint="c" group="31"/>'
    )
    f = fixture(text, 1, disableactuator=1 << 3)
    d = actuation.actuation(f.m, passive.tendon(f.m, f.d))
    for field in FIELDS:
        assert_close(getattr(d, field), getattr(f.mjd, field), field)
    actual = actuation.velocity_derivative(f.m, d) + passive.damping_derivative(f.m, d)
    assert_close(actual, oracle_derivative(f.mj, f.mjd), "derivative")
    assert_close(actuation.next_activation(f.m, d), f.mjd.act, "act")


def test_worlds_with_their_own_parameters():
    mj = load(MODELS["dynamics"])
    m, separate = io.put_model(mj, dtype=torch.float64), []
    gear = m.actuator_gear * torch.tensor([1.0, 3.0]).reshape(2, 1, 1)
    tau = m.actuator_dynprm * torch.tensor([1.0, 0.5]).reshape(2, 1, 1)
    state = torch.linspace(-1, 1, 2 * (mj.nq + mj.nv), dtype=torch.float64).reshape(2, -1)
    for k in range(2):
        mj.actuator_gear[:], mj.actuator_dynprm[:] = gear[k].numpy(), tau[k].numpy()
        mjd = mujoco.MjData(mj)
        mjd.qpos[:], mjd.qvel[:] = np.split(state[k].numpy(), [mj.nq])
        mjd.ctrl[:], mjd.act[:] = 0.3, 0.1
        mujoco.mj_forward(mj, mjd)
        separate.append(mjd.qfrc_actuator.copy())
    d = io.make_data(m, 2)
    d = replace(
        d, qpos=state[:, : mj.nq], qvel=state[:, mj.nq :], ctrl=d.ctrl + 0.3, act=d.act + 0.1
    )
    d = forward.forward(replace(m, actuator_gear=gear, actuator_dynprm=tau), d)
    np.testing.assert_allclose(d.qfrc_actuator.numpy(), separate, rtol=1e-9, atol=1e-12)


def test_c14_several_actuators_on_one_joint():
    """Forces add up before the joint's own limit applies once (mujoco#2748)."""
    text = """
    <mujoco><worldbody><body><joint name="j" axis="0 1 0" actuatorfrcrange="-5 5"/>
      <geom size=".1"/></body></worldbody>
    <actuator><position joint="j" kp="100" forcerange="-4 4"/>
      <velocity joint="j" kv="10" forcerange="-4 4"/>
      <motor joint="j" gear="3" ctrlrange="-1 1"/></actuator></mujoco>"""
    m = io.put_model(load(text), dtype=torch.float64)
    d = io.make_data(m, 1)
    d = forward.forward(m, replace(d, ctrl=torch.tensor([[1.0, 1, 9]], dtype=torch.float64)))
    assert d.actuator_force.tolist() == [[4, 4, 1]]
    assert d.qfrc_actuator.tolist() == [[5]]


def test_c16_control_ranges():
    """Ranges of position actuators: inherited, absent, given (mjlab#354, newton#1727)."""
    text = """
    <mujoco><compiler angle="degree"/><worldbody><body>
      <joint name="j" axis="0 1 0" range="-90 45"/><geom size=".1"/></body></worldbody>
    <actuator>%s</actuator></mujoco>"""
    three = (
        '<position joint="j" kp="1" inheritrange=".5"/><position joint="j" kp="1"/>'
        '<position joint="j" kp="1" ctrlrange="-90 45"/>'
    )
    m = io.put_model(load(text % three), dtype=torch.float64)
    ranges = m.actuator_ctrlrange[0]
    assert ranges[0].tolist() == pytest.approx([-0.981748, 0.196350], abs=1e-6)
    assert ranges[2].tolist() == [-90, 45]
    d = replace(io.make_data(m, 1), ctrl=torch.full((1, 3), 50.0, dtype=torch.float64))
    force = forward.forward(m, d).actuator_force[0]
    assert force.tolist() == pytest.approx([0.196350, 50, 45], abs=1e-6)
    no_range = text.replace(' range="-90 45"', "")
    with pytest.raises(ValueError, match="range"):
        load(no_range % '<position joint="j" inheritrange=".5"/>')
    with pytest.raises(ValueError, match="limited"):
        load((text % "").replace("<compiler ", '<compiler autolimits="false" '))


@pytest.mark.parametrize("flags", ["", '<flag actuation="disable"/>'], ids=["on", "off"])
@pytest.mark.parametrize("integrator", ["Euler", "implicitfast"])
def test_damping_and_armature_of_actuators_belong_to_their_joints(integrator, flags):
    """Both act times gear squared, those of one joint sum, and disabling actuation leaves them."""
    text = f"""
    <mujoco><option integrator="{integrator}">{flags}</option><worldbody><body>
      <joint name="a" axis="0 1 0" damping=".3" armature=".1"/><geom size=".1" pos=".3 0 0"/>
      <body pos=".4 0 0"><joint name="b" type="slide" axis="1 0 0" range="-.1 .1"/>
        <geom size=".1"/></body></body></worldbody>
    <actuator><motor joint="a" gear="3" damping=".2" armature=".05"/>
      <motor joint="a" gear="-2" damping=".1"/><motor joint="b" armature=".4"/></actuator>
    </mujoco>"""
    mj = load(text)
    m = io.put_model(mj, dtype=torch.float64)
    assert mj.dof_damping[0] == 0.3  # the caller's model is left alone
    assert m.dof_damping[0].tolist() == pytest.approx([0.3 + 9 * 0.2 + 4 * 0.1, 0])
    assert m.dof_armature[0].tolist() == pytest.approx([0.1 + 9 * 0.05, 0.4])
    mjd = mujoco.MjData(mj)
    mjd.qvel[:], mjd.ctrl[:] = (2.0, -1.0), (0.3, -0.2, 0.5)
    d = io.put_data(m, mj, mjd)
    for _ in range(100):
        mujoco.mj_step(mj, mjd)
        d = forward.step(m, d)
    for field in ("qpos", "qvel", "qfrc_damper"):
        np.testing.assert_allclose(getattr(d, field)[0], getattr(mjd, field), rtol=0, atol=1e-9)


REFUSED = {
    '<general joint="a" dyntype="user" actdim="2"/>': "actuator 'x' dyntype='user'",
    '<general joint="a" gaintype="user"/>': "actuator 'x' gaintype='user'",
    '<general joint="a" biastype="user"/>': "actuator 'x' biastype='user'",
    '<motor joint="d" damping="1"/>': "actuator 'x' damping",
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text.split()[0][1:])
def test_unsupported_actuators_are_refused_by_name(text):
    scene = chain(text.replace(" ", ' name="x" ', 1))
    scene = scene.replace("</worldbody>", '<site name="s"/></worldbody>')
    with pytest.raises(NotImplementedError, match=REFUSED[text]):
        io.put_model(load(scene))


def test_float32_keeps_its_dtype():
    f = fixture(MODELS["turns"], 1)
    m = io.put_model(f.mj)
    d = actuation.actuation(m, io.put_data(m, f.mj, f.mjd))
    assert all(getattr(d, field).dtype == torch.float32 for field in FIELDS)
    assert actuation.velocity_derivative(m, d).dtype == torch.float32
    np.testing.assert_allclose(
        d.qfrc_actuator[0].numpy(), f.mjd.qfrc_actuator, rtol=1e-4, atol=1e-4
    )
