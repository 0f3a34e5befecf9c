"""Distances, normals and segments between geoms against mj_geomDistance in float64."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from alloy.ops.reference.collide import COLLIDERS
from alloy.ops.reference.sensor_distance import measured
from alloy.physics import forward, io
from alloy.physics.model import make_data
from tests.physics.fixture import load

SHAPES = {
    0: 'type="plane" size="1 1 1"',
    2: 'type="sphere" size=".3"',
    3: 'type="capsule" size=".1 .3"',
    4: 'type="ellipsoid" size=".3 .2 .1"',
    5: 'type="cylinder" size=".2 .15"',
    6: 'type="box" size=".2 .15 .1"',
    7: 'type="mesh" mesh="rock"',
}
ROCK = """<asset><mesh name="rock" vertex="-.2 -.15 -.1 .25 -.1 -.1 0 .2 -.1 .1 0 .2 -.2 .1 .1"/>
  </asset>"""
KINDS = [kind for kind in COLLIDERS if measured(kind)]
# MuJoCo searches for these, and points slide where surfaces are flat
SEARCHED = {
    (2, 4),
    (2, 7),
    (3, 7),
    (3, 4),
    (3, 5),
    (4, 4),
    (4, 5),
    (4, 6),
    (4, 7),
    (5, 5),
    (5, 6),
    (5, 7),
}
STATES = 60
TYPES = ("distance", "normal", "fromto")


def _evaluated(text, seed=0, states=STATES, spread=0.3):
    """Our sensors and MuJoCo's in random states of free bodies, (states, nsensordata) each."""
    mj, rng = load(text), np.random.default_rng(seed)
    # by default MuJoCo's search ends 1e-6 before the minimum, or much farther after 35 rounds
    mj.opt.ccd_tolerance, mj.opt.ccd_iterations = 1e-12, 300
    mjd, m = mujoco.MjData(mj), io.put_model(mj, dtype=torch.float64)
    qpos, theirs = [], []
    for _ in range(states):
        mjd.qpos[:] = rng.normal(size=mj.nq) * np.tile([spread] * 3 + [1] * 4, mj.nq // 7)
        mujoco.mj_normalizeQuat(mj, mjd.qpos)
        mujoco.mj_forward(mj, mjd)
        qpos.append(mjd.qpos.copy())
        theirs.append(mjd.sensordata.copy())
    d = replace(make_data(m, states), qpos=torch.tensor(np.array(qpos)))
    return forward.forward(m, d).sensordata.numpy(), np.array(theirs)


def _pair(kind, sensors):
    one, two = (SHAPES[k] for k in kind)
    first = f'<geom name="one" {one}/>'
    first = first if kind[0] == 0 else f"<body><freejoint/>{first}</body>"
    return f"""<mujoco>{ROCK}<worldbody>{first}<body><freejoint/><geom name="two" {two}/></body>
      </worldbody><sensor>{sensors}</sensor></mujoco>"""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}")
def test_pairs_equal_mujoco(kind):
    both = (("one", "two"), ("two", "one"))
    sensors = "".join(
        f'<{what} geom1="{a}" geom2="{b}" cutoff="3"/>' for a, b in both for what in TYPES
    )
    ours, theirs = _evaluated(_pair(kind, sensors))
    inside = theirs[:, 0] < 0
    assert 5 < inside.sum() < STATES
    error = np.abs(ours - theirs)
    assert error[:, [0, 10]].max() < (1e-7 if kind in SEARCHED else 1e-9)
    assert error.max() < (1e-3 if kind in SEARCHED else 1e-8)


BODIES = """<mujoco><worldbody><body name="a"><freejoint/>
    <geom name="a1" type="box" size=".1 .2 .1" pos=".3 0 0"/><geom type="capsule" size=".1 .1"/>
    <body name="c"><geom size=".2" pos="0 .4 0"/></body></body>
  <body name="b"><freejoint/><geom name="b1" size=".15" pos=".2 0 0"/>
    <geom type="box" size=".1 .1 .3" euler="30 40 50"/><geom type="capsule" size=".1 .1"/></body>
  </worldbody><sensor>%s</sensor></mujoco>"""


def test_the_nearest_of_all_geoms_of_bodies():
    sensors = "".join(
        f'<{what} {one} {two} cutoff="{cutoff}"/>'
        for one, two, cutoff in (
            ('geom1="b1"', 'body2="a"', 2), ('body1="c"', 'body2="b"', 2),
            ('body1="a"', 'geom2="b1"', 0.3), ('geom1="a1"', 'geom2="b1"', 0.3),
            ('body1="c"', 'body2="b"', 0),
        )
        for what in TYPES
    )  # fmt: skip
    ours, theirs = _evaluated(BODIES % sensors)
    np.testing.assert_allclose(ours, theirs, atol=1e-8)
    for distance in (20, 30, 40):  # those with a small cutoff: some beyond it, some not
        there = (theirs[:, distance + 1 : distance + 4] != 0).any(1)
        assert 5 < there.sum() < STATES - 5
        assert (theirs[~there, distance] == {20: 0.3, 30: 0.3, 40: 0}[distance]).all()


def test_a_sensor_alone_and_its_cutoff_on_deep_penetration():
    """The cutoff also bounds the value from below, as that of any sensor of real numbers."""
    ours, theirs = _evaluated(_pair((2, 2), '<distance geom1="two" geom2="one" cutoff=".05"/>'))
    np.testing.assert_allclose(ours, theirs, atol=1e-9)
    assert theirs.min() == -0.05 and theirs.max() == 0.05
    ours, theirs = _evaluated(_pair((2, 6), '<fromto geom1="two" geom2="one" cutoff=".1"/>'))
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_worlds_may_differ_in_size():
    f = io.put_model(load(_pair((2, 6), '<distance geom1="one" geom2="two" cutoff="9"/>')))
    size = f.geom_size.repeat(2, 1, 1)
    size[1, 0] = 0.5
    m = replace(f, geom_size=size)
    d = make_data(m, 2)
    d = replace(d, qpos=d.qpos + torch.tensor([0.0] * 7 + [0, 0, 2.0, 0, 0, 0, 0]))
    assert forward.forward(m, d).sensordata[:, 0].tolist() == pytest.approx([1.6, 1.4])


def test_pairs_without_a_collider_are_refused_by_name():
    model = load("""<mujoco><worldbody><geom name="one" type="plane" size="1 1 1"/>
      <geom name="two" type="plane" size="1 1 1"/></worldbody>
      <sensor><distance name="d" geom1="one" geom2="two"/></sensor></mujoco>""")
    text = (
        "sensor 'd' of type 'geomdist': the distance of geom 'one' and geom 'two', of types 'plane'"
    )
    with pytest.raises(NotImplementedError, match=text):
        io.put_model(model)
