"""Accelerations and forces of bodies against mj_rnePostConstraint in float64."""

from dataclasses import replace

import mujoco
import pytest
import torch

from alloy.physics import forward, io
from scripts.features import FEATURES
from tests.physics.fixture import assert_close, fixture, load
from tests.physics.models import CONTACTS, EQUALITIES, JOINTS, LIMITS, SPINNING
from tests.physics.test_constraint import settled
from tests.physics.test_tendon import ARMS, PATHS

FIELDS = ("cacc", "cfrc_ext", "cfrc_int")
# a tendon equality with a connect behind it, whose rows it moves
COUPLED = """<mujoco><worldbody>
  <body name="a"><joint name="a" axis="0 1 0"/><geom size=".1" pos=".2 0 0"/>
    <body name="b" pos=".4 0 0"><joint name="b" axis="0 1 0"/><geom size=".1" pos=".2 0 0"/></body>
  </body>
  <body name="c" pos="0 1 0"><freejoint/><geom size=".1" pos=".1 0 0"/></body>
</worldbody><tendon><fixed name="t"><joint joint="a" coef="1"/><joint joint="b" coef="2"/></fixed>
</tendon><equality><tendon tendon1="t"/><connect body1="c" anchor="0 0 .1"/></equality></mujoco>"""
TENDONS = {f"tendon {n}": text for n, text in FEATURES["tendon"].items()} | {
    "tendon equality": FEATURES["equality"]["tendon"],
    "tendon actuator": FEATURES["transmission"]["tendon"],
    "tendon armature of a rope": FEATURES["tendon"]["spatial"].replace(
        'stiffness="3"', 'stiffness="3 1" armature=".2"'
    ),
}
FREE = {
    "joints": JOINTS, "limits": LIMITS, "spinning": SPINNING, "equalities": EQUALITIES,
    "coupled": COUPLED,
}  # fmt: skip
NO_GRAVITY = JOINTS.replace('contact="disable"', 'contact="disable" gravity="disable"')


def compare(f):
    mujoco.mj_rnePostConstraint(f.mj, f.mjd)
    d = forward.forces(f.m, forward.forward(f.m, f.d))
    for name in FIELDS:
        # as close as the two solvers come to the minimum
        assert_close(getattr(d, name), getattr(f.mjd, name), name, 1e-6)
    return d


@pytest.mark.parametrize("which", CONTACTS)
def test_contact_forces_reach_both_bodies(which):
    d = compare(settled(CONTACTS[which], 0))
    assert (d.cfrc_ext[0, 1:].abs().amax(-1) > 1).sum() == 5
    assert not d.cfrc_ext[0, 0].any()


@pytest.mark.parametrize("source", [*FREE.values(), NO_GRAVITY], ids=[*FREE, "no gravity"])
def test_applied_and_equality_forces(source):
    d = compare(fixture(source, seed=3))
    assert d.cfrc_ext.abs().max() > 0.1


@pytest.mark.parametrize("which", TENDONS)
def test_tendons_pull_on_what_they_run_over(which):
    for seed in range(3):
        compare(fixture(TENDONS[which], seed))


@pytest.mark.parametrize("path", PATHS)
def test_tendons_that_wrap_press_on_what_they_run_around(path):
    for seed in range(4):
        compare(fixture(ARMS % (PATHS[path], ""), seed))


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
@pytest.mark.parametrize("derived", [True, False])
def test_a_step_keeps_the_fields_it_is_asked_for(integrator, derived):
    """The fields of the last forward pass, as in mjData after mj_step."""
    mj = load(CONTACTS["condim3-pyramidal-1"])
    mj.opt.integrator = {"Euler": 0, "RK4": 1}[integrator]
    mj.opt.tolerance, mj.opt.ls_tolerance, mj.opt.iterations = 0, 1e-10, 200
    mjd = mujoco.MjData(mj)
    mujoco.mj_step(mj, mjd, 8)
    m = io.put_model(mj, dtype=torch.float64)
    d = io.put_data(m, mj, mjd)
    keep = ("xpos", "cvel", "cfrc_ext", "efc_force")
    d = replace(d, **dict.fromkeys(keep))
    d = forward.step(m, d, derived=derived, keep=keep)
    mujoco.mj_step(mj, mjd)
    for name in ("qpos", "qvel", "xpos", "cvel"):
        assert_close(getattr(d, name), getattr(mjd, name), name, 1e-7)
    mujoco.mj_rnePostConstraint(mj, mjd)
    assert_close(d.cfrc_ext, mjd.cfrc_ext, "cfrc_ext", 1e-6)
    assert d.efc_force.shape == (1, m.nefc)
