"""Every supported sensor against MuJoCo in float64."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from alloy.physics import actuation, forward, io, passive, sensor, smooth
from tests.physics.fixture import assert_close, fixture, load

# two trees, a fixed body, turned frames; %s takes the sensors
SCENE = """
<mujoco><option magnetic=".1 -.5 .3" gravity="1 2 -9"/><worldbody>
  <site name="w" pos="1 2 3" euler="10 20 30"/>
  <body name="a" pos="0 0 1" euler="10 0 20"><freejoint/>
    <geom name="ga" type="box" size=".1 .2 .3" pos=".1 0 0" euler="30 0 0"/>
    <site name="sa" pos=".2 .1 0" euler="0 40 0"/>
    <body name="b" pos=".3 0 0" euler="20 0 0"><joint name="h" axis="0 1 1" pos=".1 0 0"/>
      <geom size=".1" pos=".1 0 0"/><site name="sb" pos="0 0 .1" euler="0 0 70"/>
      <body name="c" pos=".3 .1 0"><joint name="s" type="slide" axis="1 0 1"/>
        <geom name="gc" type="capsule" size=".05 .1" euler="60 0 0"/></body>
      <body name="e" pos="0 0 .3"><geom size=".1"/><site name="se" pos=".1 0 0"/></body>
    </body></body>
  <body name="f" pos="2 0 1"><joint name="q" type="ball"/><geom size=".1" pos=".2 0 0"/>
    <site name="sf" pos=".1 .2 .3" euler="50 0 0"/></body>
</worldbody>
<tendon><fixed name="t"><joint joint="h" coef="2"/><joint joint="s" coef="-1"/></fixed></tendon>
<actuator><position name="ph" joint="h" kp="5" gear="2"/><motor name="mt" tendon="t"/>
  <motor name="ut" tendon="t" gear="3"/></actuator>
<sensor>%s</sensor></mujoco>"""

SCALARS = """
<jointpos joint="h"/><ballangvel joint="q"/><actuatorfrc actuator="mt"/><jointvel joint="s"/>
<ballquat joint="q"/><actuatorpos actuator="ph"/><actuatorvel actuator="mt"/><jointpos joint="s"/>
<jointactuatorfrc joint="h"/><tendonpos tendon="t"/><tendonvel tendon="t"/><clock/>
<tendonactuatorfrc tendon="t"/><subtreecom body="a"/><subtreecom body="c"/><jointvel joint="h"/>
<subtreelinvel body="b"/><subtreeangmom body="a"/><subtreeangmom body="f"/>"""
SITES = """
<accelerometer site="sa"/><gyro site="sb"/><velocimeter site="sf"/><accelerometer site="w"/>
<magnetometer site="sa"/><gyro site="sf"/><velocimeter site="se"/><accelerometer site="sf"/>
<accelerometer site="se"/>"""
KINDS = "framepos framequat framexaxis frameyaxis framezaxis framelinvel frameangvel".split()
FRAMES = "".join(
    f'<{kind} objtype="{objtype}" objname="{name}" {reference}/>'
    for kind in KINDS
    for objtype, name, reference in (
        ("body", "a", ""), ("site", "sf", ""), ("geom", "gc", 'reftype="site" refname="sa"'),
        ("xbody", "c", ""), ("xbody", "b", 'reftype="geom" refname="ga"'), ("site", "w", ""),
        ("site", "se", 'reftype="body" refname="f"'), ("body", "c", 'reftype="xbody" refname="a"'),
    )
)  # fmt: skip
ACCELERATIONS = "".join(
    f'<{kind} objtype="{objtype}" objname="{name}"/>'
    for kind in ("framelinacc", "frameangacc")
    for objtype, name in (("body", "a"), ("site", "sf"), ("geom", "gc"), ("xbody", "e"))
)
CUTOFF = """
<jointpos joint="h" cutoff=".1"/><jointvel joint="h" cutoff=".2" noise="3"/>
<gyro site="sa" cutoff=".3"/><framequat objtype="site" objname="sa"/>
<framepos objtype="site" objname="sf" cutoff="1"/><tendonpos tendon="t"/>"""
SENSORS = {
    "scalars": SCALARS, "sites": SITES, "frames": FRAMES, "accelerations": ACCELERATIONS,
    "cutoff": CUTOFF, "mixed": SITES + CUTOFF + SCALARS + ACCELERATIONS,
    "one": '<framexaxis objtype="site" objname="sb"/>', "none": "",
}  # fmt: skip


def evaluate(f):
    """Sensors of MuJoCo's own accelerations, so that the solver has no part in the comparison."""
    d = smooth.velocity(f.m, smooth.kinematics(f.m, f.d))
    d = actuation.actuation(f.m, passive.passive(f.m, passive.tendon(f.m, d)))
    return sensor.sensor(f.m, d).sensordata


