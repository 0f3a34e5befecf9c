"""Sensors with a delay or an interval against MuJoCo in float64; their record is state."""

import mujoco
import numpy as np
import pytest
import torch

import alloy
from tests.physics.fixture import assert_stopped_world_keeps

# in units of a step, which has few binary digits, so that MuJoCo's clock is exact, too
STEP = 2.0**-9
SCENE = """
<mujoco><option timestep="{step}" integrator="{integrator}"/><worldbody>
  <geom type="plane" size="1 1 1" pos="0 0 -.3"/>
  <body><joint name="q" type="ball" damping=".01"/><geom type="box" size=".1 .2 .05" pos=".1 0 0"/>
    <site name="s" pos=".1 0 0"/></body></worldbody>
<actuator><motor name="x" joint="q" gear="1 0 0"/><motor joint="q" gear="0 1 0"/></actuator>
<sensor>{sensors}</sensor>
<keyframe><key name="late" time="{late}" qpos="1 0 0 0"/></keyframe></mujoco>"""
KINDS = {
    "gyro": '<gyro site="s" {}/>',
    "accelerometer": '<accelerometer site="s" {}/>',
    "quaternion": '<ballquat joint="q" {}/>',
    "force": '<actuatorfrc actuator="x" cutoff=".5" {}/>',
    "clock": "<clock {}/>",
}
# samples, delay, interval and phase in steps
WAYS = {
    "held": (6, 4, 0, 0),
    "held, broken": (8, 4.75, 0, 0),
    "less than a step": (3, 0.5, 0, 0),
    "one sample": (1, 1.5, 0, 0),
    "short record": (3, 25, 0, 0),
    "interval": (3, 0, 2.5, 0),
    "interval with phase": (3, 0, 2.5, -1.5),
    "interval, one sample": (1, 0, 3, 0),
    "interval below a step": (5, 2.5, 0.5, 0),
    "interval below a step, with phase": (4, 1.5, 0.75, -0.7),
    "interval of a step": (2, 1.5, 1, 0),
    "both": (4, 5, 3.3125, 0),
    "both with phase": (4, 5.5, 3.3125, -1.6875),
    "both, long": (5, 9, 2.5, 0),
}
INTERPOLATIONS = ("zoh", "linear", "cubic")


def attributes(samples, delay, interval, phase, interp):
    timed = f'delay="{delay * STEP}" interval="{interval * STEP} {phase * STEP}"'
    return f'nsample="{samples}" {timed} interp="{interp}"'


def scene(kinds=KINDS, ways=WAYS, integrator="Euler", interpolations=INTERPOLATIONS):
    rows = [attributes(*way, interp) for way in ways.values() for interp in interpolations]
    sensors = "".join(KINDS[kind].format(row) for kind in kinds for row in ("", *rows))
    text = SCENE.format(integrator=integrator, sensors=sensors, step=STEP, late=40 * STEP)
    return mujoco.MjModel.from_xml_string(text)


def build(worlds: int = 2, mj=None, **kw) -> alloy.Simulator:
    kw = {"dtype": torch.float64, "engine": "reference"} | kw
    return alloy.build(scene() if mj is None else mj, worlds, **kw)


def run(sim, mjd, steps, seed=0):
    """Both go on with random controls; largest difference of what is shown in world 1."""
    rng, worst = np.random.default_rng(seed), 0.0
    for _ in range(steps):
        mjd.ctrl[:] = rng.normal(size=sim.mj_model.nu)
        sim.step(torch.from_numpy(np.stack([-mjd.ctrl, mjd.ctrl])))
        mujoco.mj_step(sim.mj_model, mjd)
        worst = max(worst, np.abs(sim.data.sensordata[1].numpy() - mjd.sensordata).max())
    return worst


@pytest.mark.parametrize("integrator", ["Euler", "implicitfast", "RK4"])
def test_what_is_shown_equals_mujoco(integrator):
    sim = build(mj=scene(integrator=integrator))
    mjd = mujoco.MjData(sim.mj_model)
    assert run(sim, mjd, 80) < 1e-9
    # of the present state, as often as one looks
    for _ in range(2):
        mujoco.mj_forward(sim.mj_model, mjd)
        np.testing.assert_allclose(sim.sensordata[1].numpy(), mjd.sensordata, atol=1e-9, rtol=0)


