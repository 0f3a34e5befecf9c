"""Constraint rows against MuJoCo's, as sorted rows in float64."""

import numpy as np
import pytest
import torch

from alloy.physics import collision as contact
from alloy.physics import constraint, forward, smooth
from tests.physics.fixture import (
    GYM_MODELS,
    assert_close,
    fixture,
    mujoco_rows,
    oracle_rows,
    sort_rows,
)
from tests.physics.models import CONTACTS, EQUALITIES, LIMITS

MODELS = dict.fromkeys(GYM_MODELS) | CONTACTS | {"limits": LIMITS, "equalities": EQUALITIES}


def our_rows(f):
    d = smooth.mass_matrix(f.m, smooth.kinematics(f.m, f.d))
    d = constraint.rows(f.m, contact.collision(f.m, d))
    return d, constraint.reference(f.m, smooth.velocity(f.m, d))


@pytest.mark.parametrize("which", MODELS)
@pytest.mark.parametrize("seed", range(2))
def test_rows_equal_mujoco(which, seed):
    f = fixture(MODELS[which] or which, seed)
    if which in CONTACTS:  # near the pose that the model is about
        f = settled(MODELS[which], seed)
    _, d = our_rows(f)
    ours, theirs = sort_rows(mujoco_rows(f.m, d)), sort_rows(oracle_rows(f.mj, f.mjd))
    assert ours.shape == theirs.shape
    scale = 1 + np.abs(theirs).max(0, initial=0)
    assert (np.abs(ours - theirs) <= 1e-9 * scale).all()
    if which in CONTACTS or which in ("limits", "equalities"):
        assert len(theirs) >= 4  # the comparison is about something


def settled(source, seed):
    """The model a little after its start, still moving: contacts are there and rows are busy."""
    import mujoco

    from alloy.physics import io
    from tests.physics.fixture import Fixture, load, tighten

    mj = load(source)
    tighten(mj)
    mjd = mujoco.MjData(mj)
    rng = np.random.default_rng(seed)
    mjd.qvel[:] = 0.3 * rng.normal(size=mj.nv)
    for _ in range(5 + 10 * seed):
        mujoco.mj_step(mj, mjd)
    mujoco.mj_forward(mj, mjd)
    m = io.put_model(mj, dtype=torch.float64)
    return Fixture(mj, mjd, m, io.put_data(m, mj, mjd))


@pytest.mark.parametrize("seed", range(4))
def test_equalities_between_sites_equal_mujoco(seed):
    """A weld's rows of rotation are turned together, so they are compared by what follows."""
    text = """<mujoco><option><flag contact="disable"/></option><worldbody>
      <site name="w" pos=".1 .2 .9" euler="10 20 30"/>
      <body name="a" pos="0 0 1"><freejoint/><geom type="box" size=".1 .2 .3"/>
        <site name="a" pos=".1 .1 0" euler="50 0 20"/></body>
      <body name="b" pos=".5 0 1"><freejoint/><geom type="box" size=".2 .1 .1"/>
        <site name="b" pos="0 .1 .2" euler="0 40 10"/></body></worldbody>
      <equality><weld site1="a" site2="b" torquescale=".7" solref=".05 .8"/>
        <connect site1="b" site2="w"/></equality></mujoco>"""
    f = fixture(text, seed)
    assert f.mj.eq_objtype.tolist() == [6, 6]  # mjOBJ_SITE: the caller's model is left alone
    d = forward.forward(f.m, f.d)
    assert_close(d.qacc, f.mjd.qacc, "qacc", 1e-8)
    assert_close(d.qfrc_constraint, f.mjd.qfrc_constraint, "qfrc_constraint", 1e-8)