@pytest.mark.parametrize("name", SENSORS)
def test_sensors_equal_mujoco(name):
    for seed in range(3):
        f = fixture(SCENE % SENSORS[name], seed)
        f.d = replace(f.d, step_count=torch.tensor([70]))
        f.mjd.time = 70 * f.mj.opt.timestep
        mujoco.mj_forward(f.mj, f.mjd)
        assert_close(evaluate(f), f.mjd.sensordata, f"seed {seed}")


@pytest.mark.parametrize("flag", ("gravity", "actuation", "sensor"))
def test_disabled_features_equal_mujoco(flag):
    bit = int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag.upper()}"))
    f = fixture(SCENE % (SCALARS + SITES), 1, disableflags=bit)
    assert_close(evaluate(f), f.mjd.sensordata, flag)


FORCES = """
<mujoco><worldbody><geom type="plane" size="3 3 1"/>
  <body name="a" pos="0 0 .25" euler="1 2 3"><freejoint/><geom type="box" size=".2 .2 .2"/>
    <site name="a" pos=".1 0 .2" euler="0 30 0"/>
    <body pos="0 0 .3"><joint name="h" axis="0 1 0" range="-.1 .1" stiffness="3" margin=".03"/>
      <geom size=".1" pos=".1 0 .1"/><site name="b" pos="0 .1 0" euler="20 0 50"/>
      <body name="c" pos="0 0 .3"><joint name="q" type="ball" range="0 .3" springdamper=".1 1"/>
        <geom size=".05"/><site name="c"/>
        <body pos=".2 0 0"><joint name="s" type="slide" axis="1 0 0"/><geom size=".05"/></body>
      </body></body></body></worldbody>
<tendon><fixed name="t" range="-.1 .2" margin=".3" stiffness="4" frictionloss=".1">
  <joint joint="h" coef="1"/><joint joint="s" coef="2"/></fixed>
  <fixed name="u" range="0 1" stiffness="2"><joint joint="s" coef="1"/></fixed></tendon>
<sensor><force site="a"/><torque site="b"/><force site="b"/><torque site="c"/><e_kinetic/>
  <jointlimitpos joint="h"/><jointlimitvel joint="h"/><jointlimitfrc joint="h"/>
  <jointlimitpos joint="q"/><jointlimitfrc joint="q"/><jointlimitvel joint="q"/>
  <tendonlimitpos tendon="t"/><tendonlimitvel tendon="t"/><tendonlimitfrc tendon="t"/>
  <tendonlimitpos tendon="u"/><tendonlimitfrc tendon="u"/><e_potential/><force site="c" cutoff="1"/>
</sensor></mujoco>"""


@pytest.mark.parametrize("cone", (0, 1))
def test_forces_limits_and_energies_equal_mujoco(cone):
    """After the solver, whose tolerance both share: hence 1e-6."""
    limits = 0
    for seed in range(6):
        f = fixture(FORCES, seed, cone=cone)
        d = forward.forward(f.m, f.d)
        assert_close(d.sensordata, f.mjd.sensordata, f"seed {seed}", 1e-6)
        limits += np.count_nonzero(f.mjd.sensordata[13:23])
    assert limits > 20


@pytest.mark.parametrize("flag", ("gravity", "spring", "limit"))
def test_energies_without_some_forces_equal_mujoco(flag):
    bit = int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag.upper()}"))
    f = fixture(FORCES, 1, disableflags=bit)
    d = forward.forward(f.m, f.d)
    assert_close(d.sensordata, f.mjd.sensordata, flag, 1e-6)


