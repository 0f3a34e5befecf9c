"""Tendons: lengths, Jacobians and constraint rows against MuJoCo in float64, stage by stage."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from alloy.physics import forward, io
from tests.physics.fixture import assert_close, fixture, load, mujoco_rows, oracle_rows, sort_rows
from tests.physics.test_forward import INTEGRATORS, rollout

# two arms on one base and a free body; %s takes geoms, sites and tendons
ARMS = """
<mujoco><option timestep=".005"><flag contact="disable"/></option><worldbody>
  <site name="world" pos="-.3 .1 .9"/><geom name="post" type="cylinder" size=".07 .5" pos="-.2 0 .6"
    euler="70 20 0"/><site name="post side" pos="-.2 .3 .6"/>
  <body pos="0 0 .5"><joint name="a" axis="0 1 0" damping=".1"/>
    <geom type="capsule" size=".02" fromto="0 0 0 .3 0 0"/><site name="a" pos=".1 0 .12"/>
    <body pos=".3 0 0"><joint name="b" axis="0 1 0.2"/>
      <geom name="ball" size=".06" pos="0 .01 0"/><site name="in" pos="0 .03 .02"/>
      <site name="under" pos="0 0 -.2"/>
      <geom name="pin" type="cylinder" size=".04 .1" euler="80 0 10"/>
      <geom type="capsule" size=".02" fromto="0 0 0 .3 0 0"/><site name="b" pos=".2 .02 .1"/>
      <body pos=".3 0 0"><joint name="c" axis="0 .2 1"/><geom size=".05" pos=".1 0 0"/>
        <site name="c" pos=".12 .05 .04"/></body></body>
    <body pos="0 .3 0"><joint name="d" type="slide" axis="1 0 1"/><geom size=".05"/>
      <site name="d" pos="0 .05 .1"/></body></body>
  <body pos="-.6 .1 .3"><freejoint/><geom size=".1" pos=".02 .1 0"/><site name="free" pos="0 0 .1"/>
  </body></worldbody>
<tendon>%s</tendon>%s</mujoco>"""
STRAIGHT = """
<spatial name="s" stiffness="20" damping="3"><site site="a"/><site site="b"/><site site="c"/>
</spatial>
<spatial name="loop" stiffness="2" springlength=".1 .4"><site site="world"/><site site="d"/>
  <site site="c"/><site site="free"/><site site="world"/></spatial>
<fixed name="f" damping="1"><joint joint="a" coef="2"/><joint joint="d" coef="-1"/></fixed>"""
PULLEYS = """
<spatial name="p" damping="2" stiffness="9"><site site="world"/><site site="a"/>
  <pulley divisor="2"/><site site="a"/><site site="b"/><pulley divisor="3"/><site site="d"/>
  <site site="free"/><site site="c"/></spatial>"""
SPHERE = """
<spatial name="w" stiffness="30" damping="1"><site site="a"/><geom geom="ball"/><site site="b"/>
</spatial>
<spatial name="v" stiffness="30"><site site="a"/><geom geom="ball" sidesite="under"/>
  <site site="b"/><site site="c"/></spatial>
<spatial name="i" damping="3"><site site="a"/><geom geom="ball" sidesite="in"/><site site="c"/>
</spatial>"""
CYLINDER = """
<spatial name="w" stiffness="30" damping="1"><site site="a"/><geom geom="pin"/><site site="b"/>
</spatial>
<spatial name="x" stiffness="30" damping="1"><site site="a"/><geom geom="pin" sidesite="under"/>
  <site site="b"/></spatial>
<spatial name="y" stiffness="3"><site site="world"/><geom geom="post" sidesite="post side"/>
  <site site="free"/></spatial>
<spatial name="z" stiffness="3"><site site="world"/><geom geom="pin" sidesite="in"/>
  <site site="c"/></spatial>
<spatial name="both" stiffness="5" damping="1"><site site="d"/><geom geom="post"/>
  <site site="free"/><geom geom="ball"/><site site="c"/></spatial>"""
# where a tendon bends inside a circle MuJoCo's search for the point stops some 1e-8 before the end
INSIDE = {"sphere": 3e-8, "cylinder": 3e-8}
PATHS = {"straight": STRAIGHT, "pulleys": PULLEYS, "sphere": SPHERE, "cylinder": CYLINDER}

LIMITED = """
<fixed name="f" limited="true" range="-.1 .1" margin=".02" frictionloss=".4" solreflimit=".05 .8"
  solimpfriction=".8 .9 .01"><joint joint="a" coef="2"/><joint joint="d" coef="-1"/></fixed>