def test_no_delay_or_interval_is_idle():
    sim = build(worlds=1)
    width, idle = 1 + len(WAYS) * len(INTERPOLATIONS), torch.ones(sim.mj_model.nsensor, dtype=bool)
    dims, rng = sim.mj_model.sensor_dim.tolist(), np.random.default_rng(0)
    for _ in range(40):
        sim.step(torch.from_numpy(rng.normal(size=(1, 2))))
        shown = sim.data.sensordata[0].split(dims)
        plain = [shown[k - k % width] for k in range(len(shown))]
        idle &= torch.tensor([torch.equal(a, b) for a, b in zip(shown, plain, strict=True)])
    assert idle.nonzero().flatten().tolist() == [*range(0, len(idle), width)]


def test_resets_and_keyframes_equal_mujoco():
    sim = build()
    mjd = mujoco.MjData(sim.mj_model)
    for keyframe in (None, "late"):
        assert run(sim, mjd, 20) < 1e-10
        sim.reset(keyframe=keyframe)
        if keyframe is None:
            mujoco.mj_resetData(sim.mj_model, mjd)
        else:  # MuJoCo's clock goes on from the keyframe's, its record from zero
            mujoco.mj_resetDataKeyframe(sim.mj_model, mjd, 0)
        assert run(sim, mjd, 40, seed=1) < 1e-10


def test_the_record_is_saved_restored_and_cleared_by_world():
    sim = build(worlds=3)
    fresh = sim.data.sensor_history.clone()
    for k in range(7):
        sim.step(torch.full_like(sim.ctrl, k + 1.0))
    saved = sim.state()
    after = []
    for _ in range(2):
        for _ in range(5):
            sim.step()
        after.append(sim.data.sensordata.clone())
        sim.load_state(saved)
    assert torch.equal(*after)
    before = sim.data.sensor_history.clone()
    sim.reset(mask=torch.tensor([False, True, False]))
    assert torch.equal(sim.data.sensor_history[1], fresh[1])
    assert torch.equal(sim.data.sensor_history[::2], before[::2])


def test_a_world_that_has_stopped_records_nothing():
    assert_stopped_world_keeps(build(), "sensor_history")


def test_float32_counts_exactly():
    """Ages and times of sampling are whole numbers, which cannot drift."""
    mj = scene(kinds=("clock",))
    single, double = build(1, mj, dtype=torch.float32), build(1, mj)
    for sim in (single, double):
        sim.reset(keyframe="late")
        sim.step(substeps=60)
    assert single.data.sensordata.dtype == torch.float32
    for group in double.model.derived["sensor"].history.groups:
        ours, theirs = (group.split(sim.data.sensor_history) for sim in (single, double))
        for x, exact in zip(ours[:2], theirs[:2], strict=True):
            assert torch.equal(x.double(), exact)
            assert torch.equal(exact, exact.round())


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_lanes_agrees(integrator):
    mj = scene(("gyro", "clock"), {k: WAYS[k] for k in ("held", "both with phase")}, integrator)
    ours = build(mj=mj, dtype=torch.float32, engine="lanes")
    theirs = build(mj=mj)
    for k in range(6):
        for sim in (ours, theirs):
            sim.step(torch.full_like(sim.ctrl, 0.3 * k), substeps=4)
    close = {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(ours.sensordata.double(), theirs.sensordata, **close)
    torch.testing.assert_close(
        ours.data.sensor_history.double(), theirs.data.sensor_history, **close
    )
    assert "not compiled" not in ours.engine_report()


def test_a_record_that_nobody_reads_is_none():
    text = '<gyro site="s" nsample="5"/><gyro site="s" interval="1"/>'
    mj = mujoco.MjModel.from_xml_string(
        SCENE.format(integrator="Euler", sensors=text, step=STEP, late=0)
    )
    sim = build(mj=mj)
    assert sim.data.sensor_history.shape == (2, 0)
    sim.step(torch.ones_like(sim.ctrl))
    sim.step()
    assert torch.equal(sim.sensordata[:, :3], sim.sensordata[:, 3:])
    assert sim.sensordata.any()


def test_gradients_pass_through_the_record():
    sim = build(mj=scene(("gyro",), {"held": (2, 2, 0, 0)}, interpolations=("zoh",)))
    ctrl = torch.full_like(sim.ctrl, 0.5).requires_grad_()
    sim.step(ctrl)
    for _ in range(2):
        sim.step(torch.zeros_like(sim.ctrl))
    assert not torch.autograd.grad(sim.data.sensordata[:, 3:].sum(), ctrl, retain_graph=True)[
        0
    ].any()
    (slope,) = torch.autograd.grad(sim.sensordata[:, 3:].sum(), ctrl)
    assert slope.abs().min() > 1e-3