ZONES = (
    'type="sphere" size=".09"', 'type="box" size=".12 .05 .04"', 'type="capsule" size=".03 .1"',
    'type="ellipsoid" size=".15 .08 .06"', 'type="cylinder" size=".07 .04"',
)  # fmt: skip


@pytest.mark.parametrize("cone", ("pyramidal", "elliptic"))
@pytest.mark.parametrize("condim", (1, 3, 4))
@pytest.mark.parametrize("zone", ZONES, ids=lambda zone: zone.split('"')[1])
def test_touch_equals_mujoco(zone, condim, cone):
    """Boxes pressed into the floor and into each other, with zones here and there about them."""
    sites = "".join(
        f'<site name="{{0}}{i}" {zone} pos="{x} {y} {z}" euler="{30 * i} {50 * i} 0"/>'
        for i, (x, y, z) in enumerate([(0, 0, -0.1), (0.1, 0.1, -0.1), (0, 0, 0.1), (0.1, 0, 0.3)])
    )
    text = f"""
    <mujoco><option cone="{cone}"/><worldbody>
      <geom type="plane" size="5 5 1" condim="{condim}"/><site name="w" {zone}/>
      <body pos="0 0 .095" euler="1 2 3"><freejoint/>{sites.format("a")}
        <geom type="box" size=".1 .1 .1" condim="{condim}"/></body>
      <body pos=".05 .03 .29"><freejoint/>{sites.format("b")}
        <geom type="box" size=".1 .1 .1" condim="1"/></body>
    </worldbody><sensor>
      {"".join(f'<touch site="{b}{i}"/>' for b in "ab" for i in range(4))}
      <touch site="w" cutoff="3"/></sensor></mujoco>"""
    f = fixture(text)
    mujoco.mj_resetData(f.mj, f.mjd)
    mujoco.mj_forward(f.mj, f.mjd)
    d = forward.forward(f.m, io.make_data(f.m, 1))
    assert (f.mjd.sensordata > 0).any() and (f.mjd.sensordata == 0).any()
    assert_close(d.sensordata, f.mjd.sensordata, "touch", 1e-6)


def test_touch_without_contacts_is_zero():
    text = (
        '<mujoco><worldbody><site name="s" size=".1"/><body><joint axis="0 1 0"/><geom size=".1"/>'
        "</body></worldbody>"
        '<sensor><touch site="s"/></sensor></mujoco>'
    )
    m = io.put_model(load(text), dtype=torch.float64)
    d = forward.forward(m, io.make_data(m, 3))
    assert d.sensordata.tolist() == [[0], [0], [0]]


def test_worlds_do_not_mix():
    f = fixture(SCENE % (SITES + FRAMES + SCALARS), 2)
    one = forward.forward(f.m, f.d)
    d = io.make_data(f.m, 3)
    d = replace(
        d,
        **{
            name: torch.cat([getattr(d, name)[:1], getattr(f.d, name), getattr(d, name)[:1] * 0.3])
            for name in ("qpos", "qvel", "ctrl", "qfrc_applied", "xfrc_applied")
        },
    )
    many = forward.forward(f.m, d)
    torch.testing.assert_close(many.sensordata[1:2], one.sensordata, rtol=1e-9, atol=1e-9)


def test_float32_keeps_its_dtype():
    f = fixture(SCENE % SENSORS["mixed"])
    m = io.put_model(f.mj)
    d = forward.forward(m, io.put_data(m, f.mj, f.mjd))
    assert d.sensordata.dtype == torch.float32
    np.testing.assert_allclose(d.sensordata[0].numpy(), f.mjd.sensordata, rtol=2e-3, atol=2e-3)


REFUSED = {
    '<user dim="2"/>': "sensor 'x' of type 'user'",
    '<insidesite site="sm" objtype="body" objname="a"/>': "sensor 'x': a zone of type 'mesh'",
    '<touch site="sm"/>': "sensor 'x': a zone of type 'mesh'",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED, ids=REFUSED.get)
def test_unsupported_sensors_are_refused_by_name(text):
    scene = SCENE % text.replace(" ", ' name="x" ', 1)
    mesh = '<asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>'
    more = f'{mesh}<worldbody><site name="sm" type="mesh" mesh="m"/>'
    with pytest.raises(NotImplementedError, match=REFUSED[text]):
        io.put_model(load(scene.replace("<worldbody>", more)))
