"""Friction without slip against MuJoCo in float64."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from alloy.physics import collision, forward, io
from alloy.physics.model import make_data
from tests.physics.fixture import assert_close, load, random_state, tighten
from tests.physics.models import CONTACTS

# friction losses of dofs and of tendons, some large enough to hold and some that yield
LOSSES = """
<mujoco><worldbody>
  <body><joint name="a" axis="0 1 0" frictionloss="9"/><geom size=".1" pos=".3 0 0" mass="1"/>
    <body pos=".5 0 0"><joint name="b" axis="0 1 0" frictionloss=".1"/>
      <geom size=".1" pos=".3 0 0" mass="1"/>
      <body pos=".5 0 0"><joint name="c" axis="0 1 0"/><geom size=".1" pos=".3 0 0" mass="1"/>
      </body></body></body>
  <body pos="0 1 0"><joint name="d" type="slide" axis="0 0 1"/><geom size=".1" mass="1"/></body>
</worldbody>
<tendon>
  <fixed frictionloss="3"><joint joint="b" coef="1"/><joint joint="c" coef="-2"/></fixed>
  <fixed frictionloss="20"><joint joint="d" coef="1"/><joint joint="a" coef=".5"/></fixed>
</tendon><option><flag contact="disable"/></option></mujoco>"""


def start(source: str, iterations: int, tolerance: float, seed: int = 0):
    """MuJoCo's model and data with noslip, after some steps where there are contacts."""
    mj = load(source)
    tighten(mj)
    mj.opt.noslip_iterations, mj.opt.noslip_tolerance = iterations, tolerance
    mjd, rng = mujoco.MjData(mj), np.random.default_rng(seed)
    if mj.opt.disableflags:
        random_state(mj, mjd, rng)
    else:
        mjd.qvel[:] = 0.3 * rng.normal(size=mj.nv)
        mujoco.mj_step(mj, mjd, nstep=20)
    mujoco.mj_forward(mj, mjd)
    return mj, mjd


def compare(mj: mujoco.MjModel, mjd: mujoco.MjData, rtol: float) -> None:
    m = io.put_model(mj, dtype=torch.float64)
    d = forward.forward(m, io.put_data(m, mj, mjd))
    assert_close(d.qacc, mjd.qacc, "qacc", rtol)
    assert_close(d.qfrc_constraint, mjd.qfrc_constraint, "qfrc_constraint", rtol)


def moved(mj: mujoco.MjModel, mjd: mujoco.MjData) -> float:
    """How much noslip changes MuJoCo's acceleration."""
    qacc = mjd.qacc.copy()
    mj.opt.noslip_iterations = 0
    mujoco.mj_forward(mj, mjd)
    return float(np.abs(mjd.qacc - qacc).max())


@pytest.mark.parametrize("which", [name for name in CONTACTS if "condim1" not in name])
def test_three_sweeps_equal_mujocos(which):
    mj, mjd = start(CONTACTS[which], 3, 0)
    compare(mj, mjd, 2e-7 if which == "condim6-elliptic-10" else 1e-8)  # the solver's own gap
    if which not in ("condim6-elliptic-10", "condim6-pyramidal-3"):  # there friction is at its cone
        assert moved(mj, mjd) > 1e-2


@pytest.mark.parametrize("which", ["condim3-pyramidal-1", "condim3-elliptic-10"])
def test_many_sweeps_equal_mujocos(which):
    compare(*start(CONTACTS[which], 300, 0), 1e-8)


@pytest.mark.parametrize("which", ["condim3-pyramidal-1", "condim3-elliptic-10"])
def test_sweeps_end_at_the_tolerance(which):
    mj, mjd = start(CONTACTS[which], 50, 1e-3)
    # MuJoCo would end them island by island, all together only without islands
    mj.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
    mujoco.mj_forward(mj, mjd)
    compare(mj, mjd, 1e-8)
    early = mjd.qacc.copy()
    mj.opt.noslip_tolerance = 0
    mujoco.mj_forward(mj, mjd)
    assert np.abs(mjd.qacc - early).max() > 1e-4  # the tolerance made a difference


@pytest.mark.parametrize("seed", range(3))
def test_friction_losses_without_slip_equal_mujocos(seed):
    mj, mjd = start(LOSSES, 20, 0, seed)
    compare(mj, mjd, 1e-9)
    assert moved(mj, mjd) > 1e-3


