"""The reference step is lean: few torch operator calls, whatever the number of worlds."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from alloy.physics import forward, io
from alloy.physics.model import INPUTS, STATE, Data, Model
from tests.count_calls import CountCalls
from tests.physics.fixture import load

LIMIT = 700


def calls_of_step(m: Model, d: Data) -> int:
    with CountCalls() as count:
        forward.step(m, d)
    return count.calls


def busy_states(mj: mujoco.MjModel, m: Model, iterations: int, count: int) -> list[Data]:
    """States on a run with random controls, as MuJoCo goes, that need so many Newton iterations."""
    mjd, rng, found = mujoco.MjData(mj), np.random.default_rng(0), []
    for _ in range(1000):
        mjd.ctrl[:] = rng.uniform(-1, 1, mj.nu)
        d = io.put_data(m, mj, mjd)
        if int(forward.step(m, d).solver_niter) == iterations:
            found.append(d)
            if len(found) == count:
                return found
        mujoco.mj_step(mj, mjd)
    raise AssertionError(f"only {len(found)} states with {iterations} iterations")


def widened(d: Data, worlds: int) -> Data:
    """The same state in many worlds."""
    names = STATE + INPUTS
    values = {n: getattr(d, n) for n in names}
    return Data(**{n: v.expand(worlds, *v.shape[1:]).clone() for n, v in values.items()})


@pytest.fixture(scope="module")
def cheetah():
    mj = load("half_cheetah.xml")
    m = io.put_model(mj, dtype=torch.float64)
    return m, busy_states(mj, m, 3, 10)


def test_half_cheetah_step_with_three_newton_iterations(cheetah):
    m, states = cheetah
    calls = [calls_of_step(m, d) for d in states]
    assert max(calls) <= LIMIT, calls


def test_calls_do_not_depend_on_the_number_of_worlds(cheetah):
    m, states = cheetah
    alone = calls_of_step(m, states[0])
    for worlds in (1, 64, 1024):
        assert calls_of_step(m, widened(states[0], worlds)) == alone


def test_worlds_at_rest_add_nothing_to_a_busy_one(cheetah):
    m, states = cheetah
    at_rest = widened(states[0], 3)
    qpos = at_rest.qpos + torch.tensor([0.0, 5.0, 5.0], dtype=torch.float64)[:, None] * (
        torch.arange(m.nq) == 1
    )
    mixed = replace(at_rest, qpos=qpos, qvel=at_rest.qvel * (qpos[:, 1:2] < 2))
    out = forward.step(m, mixed)
    assert out.solver_niter[0] == 3 and (out.solver_niter[1:] < 3).all()
    assert calls_of_step(m, mixed) == calls_of_step(m, states[0])
