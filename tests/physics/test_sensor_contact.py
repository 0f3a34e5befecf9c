"""Contact sensors against MuJoCo in float64, where bodies lie on the ground and on each other."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from alloy.physics import forward, io
from alloy.physics.model import make_data
from tests.physics.fixture import load, tighten

# geoms of bodies interleave with those of their children, explicit pairs are among the others, and
# contacts have 1, 3, 4 and 6 dimensions, a margin and a gap
SCENE = """<mujoco><option cone="%(cone)s"/><worldbody>
  <geom name="floor" type="plane" size="5 5 1"/>
  <geom name="step" type="box" size=".3 .3 .1" pos=".4 .4 0"/>
  <site name="zone" type="%(zone)s" size=".25 .2 .1" euler="10 20 30"/>
  <body name="a" pos="0 0 .19"><freejoint/>
    <geom name="a1" size=".2" condim="1" margin=".05" gap=".03"/>
    <geom name="a2" type="capsule" size=".1 .2" pos=".3 0 0" euler="0 80 0"/>
    <body name="k" pos="0 .3 0"><joint name="j" axis="1 0 0"/>
      <geom name="k1" size=".15" condim="6" friction="1 .1 .05"/><site name="s" size=".3"/></body>
  </body>
  <body name="b" pos=".25 .15 .3"><freejoint/>
    <geom name="b1" size=".1" pos="-.2 0 0" condim="4" friction="1 .1 .05"/>
    <geom name="b2" type="capsule" size=".08 .2"/></body>
  <body name="c" pos="-.25 .15 .2"><freejoint/>
    <geom name="c1" size=".2"/><geom name="c2" size=".1" pos=".1 0 -.1"/></body>
  </worldbody>
  <contact><pair geom1="b1" geom2="a2" condim="3"/><pair geom1="c2" geom2="floor" condim="1"/>
    <exclude body1="c" body2="k"/></contact>
  <sensor>%(sensors)s</sensor></mujoco>"""
EVERYTHING = "found force torque dist pos normal tangent linvel angvel"
NET = "found force torque dist pos normal tangent"
FILTERS = (
    "", 'geom1="a1"', 'geom2="a1"', 'body1="a"', 'body2="b"', 'subtree1="a"', 'subtree2="a"',
    'geom1="floor" subtree2="a"', 'body1="b" body2="a"', 'body1="c" geom2="floor"',
    'subtree1="a" subtree2="a"', 'body1="world" body2="c"', 'geom1="a1" geom2="a2"',
    'site="zone"', 'site="s" body2="a"', 'site="zone" geom2="floor"',
)  # fmt: skip


def _model(sensors, cone="pyramidal", zone="sphere"):
    mj = load(SCENE % {"sensors": sensors, "cone": cone, "zone": zone})
    tighten(mj)
    return mj


def _states(mj, count=6):
    """States in which many things touch, moving."""
    rng, out = np.random.default_rng(0), []
    for _ in range(count):
        mjd = mujoco.MjData(mj)
        mjd.qpos[:] += 0.05 * rng.normal(size=mj.nq)
        mjd.qvel[:] = 0.3 * rng.normal(size=mj.nv)
        mujoco.mj_normalizeQuat(mj, mjd.qpos)
        mujoco.mj_forward(mj, mjd)
        out.append(mjd)
    return out


def _ours(mj, states):
    m = io.put_model(mj, dtype=torch.float64)
    d = make_data(m, len(states))
    state = {
        name: torch.tensor(np.array([getattr(mjd, name) for mjd in states]))
        for name in ("qpos", "qvel", "qacc_warmstart")
    }
    return forward.forward(m, replace(d, **state)).sensordata.numpy()


def _compare(mj):
    """Our readings are MuJoCo's, as far as both solvers come to the minimum; returns MuJoCo's."""
    states = _states(mj)
    theirs = np.array([mjd.sensordata for mjd in states])
    ours = _ours(mj, states)
    for i in range(mj.nsensor):
        where = slice(mj.sensor_adr[i], mj.sensor_adr[i] + mj.sensor_dim[i])
        scale = 1 + np.abs(theirs[:, where]).max()
        error = np.abs(ours[:, where] - theirs[:, where]).max() / scale
        assert error < 1e-6, f"sensor {i}: {error:.1e}"
    return theirs


@pytest.mark.parametrize("cone", ("pyramidal", "elliptic"))
@pytest.mark.parametrize("reduce", ("none", "mindist", "maxforce", "netforce"))
def test_every_filter_with_every_reduction_equals_mujoco(reduce, cone):
    fields = NET if reduce == "netforce" else EVERYTHING
    mj = _model(
        "".join(
            f'<contact {some} data="{fields}" num="{num}" reduce="{reduce}"/>'
            for some in FILTERS
            for num in (1, 3)
        ),
        cone,
    )
    _compare(mj)
    number = [mj.sensor_adr[2 * k] for k in range(len(FILTERS))]
    found = np.array([mjd.sensordata[number] for mjd in _states(mj)])
    assert (found > 1).any(0).sum() > 8 and (found > 0).any(0).sum() > 12


@pytest.mark.parametrize("zone", ("sphere", "capsule", "ellipsoid", "cylinder", "box"))
def test_zones_of_every_shape(zone):
    sensors = '<contact site="zone" num="5" data="found pos"/><contact/>'
    theirs = _compare(_model(sensors, zone=zone))
    assert (0 < theirs[:, 0]).any() and (theirs[:, 0] < theirs[:, -1]).all()


@pytest.mark.parametrize("field", EVERYTHING.split())
def test_one_field_alone(field):
    sensors = "".join(
        f'<contact {some} data="{field}" num="40"/>' for some in ('body2="a"', "", 'geom1="k1"')
    )
    theirs = _compare(_model(sensors))
    assert field == "torque" or (theirs != 0).any()


def test_cutoff_and_other_sensors_do_not_matter():
    forces = '<contact subtree1="a" data="force" cutoff=".1" num="2"/>'
    others = '<gyro site="s"/><contact body1="b" reduce="maxforce"/>'
    theirs = _compare(_model(f'<jointpos joint="j"/>{forces}{others}'))
    assert np.abs(theirs[:, 1:7]).max() > 1


def test_without_midphase_contacts_come_in_another_order():
    mj = _model('<contact data="found pos" num="30"/>')
    mj.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
    _compare(mj)


@pytest.mark.parametrize("reduce", ("none", "mindist", "netforce"))
def test_a_sensor_of_what_never_touches_is_zero(reduce):
    mj = load(f"""<mujoco><worldbody><geom name="g" size=".1"/>
      <body><joint/><geom size=".1" contype="0" conaffinity="0"/></body></worldbody><sensor>
      <contact geom1="g" data="found force" num="2" reduce="{reduce}"/></sensor></mujoco>""")
    assert not _ours(mj, [mujoco.MjData(mj)] * 2).any()


def test_zones_of_meshes_are_refused_by_name():
    mj = load("""<mujoco><asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset><worldbody>
      <site name="s" type="mesh" mesh="m"/></worldbody>
      <sensor><contact name="x" site="s"/></sensor></mujoco>""")
    with pytest.raises(NotImplementedError, match="sensor 'x': a zone of type 'mesh'"):
        io.put_model(mj)
