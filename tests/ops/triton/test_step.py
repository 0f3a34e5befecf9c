"""Whole steps with every hot loop in a kernel equal the reference's, contacts included."""

import mujoco
import pytest
import torch

from alloy import ops
from alloy.guard import guarded_step, make_guard
from alloy.ops.triton import lane
from alloy.physics import forward, io
from alloy.physics.model import STATE, make_data
from scripts.suite import LANES
from tests.physics.fixture import load

# kernel and reference take the same steps, converged or not, and the interpreter is slow
ITERATIONS = {"HalfCheetah": 3, "Go2": 1, "GripperLift": 3}


def settled(name: str) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """A model after half a second under MuJoCo, lying or standing on the ground."""
    mj = LANES[name]().compile()
    mj.opt.iterations, mj.opt.ls_iterations = ITERATIONS[name], 4
    mjd = mujoco.MjData(mj)
    if mj.nkey:
        mujoco.mj_resetDataKeyframe(mj, mjd, 0)
    mjd.ctrl[:] = 0.1
    for _ in range(round(0.5 / mj.opt.timestep)):
        mujoco.mj_step(mj, mjd)
    return mj, mjd


@pytest.mark.parametrize("name", ITERATIONS)
def test_step_equals_reference(name):
    mj, mjd = settled(name)
    m = io.put_model(mj, dtype=torch.float64)
    d = make_data(m, 1)
    for field in (*STATE[:4], "ctrl"):
        getattr(d, field)[0] = torch.as_tensor(getattr(mjd, field))
    expected = forward.step(m, d)
    with ops.kernels(True), lane.watch() as launched:
        actual = forward.step(m, d)
    assert len(launched) <= 11  # keep_sound is the twelfth of a guarded substep
    assert expected.efc_active.any() and (expected.solver_niter == actual.solver_niter).all()
    for field in (*STATE[:4], "qacc", "efc_force", "xpos", "contact_dist", "qfrc_constraint"):
        a, e = getattr(actual, field), getattr(expected, field)
        torch.testing.assert_close(a, e, rtol=1e-8, atol=1e-8, msg=f"{name}: {field}")


def test_records_of_delays_go_on_beside_the_kernels():
    m = io.put_model(
        load("""<mujoco><worldbody><body><joint name="h" axis="0 1 0"/><geom size=".1" mass="1"/>
      <site name="s"/></body></worldbody>
      <actuator><motor joint="h" delay=".004" nsample="3"/></actuator>
      <sensor><gyro site="s" delay=".003" nsample="4" interp="linear"/>
      <gyro site="s" interval=".004" nsample="1"/></sensor></mujoco>"""),
        dtype=torch.float64,
    )
    d = make_data(m, 3)
    d.qvel[:] = torch.tensor([[0.5], [torch.nan], [-2.0]])
    d.ctrl[:] = 1.0
    d.ctrl_history[:] = torch.rand(3, m.nhistory, dtype=torch.float64)

    def run():
        return guarded_step(m, d, make_guard(3, "cpu"), 3)

    expected, guard = run()
    with ops.kernels(True), lane.watch() as launched:
        actual, _ = run()
    assert "sensor" in {x.kernel for x in launched}
    assert guard.invalid.tolist() == [False, True, False]
    for field in ("sensor_history", "ctrl_history", "sensordata", "qvel"):
        a, e = getattr(actual, field), getattr(expected, field)
        torch.testing.assert_close(a[::2], e[::2], rtol=1e-9, atol=1e-9)
    for name in ("sensor_history", "ctrl_history"):
        assert torch.equal(getattr(actual, name)[1], getattr(d, name)[1])