def test_a_direction_in_which_nothing_moves_has_no_friction():
    """A hinged rod against a wall: across its plane it cannot slip."""
    rod = """<mujoco><option cone="elliptic"/><worldbody>
      <geom type="plane" size="9 9 1" pos="0 0 -.2"/>
      <body><joint axis="0 1 0"/><geom type="capsule" size=".05" fromto="0 0 0 .5 0 -.16"/></body>
      <body pos="2 0 -.11"><freejoint/><geom size=".1"/></body></worldbody></mujoco>"""
    mj, mjd = start(rod, 5, 0)
    assert mjd.ncon == 2
    compare(mj, mjd, 1e-8)
    assert moved(mj, mjd) > 1e-3


PAIRS = {  # the geom of the world, and how high a box on it is
    "plane": ('type="plane" size="2 2 .1"', 0.1),
    "box": ('type="box" size=".3 .2 .1"', 0.2),
    "larger box": ('type="box" size=".9 .9 .1"', 0.2),
    "smaller box": ('type="box" size=".05 .08 .1"', 0.2),
}


@pytest.mark.parametrize("which", PAIRS)
def test_contacts_of_boxes_are_in_mujocos_order(which):
    """Sweeps that end early depend on it."""
    ground, height = PAIRS[which]
    mj = load(
        f"""<mujoco><option noslip_iterations="3"/><worldbody><geom {ground}/><body><freejoint/>
        <geom type="box" size=".15 .25 .12" mass="1"/></body></worldbody></mujoco>"""
    )
    m, rng, count = io.put_model(mj, dtype=torch.float64), np.random.default_rng(0), 200
    qpos = np.zeros((count, 7))
    for row in qpos:
        quat, turned = np.zeros(4), rng.normal(size=4) * (1 if rng.uniform() < 0.2 else 0.05)
        turned[rng.integers(4)] += 1  # about upright, on its head, or on a side
        mujoco.mju_axisAngle2Quat(quat, (0, 0, 1), rng.uniform(-3, 3))
        mujoco.mju_mulQuat(row[3:], quat, turned / np.linalg.norm(turned))
        row[:3] = 0.1 * rng.normal(), 0.1 * rng.normal(), height + 0.02 * rng.normal()
    d = collision.collision(
        m, forward.kinematics(m, replace(make_data(m, count), qpos=torch.tensor(qpos)))
    )
    mjd, several = mujoco.MjData(mj), 0
    for k, q in enumerate(qpos):
        mjd.qpos[:] = q
        mujoco.mj_kinematics(mj, mjd)
        mujoco.mj_collision(mj, mjd)
        ours = d.contact_pos[k][d.contact_dist[k] < 0].numpy()
        assert_close(torch.tensor(ours)[None], np.array([c.pos for c in mjd.contact]), "pos", 1e-6)
        several += len(ours) > 1
    assert several > 50


def test_a_few_sweeps_of_a_heap_of_boxes_equal_mujocos():
    boxes = "".join(
        f'<body pos="{0.02 * k} {-0.01 * k} {0.09 + 0.18 * k}" euler="0 0 {17 * k}"><freejoint/>'
        f'<geom type="box" size=".{2 + k % 2}5 .2 .1"/></body>'
        for k in range(3)
    )
    heap = f"""<mujoco><worldbody><geom type="plane" size="9 9 1" euler="1 2 0"/>{boxes}
      </worldbody></mujoco>"""
    mj, mjd = start(heap, 3, 0)
    assert mjd.ncon >= 12
    compare(mj, mjd, 1e-6)
    assert moved(mj, mjd) > 1e-3


def test_without_friction_noslip_changes_nothing():
    mj, mjd = start(CONTACTS["condim1-elliptic-1"], 5, 0)
    compare(mj, mjd, 1e-9)
    assert moved(mj, mjd) < 1e-9


def test_worlds_do_not_wait_for_each_other():
    mj, mjd = start(CONTACTS["condim3-elliptic-1"], 50, 1e-6)
    m = io.put_model(mj, dtype=torch.float64)
    d = io.put_data(m, mj, mjd)
    two = {k: None if v is None else v.expand(2, *v.shape[1:]).clone() for k, v in vars(d).items()}
    two["qvel"][1] = 0
    both = forward.forward(m, type(d)(**two))
    alone = forward.forward(m, d)
    torch.testing.assert_close(both.qacc[:1], alone.qacc, rtol=1e-12, atol=1e-10)
