"""Sensors of cameras, and whether something is inside a site, against MuJoCo in float64."""

import mujoco
import numpy as np
import pytest
import torch

from alloy.ops.triton.sensor import has_kernel
from alloy.physics import forward, io, sensor, smooth
from alloy.physics.model import make_data
from tests.physics.fixture import assert_close, fixture, load

MODES = ("fixed", "track", "trackcom", "targetbody", "targetbodycom")
# a camera of each mode on a moving body, and some in the world
SCENE = """
<mujoco><option gravity="1 2 -9"/><worldbody>
  <site name="w" pos="1 2 3" euler="10 20 30"/><camera name="world" pos="1 .2 2" euler="20 30 0"/>
  <camera name="guard" pos="0 1 2" mode="targetbody" target="b"/>
  <camera name="real" pos="0 1 2" resolution="641 479" sensorsize=".0217 .0113"
    focal=".031 .047" principal=".001 .002"/>
  <camera name="flat" pos="0 0 4" resolution="64 48" projection="orthographic" fovy="4"/>
  <body name="a" pos="0 0 1" euler="10 0 20"><freejoint/>
    <geom name="ga" type="box" size=".1 .2 .3" pos=".1 0 0" euler="30 0 0"/>
    <site name="sa" pos=".2 .1 0" euler="0 40 0"/>
    <body name="b" pos=".3 0 0" euler="20 0 0"><joint name="h" axis="0 1 1" pos=".1 0 0"/>
      <geom size=".1" pos=".1 0 0"/><site name="sb" pos="0 0 .1" euler="0 0 70"/>
      <body name="c" pos=".3 .1 0"><joint type="slide" axis="1 0 1"/>
        <geom name="gc" type="capsule" size=".05 .1" euler="60 0 0"/></body>
      {cameras}</body></body>
  <body name="f" pos="2 0 1"><joint type="ball"/><geom size=".1" pos=".2 0 0"/>
    <site name="sf" pos=".1 .2 .3" euler="50 0 0"/></body>
</worldbody><sensor>{sensors}</sensor></mujoco>"""
CAMERAS = "".join(
    f'<camera name="{mode}" mode="{mode}" pos=".1 .{k} .3" euler="20 3{k} 50" resolution="64 48"'
    f"{' target=' + chr(34) + 'f' + chr(34) if mode.startswith('target') else ''}/>"
    for k, mode in enumerate(MODES)
)
EYES = (*MODES, "world", "guard", "real", "flat")
POSES = "framepos framequat framexaxis frameyaxis framezaxis framelinvel frameangvel".split()
OBJECTS = (("body", "a"), ("xbody", "b"), ("geom", "gc"), ("site", "sf"), ("camera", "fixed"))


def _scene(sensors):
    return SCENE.format(cameras=CAMERAS, sensors=sensors)


def _frame(kind, objtype, name, reftype="", refname=""):
    reference = f'reftype="{reftype}" refname="{refname}"' if reftype else ""
    return f'<{kind} objtype="{objtype}" objname="{name}" {reference}/>'


def _compare(sensors, seeds=4):
    """All readings are MuJoCo's in random states; returns MuJoCo's."""
    theirs = []
    for seed in range(seeds):
        f = fixture(_scene(sensors), seed)
        d = smooth.velocity(f.m, smooth.kinematics(f.m, f.d))
        mujoco.mj_forward(f.mj, f.mjd)
        d = sensor.sensor(f.m, forward.forward(f.m, f.d) if "acc" in sensors else d)
        assert_close(d.sensordata, f.mjd.sensordata, f"seed {seed}", 1e-9)
        theirs.append(f.mjd.sensordata.copy())
    return np.array(theirs)


@pytest.mark.parametrize("kind", POSES)
def test_frames_of_cameras_of_every_mode(kind):
    alone = [_frame(kind, "camera", eye) for eye in EYES]
    against = [_frame(kind, "camera", eye, "site", "sa") for eye in EYES]
    behind = [_frame(kind, *thing, "camera", eye) for eye in EYES for thing in OBJECTS]
    for sensors in (alone, against, behind, [*alone, *behind, _frame(kind, "site", "sa")]):
        _compare("".join(sensors))


@pytest.mark.parametrize("kind", ("framelinacc", "frameangacc"))
def test_accelerations_of_cameras(kind):
    _compare("".join(_frame(kind, "camera", eye) for eye in EYES) + _frame(kind, "site", "sa"))


@pytest.mark.parametrize("eye", EYES)
def test_projections_onto_cameras(eye):
    sensors = "".join(f'<camprojection site="{s}" camera="{eye}"/>' for s in ("sf", "w", "sa"))
    theirs = _compare(sensors)
    assert np.abs(theirs).max() > 1


def test_projections_onto_several_cameras_at_once():
    _compare("".join(f'<camprojection site="sf" camera="{eye}"/>' for eye in reversed(EYES)))


