"""Whole steps against MuJoCo: acceleration, cost of the solution, trajectories, integrators."""

import mujoco
import numpy as np
import pytest
import torch

from alloy.physics import forward, io
from tests.physics.fixture import (
    GYM_MODELS,
    assert_close,
    fixture,
    load,
    oracle_cost,
    tighten,
)
from tests.physics.models import CONTACTS, EQUALITIES, JOINTS, LIMITS, SPINNING
from tests.physics.test_constraint import settled

MODELS = dict.fromkeys(GYM_MODELS) | CONTACTS | {"limits": LIMITS, "equalities": EQUALITIES}
INTEGRATORS = {"Euler": 0, "RK4": 1, "implicit": 2, "implicitfast": 3}


@pytest.mark.parametrize("which", MODELS)
@pytest.mark.parametrize("seed", range(2))
def test_forward_equals_mujoco(which, seed):
    f = (
        settled(CONTACTS[which], seed)
        if which in CONTACTS
        else fixture(MODELS[which] or which, seed)
    )
    d = forward.forward(f.m, f.d)
    assert_close(d.qfrc_smooth, f.mjd.qfrc_smooth, "qfrc_smooth")
    ours = oracle_cost(f.mj, f.mjd, d.qacc[0].numpy())
    theirs = oracle_cost(f.mj, f.mjd, f.mjd.qacc)
    assert ours <= theirs + 1e-8 * max(1.0, abs(theirs))
    assert_close(d.qacc, f.mjd.qacc, "qacc", 1e-6)
    assert_close(d.qfrc_constraint, f.mjd.qfrc_constraint, "qfrc_constraint", 1e-6)


def source_spins(mj):
    return mj.nbody == 4 and mj.njnt == 3 and mj.jnt_type[0] == mujoco.mjtJoint.mjJNT_BALL


def rollout(mj, m, steps, seed=0, tight=True):
    """Largest difference of qpos and qvel over a run of both engines from the same start."""
    if tight:
        tighten(mj)
    mjd = mujoco.MjData(mj)
    rng = np.random.default_rng(seed)
    mjd.qvel[:] = (3 if source_spins(mj) else 0.1) * rng.normal(size=mj.nv)
    d = io.put_data(m, mj, mjd)
    worst = 0.0
    for _ in range(steps):
        ctrl = rng.uniform(-0.5, 0.5, mj.nu)
        mjd.ctrl[:] = ctrl
        mujoco.mj_step(mj, mjd)
        d = forward.step(m, d.__class__(**{**vars(d), "ctrl": torch.as_tensor(ctrl)[None]}))
        for name in ("qpos", "qvel"):
            theirs = getattr(mjd, name)
            error = np.abs(getattr(d, name)[0].numpy() - theirs).max()
            worst = max(worst, error / (1 + np.abs(theirs).max()))
    return worst


@pytest.mark.parametrize("integrator", INTEGRATORS)
@pytest.mark.parametrize(
    "source", ["half_cheetah.xml", "inverted_double_pendulum.xml", "swimmer.xml", JOINTS, SPINNING],
    ids=["half_cheetah", "double_pendulum", "swimmer", "joints", "spinning"],
)  # fmt: skip
def test_trajectories_without_contact(source, integrator):
    mj = load(source)
    mj.opt.integrator = INTEGRATORS[integrator]
    mj.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    mj.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_LIMIT)
    m = io.put_model(mj, dtype=torch.float64)
    assert rollout(mj, m, 200) < 1e-9


@pytest.mark.parametrize(
    "which", ["half_cheetah.xml", "condim3-pyramidal-1", "condim4-elliptic-10"]
)
def test_cost_along_a_run_with_contacts_is_not_above_mujocos(which):
    mj = load(CONTACTS.get(which, which))
    tighten(mj)
    m = io.put_model(mj, dtype=torch.float64)
    mjd = mujoco.MjData(mj)
    mjd.qvel[:] = 0.1 * np.random.default_rng(0).normal(size=mj.nv)
    touched = 0
    for _ in range(60):
        mujoco.mj_step1(mj, mjd)
        mujoco.mj_step2(mj, mjd)
        mujoco.mj_forward(mj, mjd)
        touched += mjd.ncon > 0
        qacc = forward.forward(m, io.put_data(m, mj, mjd)).qacc[0].numpy()
        theirs = oracle_cost(mj, mjd, mjd.qacc)
        assert oracle_cost(mj, mjd, qacc) <= theirs + 1e-8 * max(1.0, abs(theirs))
    assert touched > 30


def test_worlds_are_independent_and_inputs_untouched():
    mj = load(CONTACTS["condim3-pyramidal-1"])
    m = io.put_model(mj, dtype=torch.float64)
    d = io.put_data(m, mj, mujoco.MjData(mj))
    d = type(d)(
        **{k: None if v is None else v.expand(5, *v.shape[1:]).clone() for k, v in vars(d).items()}
    )
    d.qvel[:] += 0.1 * torch.arange(5)[:, None]
    before = {k: v.clone() for k, v in vars(d).items() if v is not None}
    clean = forward.step(m, d)
    for name, value in before.items():
        assert torch.equal(value, getattr(d, name)), name
    d.qvel[2] = torch.nan
    poisoned = forward.step(m, d)
    for world in (0, 1, 3, 4):
        assert torch.equal(clean.qpos[world], poisoned.qpos[world])
        assert torch.equal(clean.qacc[world], poisoned.qacc[world])
    alone = forward.step(
        m, type(d)(**{k: None if v is None else v[3:4] for k, v in vars(d).items()})
    )
    torch.testing.assert_close(alone.qpos[0], clean.qpos[3], rtol=0, atol=1e-12)
