"""Actuators with several controls, or none, against MuJoCo in float64: DC motors and PID."""

import mujoco
import numpy as np
import pytest
import torch

import alloy
from alloy.envs.actions import bind_actions
from alloy.envs.actions_spec import ActionTerm
from alloy.physics import forward, io
from tests.physics.fixture import assert_close, assert_lanes_agrees, fixture, load

# what is tested stands between actuators of one control each, with and without activations
CHAIN = """
<mujoco><option timestep=".002" {}/><worldbody>
  <body><joint name="h" axis="0 1 0"/><geom size=".1" mass="1"/>
    <body pos=".1 0 0"><joint name="g" axis="1 0 0"/><geom size=".1" mass="1" pos=".1 0 0"/></body>
  </body></worldbody>
<actuator><motor name="first" joint="g"/>{}
  <general name="filter" joint="g" dyntype="filter" dynprm=".1" ctrlrange="-.4 .6"/>{}
  <motor name="last" joint="h" gear="2" ctrlrange="-.5 .5"/></actuator>
<sensor><actuatorpos actuator="last"/><actuatorvel actuator="x"/><actuatorfrc actuator="x"/>
  <actuatorfrc actuator="last"/></sensor>
<keyframe><key ctrl="{}"/></keyframe></mujoco>"""
MOTOR = '<dcmotor name="x" joint="h" motorconst="1.5 1.2" resistance="2" {}/>'
PID = '<pid name="x" joint="h" {}/>'
OTHER = (
    '<dcmotor name="y" joint="g" motorconst="1.1 1.1" resistance="1" inductance=".05"'
    ' input="vel ff" controller="0 0 1 9"/>'
)
LUGRE = 'cogging="1 2 3" lugre="100 2 .5 .8 .1"'
ACTUATORS = {
    "motor, pos vel": MOTOR.format('input="pos vel" controller="1 .5 1 4 .02 .5"'),
    "motor, vel ff": MOTOR.format('input="vel ff" controller="1 0 1 4 0 5"'),
    "motor, ff voltage": MOTOR.format('input="ff voltage" inductance=".1"'),
    "motor, all": MOTOR.format(
        'input="pos vel ff voltage" controller="1 .5 1 4 .2 .5" ctrlrange="-.2 .3" delay=".006"'
        ' nsample="4"'
    ),
    "motor, none": MOTOR.format('input="none"'),
    "motor, only friction": MOTOR.format(f'input="none" {LUGRE}'),
    "motor without a constant": MOTOR.replace("1.5 1.2", "0 0").format(
        'input="none" cogging="1 2 3"'
    ),
    "pid": PID.format('kp="3" kv="2"'),
    "pid, pos": PID.format('kp="3" kv="2" input="pos"'),
    "pid, vel": PID.format('kp="3" kv="2" input="vel"'),
    "pid, ff": PID.format('kp="3" kv="2" input="ff" gear="3"'),
    "pid, pos ff": PID.format('kp="3" kv="2" input="pos ff"'),
    "pid, integral": PID.format('kp="3" kv="2" ki=".5" imax=".05"'),
    "pid, slow": PID.format('kp="3" slewmax="2"'),
    "pid, all": PID.format(
        'kp="3" kv="1" ki="4" imax=".1" slewmax="3" input="pos vel ff" posrange="-1 1"'
        ' velrange="-.3 .3" ffrange="-.1 .1" forcerange="-2 2" gear="3"'
    ),
    "pid, delayed": PID.format('kp="3" kv="1" ki="1" delay=".011" nsample="9" interp="linear"'),
}  # fmt: skip
LATE = ("motor, all", "pid, delayed", "motor, only friction")  # refused with RK4
INTEGRATORS = {"Euler": 0, "RK4": 1, "implicit": 2, "implicitfast": 3}


def chain(which: str, option: str = "", ctrl: str = "") -> str:
    other = OTHER if "RK4" not in option else PID.format("").replace('"x"', '"y"')
    text = CHAIN.format(option, ACTUATORS[which], other, "{}")
    nu = load(text.replace('ctrl="{}"', "")).nu
    return text.format(ctrl or " ".join(["0"] * nu))


@pytest.mark.parametrize("integrator", INTEGRATORS)
@pytest.mark.parametrize("which", ACTUATORS)
def test_forces_rates_and_a_run_equal_mujoco(which, integrator):
    if integrator == "RK4" and which in LATE:
        return
    f = fixture(chain(which, f'integrator="{integrator}"'), 1)
    f.mjd.act[:] *= 0.2
    mujoco.mj_forward(f.mj, f.mjd)
    d, rng = io.put_data(f.m, f.mj, f.mjd), np.random.default_rng(0)
    ours = forward.forward(f.m, d)
    for field in ("actuator_length", "actuator_velocity", "actuator_force", "act_dot",
                  "qfrc_actuator", "sensordata"):  # fmt: skip
        assert_close(getattr(ours, field), getattr(f.mjd, field), field, rtol=1e-11)
    for k in range(40):
        if k % 5 == 0:
            f.mjd.ctrl[:] = rng.normal(size=f.mj.nu)
            d.ctrl[0] = torch.from_numpy(f.mjd.ctrl)
        d = forward.step(f.m, d)
        mujoco.mj_step(f.mj, f.mjd)
    assert_close(d.qvel, f.mjd.qvel, "qvel", rtol=1e-11)
    assert_close(d.act, f.mjd.act, "act", rtol=1e-11)
    assert_close(d.actuator_force, f.mjd.actuator_force, "actuator_force", rtol=1e-11)


