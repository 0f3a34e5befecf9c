"""Whole steps with every hot loop in a kernel equal the reference's, contacts included."""

import mujoco
import pytest
import torch

from alloy import ops
from alloy.ops.triton import lane
from alloy.physics import forward, io
from alloy.physics.model import STATE, make_data
from scripts.suite import LANES

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
