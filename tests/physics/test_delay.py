"""Delayed controls against MuJoCo in float64; their record is part of the state."""

import mujoco
import numpy as np
import pytest
import torch

import alloy
from tests.physics.fixture import assert_stopped_world_keeps

SCENE = """
<mujoco><option timestep=".002" integrator="{}"/><worldbody><body>
  <joint name="h" axis="0 1 0" damping="1"/><geom size=".1" mass="1"/></body></worldbody>
<actuator>{}</actuator></mujoco>"""
# delays of whole and broken steps, records longer and shorter than these, one that nobody reads
ACTUATORS = {
    "held": '<motor joint="h" delay=".008" nsample="6"/>',
    "held, broken": '<motor joint="h" delay=".0095" nsample="8" ctrlrange="-1 1"/>',
    "linear": '<motor joint="h" delay=".011" nsample="10" interp="linear" ctrlrange="-1 1"/>',
    "cubic": '<motor joint="h" delay=".0105" nsample="10" interp="cubic"/>',
    "cubic, young": '<motor joint="h" delay=".0025" nsample="4" interp="cubic"/>',
    "cubic, old": '<motor joint="h" delay=".0105" nsample="6" interp="cubic"/>',
    "one sample": '<motor joint="h" delay=".003" nsample="1" interp="linear"/>',
    "less than a step": '<motor joint="h" delay=".001" nsample="3"/>',
    "short record": '<motor joint="h" delay=".05" nsample="3"/>',
    "no delay": '<position joint="h" kp="3" nsample="3"/>',
    "filter": '<general joint="h" dyntype="filter" dynprm=".1" delay=".006" nsample="9"/>',
}
EVERY = "".join(ACTUATORS.values())


def build(integrator: str = "Euler", worlds: int = 2, **kw) -> alloy.Simulator:
    mj = mujoco.MjModel.from_xml_string(SCENE.format(integrator, EVERY))
    return alloy.build(mj, worlds, **({"dtype": torch.float64, "engine": "reference"} | kw))


@pytest.mark.parametrize("integrator", ["Euler", "implicit", "implicitfast"])
def test_forces_and_a_run_equal_mujoco(integrator):
    sim = build(integrator)
    mjd, rng = mujoco.MjData(sim.mj_model), np.random.default_rng(0)
    for _ in range(60):
        mjd.ctrl[:] = rng.normal(size=sim.mj_model.nu)
        sim.step(torch.from_numpy(np.stack([mjd.ctrl, -mjd.ctrl])))
        mujoco.mj_step(sim.mj_model, mjd)
        ours = sim.data.actuator_force[0].numpy()
        np.testing.assert_allclose(ours, mjd.actuator_force, atol=1e-12, rtol=0)
    np.testing.assert_allclose(sim.qvel[0].numpy(), mjd.qvel, atol=1e-12, rtol=0)
    np.testing.assert_allclose(sim.act[0].numpy(), mjd.act, atol=1e-12, rtol=0)


def test_looking_does_not_record():
    sim = build()
    sim.ctrl = torch.ones_like(sim.ctrl)
    before = sim.data.ctrl_history.clone()
    sim.forward()
    assert torch.equal(sim.data.ctrl_history, before)
    assert sim.data.actuator_force[0, 0] == 0  # four steps to go
    assert sim.data.actuator_force[0, 9] == 3  # the one without delay


def test_the_record_is_saved_restored_and_cleared_by_world():
    sim = build(worlds=3)
    for k in range(7):
        sim.step(torch.full_like(sim.ctrl, k + 1.0))
    saved = sim.state()
    after = []
    for _ in range(2):
        for _ in range(5):
            sim.step()
        after.append(sim.qvel.clone())
        sim.load_state(saved)
    assert torch.equal(*after)
    sim.reset(mask=torch.tensor([False, True, False]))
    assert not sim.data.ctrl_history[1].any()
    assert sim.data.ctrl_history[0].any()


def test_a_world_that_has_stopped_records_nothing():
    assert_stopped_world_keeps(build(), "ctrl_history")


def test_lanes_agrees():
    ours, theirs = build(dtype=torch.float32, engine="lanes"), build()
    for k in range(3):
        for sim in (ours, theirs):
            sim.step(torch.full_like(sim.ctrl, 0.3 * k), substeps=4)
    torch.testing.assert_close(ours.qvel.double(), theirs.qvel, atol=1e-5, rtol=1e-5)
    assert torch.equal(ours.data.ctrl_history.double(), theirs.data.ctrl_history.float().double())


def test_runge_kutta_is_refused_by_name():
    with pytest.raises(NotImplementedError, match="actuator 0 delay with integrator RK4"):
        build("RK4")