def test_a_site_beside_a_camera_has_a_far_pixel():
    """Where it is neither before nor behind, the depth is replaced, as in MuJoCo."""
    mj = load("""<mujoco><worldbody><site name="s" pos=".25 .5 .25"/><camera name="c" pos="0 0 .25"
      resolution="640 480"/></worldbody><sensor><camprojection site="s" camera="c"/></sensor>
      </mujoco>""")
    mjd = mujoco.MjData(mj)
    mujoco.mj_forward(mj, mjd)
    m = io.put_model(mj, dtype=torch.float64)
    ours = forward.forward(m, make_data(m, 1)).sensordata[0].numpy()
    np.testing.assert_allclose(ours, mjd.sensordata, rtol=1e-12)
    assert np.abs(ours).min() > 1e15


@pytest.mark.parametrize("height", ("1.3", ".3"))
def test_a_camera_above_its_target_or_at_it(height):
    """Where no x axis is level more than another, MuJoCo takes the world's."""
    axes = "".join(_frame(kind, "camera", "c") for kind in POSES[2:5])
    mj = load(f"""<mujoco><worldbody><body name="b" pos=".1 .2 .3"/>
      <camera name="c" mode="targetbody" target="b" pos=".1 .2 {height}"/></worldbody>
      <sensor>{axes}</sensor></mujoco>""")
    mjd = mujoco.MjData(mj)
    mujoco.mj_forward(mj, mjd)
    m = io.put_model(mj, dtype=torch.float64)
    ours = forward.forward(m, make_data(m, 1)).sensordata[0].numpy()
    np.testing.assert_allclose(ours, mjd.sensordata, atol=1e-12)


def test_kernels_leave_cameras_to_the_reference():
    for sensors, known in (
        (_frame("framepos", "site", "sa"), True),
        (_frame("framepos", "camera", "fixed"), False),
        (_frame("framepos", "camera", "fixed") + _frame("framepos", "site", "sa"), False),
        ('<insidesite site="w" objtype="camera" objname="fixed"/>', False),
    ):
        assert has_kernel(io.put_model(load(_scene(sensors))).derived["sensor"]) is known


ZONES = {
    "sphere": ".3", "capsule": ".2 .2", "ellipsoid": ".2 .3 .4", "cylinder": ".25 .3",
    "box": ".2 .3 .25",
}  # fmt: skip


@pytest.mark.parametrize("shape", ZONES)
def test_inside_a_site_of_every_shape(shape):
    """A hundred bodies and what they carry, about a zone that moves too."""
    rng = np.random.default_rng(0)
    things = (("body", "b"), ("xbody", "b"), ("geom", "g"), ("site", "s"), ("camera", "c"))
    bodies = "".join(
        f"""<body name="b{k}" pos="{x:.3f} {y:.3f} {z:.3f}"><joint axis="0 1 0" pos=".1 0 0"/>
        <geom name="g{k}" size=".05" pos=".05 0 .02" mass="1"/><site name="s{k}" pos="0 .1 0"/>
        <camera name="c{k}" pos="0 0 .1" mode="track"/></body>"""
        for k, (x, y, z) in enumerate(rng.uniform(-0.45, 0.45, (20, 3)))
    )
    sensors = "".join(
        f'<insidesite site="zone" objtype="{kind}" objname="{letter}{k}"/>'
        for k in range(20)
        for kind, letter in things
    )
    mj = load(f"""<mujoco><worldbody>{bodies}<body><joint axis="1 1 0"/><geom size=".01"/>
      <site name="zone" type="{shape}" size="{ZONES[shape]}" pos=".05 0 0" euler="10 20 30"/>
      </body></worldbody><sensor>{sensors}</sensor></mujoco>""")
    m, mjd = io.put_model(mj, dtype=torch.float64), mujoco.MjData(mj)
    seen = []
    for _ in range(4):
        mjd.qpos[:] = rng.normal(size=mj.nq)
        mujoco.mj_forward(mj, mjd)
        d = sensor.sensor(m, smooth.kinematics(m, io.put_data(m, mj, mjd)))
        np.testing.assert_array_equal(d.sensordata[0].numpy(), mjd.sensordata)
        seen.append(mjd.sensordata.copy())
    assert 40 < np.sum(seen) < 360


def test_the_surface_of_a_site_is_outside():
    places = {
        "sphere": "0.5 0 0", "capsule": "0 0 0.75", "ellipsoid": "0 0.25 0", "cylinder": "0.5 0 0",
        "box": "0 0 0.125",
    }  # fmt: skip
    size = {"sphere": ".5", "capsule": ".5 .25", "cylinder": ".5 .25"}
    sites = "".join(
        f'<site name="{k}" type="{k}" size="{size.get(k, ".5 .25 .125")}"/>'
        f'<site name="on{k}" pos="{p}"/><site name="in{k}" pos="{p.replace("5", "4")}"/>'
        for k, p in places.items()
    )
    sensors = "".join(
        f'<insidesite site="{k}" objtype="site" objname="{on}{k}"/>'
        for on in ("on", "in")
        for k in places
    )
    text = f"<mujoco><worldbody>{sites}</worldbody><sensor>{sensors}</sensor></mujoco>"
    mj, mjd = load(text), mujoco.MjData(load(text))
    mujoco.mj_forward(mj, mjd)
    m = io.put_model(mj, dtype=torch.float64)
    ours = forward.forward(m, make_data(m, 2)).sensordata
    assert ours.tolist() == [mjd.sensordata.tolist()] * 2 == [[0.0] * 5 + [1.0] * 5] * 2