@pytest.mark.parametrize("which", ["motor, all", "pid, all"])
def test_a_disabled_one_stands_still(which):
    text = chain(which, 'actuatorgroupdisable="3"').replace('name="x"', 'name="x" group="3"')
    f = fixture(text, 1)
    d = forward.step(f.m, f.d)
    mujoco.mj_step(f.mj, f.mjd)
    for field in ("act", "act_dot", "qvel", "actuator_force"):
        assert_close(getattr(d, field), getattr(f.mjd, field), field)


def test_a_servo_by_hand():
    """Force kp (1 - q) + kv (2 - v) + 3, kept below 8."""
    servo = PID.format('kp="4" kv="2" input="pos vel ff" forcerange="-8 8"')
    f = fixture(CHAIN.format("", servo, "", "0 0 0 0 0 0"))
    f.d.ctrl[0, 1:4] = torch.tensor([1.0, 2.0, 3.0])
    f.d.qpos[:] = torch.tensor([[0.5, 0.0]])
    for speed, force in ((4.0, 4 * 0.5 - 2 * 2 + 3), (0.0, 8.0)):
        f.d.qvel[:] = torch.tensor([[speed, 0.0]])
        assert forward.forward(f.m, f.d).actuator_force[0, 1].item() == pytest.approx(force)


def build(which: str = "pid, all", worlds: int = 3, **kw) -> alloy.Simulator:
    mj = mujoco.MjModel.from_xml_string(chain(which, ctrl=kw.pop("ctrl", "")))
    return alloy.build(mj, worlds, **({"dtype": torch.float64, "engine": "reference"} | kw))


def test_views_know_which_controls_are_whose():
    sim = build()
    names = ["first", "x/pos", "x/vel", "x/ff", "filter", "y/vel", "y/ff", "last"]
    assert sim.names()["controls"] == names
    assert sim.names()["actuators"] == ["first", "x", "filter", "y", "last"]
    sim.ctrl = torch.arange(24.0).reshape(3, 8)
    assert sim.actuator("x").ctrl.tolist() == [[1, 2, 3], [9, 10, 11], [17, 18, 19]]
    assert sim.actuator("last").ctrl.tolist() == [7, 15, 23]
    last = sim.at("acceleration").actuator_force[:, 4]
    assert sim.actuator("last").force.tolist() == last.tolist()
    assert sim.actuator("x").ctrlrange[1].tolist() == [[-1, 1], [-0.3, 0.3], [-0.1, 0.1]]
    assert sim.actuator("filter").ctrlrange[1].tolist() == [-0.4, 0.6]
    assert sim.actuator("y").ctrlrange.isinf().all()
    assert build("motor, none").actuator("x").ctrl.shape == (3, 0)


def test_worlds_masked_resets_and_keyframes():
    keyed = ".1 .2 .3 .05 .5 .6 .7 .8"
    sim = build(ctrl=keyed)
    ctrl = torch.from_numpy(np.random.default_rng(3).normal(size=(3, 8)))
    sim.step(ctrl)
    for _ in range(9):
        sim.step()
    alone = build(worlds=1)
    alone.ctrl = ctrl[1:2]
    for _ in range(10):
        alone.step()
    torch.testing.assert_close(sim.act[1:2], alone.act, rtol=0, atol=1e-12)
    saved, after = sim.state(), []
    for _ in range(2):
        sim.step()
        after.append(sim.act.clone())
        sim.load_state(saved)
    assert torch.equal(*after)
    sim.reset([False, True, False], keyframe=0)
    assert sim.ctrl[1].tolist() == [float(x) for x in keyed.split()]
    assert torch.equal(sim.ctrl[::2], ctrl[::2])
    assert not sim.act[1].any() and sim.act[::2].any()


def test_actions_name_controls():
    sim = build()
    actions = bind_actions(None, sim)
    assert list(actions.names) == sim.names()["controls"]
    np.testing.assert_allclose(actions.high, [1, 1, 0.3, 0.1, 0.6, 1, 1, 0.5])
    actions = bind_actions(["x/vel", ActionTerm("y", ("y/ff",), low=-2, high=4)], sim)
    ctrl = actions.ctrl(torch.tensor([[1.0, -1.0]]), torch.zeros(1, 8))
    assert ctrl[0].tolist() == pytest.approx([0, 0, 0.3, 0, 0, 0, -2, 0])
    with pytest.raises(ValueError, match=r"'x', which has 3 controls; name one of \['x/pos',"):
        bind_actions(["x"], sim)
    with pytest.raises(ValueError, match="'x', which has 0 controls; drop it"):
        bind_actions(["x"], build("motor, none"))


@pytest.mark.parametrize("which", ["motor, all", "motor, none", "pid, all"])
def test_lanes_agrees(which):
    ours, theirs = build(which, dtype=torch.float32, engine="lanes"), build(which)
    assert_lanes_agrees(ours, theirs, 1e-4, 1e-4)


def test_kernels_of_the_gpu_leave_it_to_the_reference():
    kernel = pytest.importorskip("alloy.ops.triton.actuation")
    assert not kernel.has_kernel(build().model)
    assert not kernel.has_kernel(build("motor, none").model)
    states = pytest.importorskip("alloy.ops.triton.integrate")
    assert not states.has_kernel(build("motor, all").model)


def test_an_early_integral_is_refused_by_name():
    text = chain("pid, pos").replace(
        ACTUATORS["pid, pos"],
        '<general name="x" joint="h" gaintype="pid" gainprm="1" biastype="affine" dyntype="pid"'
        ' biasprm="0 -1 -1" actdim="1" input="pos" actearly="true"/>',
    )
    with pytest.raises(NotImplementedError, match="actuator 'x' actearly of a PID controller"):
        io.put_model(load(text))
