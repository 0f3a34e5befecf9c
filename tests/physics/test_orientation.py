"""Orientation servos, which have three forces, against MuJoCo in float64."""

import mujoco
import numpy as np
import pytest
import torch

import alloy
from alloy.envs.actions import bind_actions
from alloy.physics import forward, io
from tests.physics.fixture import assert_close, assert_lanes_agrees, fixture, load

# between actuators of one force each, so that nothing stands where its number says
CHAIN = """
<mujoco><option timestep=".002" {}/><worldbody><site name="fixed" pos=".1 .2 .3" euler="20 30 40"/>
  <body><joint name="h" axis="0 1 0"/><geom size=".1"/><site name="base" euler="50 -30 40"/>
    <body pos=".3 0 0"><joint name="b" type="ball"/><geom size=".1" pos=".1 .05 0"/>
      <site name="s" euler="10 20 -50"/><site name="p" pos=".2 0 0"/></body></body></worldbody>
<tendon><spatial name="rope"><site site="fixed"/><site site="p"/></spatial></tendon>
<actuator><motor name="first" joint="h"/>{}
  <general name="filter" joint="h" dyntype="filter" dynprm=".1"/>
  <general name="rate" joint="b" gaintype="so3" biastype="so3" dyntype="integrator" gainprm="3"
    biasprm="0 -3 -1"/>
  <dcmotor name="motor" joint="h" motorconst="1 1" resistance="2" inductance=".1"/>
  <orientation name="other" site="s" refsite="fixed" kp="2" kv="1" input="quat"/>
  <motor name="last" tendon="rope"/></actuator>
<sensor><actuatorpos actuator="x"/><actuatorvel actuator="x"/><actuatorfrc actuator="x"/>
  <actuatorfrc actuator="last"/><tendonactuatorfrc tendon="rope"/></sensor>
<keyframe><key time="0"/></keyframe></mujoco>"""
BALL = '<orientation name="x" joint="b" kp="3" kv="2" {}/>'
SITE = '<orientation name="x" site="s" refsite="{}" kp="3" kv="2" {}/>'
RATE = (
    '<general name="x" joint="b" gaintype="so3" biastype="so3" dyntype="integrator" gainprm="3"'
    ' biasprm="0 -3 -1" {}/>'
)
SERVOS = {
    "ball": BALL.format(""),
    "ball, range": BALL.format('ctrlrange="-.3 .4"'),
    "ball, quaternion": BALL.format('input="quat"'),
    "ball, quaternion, range": BALL.format('input="quat" ctrlrange="-.3 .4"'),
    "site": SITE.format("fixed", ""),
    "site against its parent": SITE.format("base", ""),
    "site, quaternion": SITE.format("base", 'input="quat"'),
    "rate": RATE.format(""),
    "rate, early": RATE.format('actearly="true"'),
    "rate, range": RATE.format('actrange="-.2 .3"'),
    "disabled": BALL.format('group="3"'),
    "held": BALL.format('delay=".005" nsample="9"'),
    "linear": BALL.format('delay=".005" nsample="9" interp="linear"'),
    "held quaternion": BALL.format('input="quat" delay=".005" nsample="9"'),
    "limited": BALL.format('forcerange="0 1"'),
    "limited site": SITE.format("base", 'forcerange="0 .5"'),
}
FIELDS = (
    "actuator_length", "actuator_velocity", "actuator_force", "act_dot", "qfrc_actuator",
    "sensordata",
)  # fmt: skip


def chain(which: str, option: str = "") -> str:
    return CHAIN.format(f'{option} actuatorgroupdisable="3"', SERVOS[which])


@pytest.mark.parametrize("integrator", ["Euler", "RK4", "implicit", "implicitfast"])
@pytest.mark.parametrize("which", SERVOS)
def test_forces_rates_and_a_run_equal_mujoco(which, integrator):
    if integrator == "RK4" and "delay" in SERVOS[which]:
        return
    f, rng = fixture(chain(which, f'integrator="{integrator}"'), 1), np.random.default_rng(0)
    d = forward.forward(f.m, f.d)
    for field in FIELDS:
        assert_close(getattr(d, field), getattr(f.mjd, field), field, rtol=1e-11)
    if "limited" in which and "implicit" in integrator:
        return  # there the derivative depends on rounding, see below
    d = f.d
    for k in range(60):
        if k % 5 == 0:
            f.mjd.ctrl[:] = 3 * rng.normal(size=f.mj.nu)
            d.ctrl[0] = torch.from_numpy(f.mjd.ctrl)
        d = forward.step(f.m, d)
        mujoco.mj_step(f.mj, f.mjd)
    for field in ("qvel", "act", "actuator_force"):
        assert_close(getattr(d, field), getattr(f.mjd, field), field, rtol=1e-11)


@pytest.mark.parametrize("integrator", [2, 3])
def test_at_the_limit_of_its_force_it_does_not_damp(integrator):
    """Where MuJoCo's own force is at the limit; rounding leaves it below in one of six cases."""
    seen = 0
    for seed in range(20):
        f = fixture(chain("limited"), seed, integrator=integrator)
        size = np.sqrt((f.mjd.actuator_force[1:4] ** 2).sum())
        if 1 - 1e-9 < size < 1:
            continue
        seen += size >= 1
        d = forward.step(f.m, f.d)
        mujoco.mj_step(f.mj, f.mjd)
        assert_close(d.qvel, f.mjd.qvel, "qvel", rtol=1e-11)
    assert seen > 5