<fixed name="g" frictionloss=".2" range="-.2 3" limited="true" solreffriction=".04 1">
  <joint joint="b" coef="1"/><joint joint="c" coef=".5"/></fixed>
<spatial name="s" limited="true" range=".3 .4" margin=".3" frictionloss=".1"><site site="a"/>
  <geom geom="ball"/><site site="b"/><site site="free"/></spatial>
<spatial name="t" limited="true" range="0 .2"><site site="d"/><site site="c"/></spatial>"""
TIED = """<equality>
  <tendon tendon1="f" tendon2="g" polycoef=".1 .5 .2 -.1 .05" solref=".05 .9"/>
  <tendon tendon1="s" polycoef="-.05 0 0 0 0"/><tendon tendon1="t" tendon2="f"/>
  <joint joint1="a" joint2="b"/><tendon tendon1="g" active="false"/></equality>"""
ROWS = {"limits": (LIMITED, ""), "equalities": (LIMITED, TIED)}


def oracle_jacobian(f):
    """MuJoCo's tendon Jacobian, dense."""
    out = np.zeros((f.mj.ntendon, f.mj.nv))
    for t in range(f.mj.ntendon):
        entries = slice(f.mj.ten_J_rowadr[t], f.mj.ten_J_rowadr[t] + f.mj.ten_J_rownnz[t])
        out[t, f.mj.ten_J_colind[entries]] = f.mjd.ten_J[entries]
    return out


@pytest.mark.parametrize("name", PATHS)
def test_paths_equal_mujoco(name):
    bent, tolerance = 0, INSIDE.get(name, 1e-9)
    for seed in range(20):
        f = fixture(ARMS % (PATHS[name], ""), seed)
        d = forward.velocity(f.m, forward.position(f.m, f.d))
        for field in ("ten_length", "ten_velocity", "qfrc_spring", "qfrc_damper", "qfrc_passive"):
            what = f"{field}, seed {seed}"
            assert_close(getattr(d, field), getattr(f.mjd, field), what, tolerance)
        assert_close(d.ten_J, oracle_jacobian(f), f"ten_J, seed {seed}", tolerance)
        bent += (f.mjd.wrap_obj.ravel()[: f.mjd.ten_wrapnum.sum()] >= 0).sum()
    assert (bent > 0) == (name in ("sphere", "cylinder"))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("seed", range(4))
def test_rows_and_acceleration_equal_mujoco(name, seed):
    f = fixture(ARMS % ROWS[name], seed)
    d = forward.forward(f.m, f.d)
    ours, theirs = sort_rows(mujoco_rows(f.m, d)), sort_rows(oracle_rows(f.mj, f.mjd))
    assert ours.shape == theirs.shape and len(theirs) > 3
    assert (np.abs(ours - theirs) <= 1e-9 * (1 + np.abs(theirs).max(0))).all()
    assert_close(d.qacc, f.mjd.qacc, "qacc", 1e-7)


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_a_run_equals_mujoco(integrator):
    f = fixture(ARMS % (CYLINDER + STRAIGHT, ""), integrator=INTEGRATORS[integrator])
    assert rollout(f.mj, f.m, 40) < 1e-7  # INSIDE, along the run


PLANE = """
<mujoco><option><flag contact="disable"/></option><worldbody><site name="a" pos="-.097 .316 .02"/>
  <geom name="g" type="%s" size=".07 1"/><site name="s" pos="%s"/>
  <body><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 .1"/><geom size=".01"/>
    <site name="b"/></body></worldbody>
<tendon><spatial><site site="a"/><geom geom="g" sidesite="s"/><site site="b"/></spatial></tendon>
</mujoco>"""


@pytest.mark.parametrize("kind", ("cylinder", "sphere"))
@pytest.mark.parametrize("side", (".0685 .0729 0", ".3 .3 0", ".0701 0 0", ".03 -.04 .01"))
def test_the_side_to_pass_is_mujocos(kind, side):
    """All of a plane around the geom, with sites on every side and one inside."""
    mj = load(PLANE % (kind, side))
    mjd, m = mujoco.MjData(mj), io.put_model(mj, dtype=torch.float64)
    places = np.random.default_rng(0).uniform(-0.5, 0.5, (200, 2))
    d = replace(io.make_data(m, 200), qpos=torch.tensor(places))
    lengths, bent = forward.position(m, d).ten_length[:, 0].numpy(), 0
    for place, ours in zip(places, lengths, strict=True):
        mjd.qpos[:] = place
        mujoco.mj_forward(mj, mjd)
        bent += mjd.ten_wrapnum[0] > 2
        assert abs(ours - mjd.ten_length[0]) < 1e-9
    assert 20 < bent < 180