def test_a_rate_goes_round():
    """Half a turn and 0.2 rad is half a turn less 0.2 rad the other way; and so is 10 rad."""
    sim = build("rate")
    for start, end in ((3.1, 3.3 - 2 * np.pi), (10.0, 10.2 - 4 * np.pi)):
        act, ctrl = sim.act.clone(), sim.ctrl.clone()
        act[:, :3], ctrl[:, 1:4] = torch.tensor([start, 0, 0]), torch.tensor([100.0, 0, 0])
        sim.act = act
        sim.step(ctrl)
        assert sim.act[0, 0].item() == pytest.approx(end)


def test_it_turns_a_body_to_where_it_is_told():
    text = (
        '<mujoco><option gravity="0 0 0" integrator="implicitfast"/><worldbody><body>'
        '<joint name="b" type="ball"/><geom size=".1 .2 .3" type="box" mass="1"/></body>'
        '</worldbody><actuator><orientation joint="b" kp="30" kv="3" input="quat"/></actuator>'
        "</mujoco>"
    )
    sim = alloy.build(load(text), dtype=torch.float64)
    target = torch.tensor([[0.6, 0.0, -0.48, 0.64]], dtype=torch.float64)
    for _ in range(2000):
        sim.step(-2 * target)
    torch.testing.assert_close(sim.qpos.abs(), target.abs(), atol=1e-6, rtol=0)


def build(which: str, worlds: int = 3, **kw) -> alloy.Simulator:
    like = {"dtype": torch.float64, "engine": "reference"} | kw
    return alloy.build(mujoco.MjModel.from_xml_string(chain(which)), worlds, **like)


def test_views_and_the_start_know_its_controls_and_forces():
    sim = build("ball, quaternion")
    own = [f"x/{axis}" for axis in ("qw", "qx", "qy", "qz")]
    assert sim.names()["controls"][:6] == ["first", *own, "filter"]
    assert sim.actuator("x").ctrl.tolist() == [[1, 0, 0, 0]] * 3
    np.testing.assert_array_equal(sim.ctrl[0], mujoco.MjData(sim.mj_model).ctrl)
    f = fixture(chain("ball, quaternion"), 2)
    sim.qpos, sim.qvel = f.d.qpos.expand(3, -1), f.d.qvel.expand(3, -1)
    sim.act, sim.ctrl = f.d.act.expand(3, -1), f.d.ctrl.expand(3, -1)
    for name, count in (("x", 3), ("filter", 1), ("motor", 1), ("other", 3), ("last", 1)):
        at = f.mj.actuator_outadr[f.mj.actuator(name).id]
        for field in ("force", "length", "velocity"):
            expected = getattr(f.mjd, f"actuator_{field}")[at : at + count]
            actual = getattr(sim.actuator(name), field).reshape(3, -1)[1]
            np.testing.assert_allclose(actual, expected, atol=1e-10)
    assert list(bind_actions(None, sim).names) == sim.names()["controls"]


def test_worlds_masked_resets_states_and_keyframes():
    sim = build("rate")
    ctrl = torch.from_numpy(np.random.default_rng(3).normal(size=tuple(sim.ctrl.shape)))
    for _ in range(10):
        sim.step(ctrl)
    alone = build("rate", 1)
    for _ in range(10):
        alone.step(ctrl[1:2])
    torch.testing.assert_close(sim.qpos[1:2], alone.qpos, rtol=0, atol=1e-12)
    saved, after = sim.state(), []
    for _ in range(2):
        sim.step()
        after.append(sim.qpos.clone())
        sim.load_state(saved)
    assert torch.equal(*after)
    mjd = mujoco.MjData(sim.mj_model)
    for keyframe in (None, 0):
        sim.load_state(saved)
        sim.reset([False, True, False], keyframe=keyframe)
        if keyframe is not None:
            mujoco.mj_resetDataKeyframe(sim.mj_model, mjd, keyframe)
        np.testing.assert_array_equal(sim.ctrl[1], mjd.ctrl)
        assert not sim.act[1].any()
        assert torch.equal(sim.ctrl[::2], ctrl[::2])


@pytest.mark.parametrize("which", ["ball, quaternion", "limited site", "rate, early"])
def test_lanes_agrees(which):
    ours, theirs = build(which, dtype=torch.float32, engine="lanes"), build(which)
    assert_lanes_agrees(ours, theirs, 2e-4, 1e-3)


def test_kernels_of_the_gpu_leave_it_to_the_reference():
    for stage in ("actuation", "integrate"):
        kernel = pytest.importorskip(f"alloy.ops.triton.{stage}")
        assert not kernel.has_kernel(build("ball").model)


def test_what_is_not_there_is_refused_by_name():
    delay = BALL.format('input="quat" delay=".005" nsample="9" interp="linear"')
    with pytest.raises(NotImplementedError, match="actuator 'x' interp of a quaternion; use"):
        io.put_model(load(CHAIN.format("", delay)))
    scene = alloy.Scene.from_mjcf(chain("ball"))
    with pytest.raises(ValueError, match="'x' has three forces and no gear"):
        scene.randomize("x", "gear", low=1.0, high=2.0)
        alloy.build(scene)
