"""Rangefinders against MuJoCo in float64."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

import alloy
from alloy.physics import forward, io
from alloy.physics.model import make_data
from tests.physics.fixture import assert_close, fixture, load

SHAPES = {
    "plane": 'type="plane" size="1 .7 1"',
    "endless plane": 'type="plane" size="0 0 1"',
    "sphere": 'type="sphere" size=".5"',
    "capsule": 'type="capsule" size=".3 .4"',
    "ellipsoid": 'type="ellipsoid" size=".6 .3 .5"',
    "cylinder": 'type="cylinder" size=".4 .3"',
    "box": 'type="box" size=".5 .3 .4"',
    "mesh": 'type="mesh" mesh="rock"',
    "mesh with dents": 'type="mesh" mesh="star"',
    "height field": 'type="hfield" hfield="hills"',
}
FIELDS = "dist dir origin point normal depth"
RAYS = 40


ASSETS = """<asset>
  <mesh name="rock" vertex="-.4 -.3 -.3 .4 -.3 -.2 0 .5 -.3 .1 0 .4 .1 -.4 .3"/>
  <mesh name="star" vertex="0 0 .6 .5 0 0 .1 .1 0 0 .5 0 -.5 -.1 0 .1 -.5 0 0 0 -.3"
    face="0 1 2 0 2 3 0 3 4 0 4 5 0 5 1 6 2 1 6 3 2 6 4 3 6 5 4 6 1 5"/>
  <hfield name="hills" nrow="3" ncol="4" size=".7 .5 .4 .2" elevation="%s"/></asset>"""
ASSETS %= "0 1 .2 .5 .7 .3 .9 .1 .2 .8 .4 1"


def _scene(shape: str, data: str = FIELDS, cutoff: str = "") -> str:
    """One geom, and rays about it that start outside and inside and look here and there."""
    rng = np.random.default_rng(1)
    where = rng.uniform(-0.9, 0.9, (RAYS, 3))
    where[: RAYS // 4] *= 0.2
    look = 0.4 * rng.normal(size=(RAYS, 3)) - where
    look[::5] = np.eye(3)[rng.integers(3, size=RAYS // 5)] * rng.choice([-1, 1], (RAYS // 5, 1))
    sites = "".join(
        f'<site name="s{k}" pos="{p[0]} {p[1]} {p[2]}" zaxis="{z[0]} {z[1]} {z[2]}"/>'
        for k, (p, z) in enumerate(zip(where, look, strict=True))
    )
    sensors = "".join(f'<rangefinder site="s{k}" data="{data}" {cutoff}/>' for k in range(RAYS))
    return f"""<mujoco>{ASSETS}<worldbody><body pos=".1 0 0" euler="5 6 7"><freejoint/>{sites}
      <geom size=".01" rgba="1 1 1 0" contype="0" conaffinity="0" pos="9 9 9"/></body>
      <body euler="20 30 40"><geom {shape}/></body></worldbody>
      <sensor>{sensors}</sensor></mujoco>"""


@pytest.mark.parametrize("shape", SHAPES)
def test_rays_on_a_shape_equal_mujoco(shape):
    f = fixture(_scene(SHAPES[shape]))
    for scale in (0.0, 0.05):
        f.mjd.qpos[:] = f.mj.qpos0 + scale * np.arange(7) / 7
        mujoco.mj_forward(f.mj, f.mjd)
        d = replace(make_data(f.m, 1), qpos=torch.tensor(f.mjd.qpos)[None])
        d = forward.forward(f.m, d)
        assert_close(d.sensordata, f.mjd.sensordata, shape)
    met = f.mjd.sensordata.reshape(RAYS, -1)[:, 0] >= 0
    assert 5 < met.sum() < RAYS


CROWD = """<mujoco><asset><material name="glass" rgba="1 1 1 0"/>
    <material name="paint" rgba="1 0 0 1"/></asset><worldbody>
  <geom type="plane" size="0 0 1"/><geom size=".3" pos="1 1 .5" group="4"/>
  <geom type="box" size=".5 .1 .5" pos="0 1 .5" material="glass"/>
  <geom type="box" size=".5 .1 .5" pos="0 -1 .5" material="paint" rgba="1 1 1 0"/>
  <body mocap="true" pos=".5 -.5 .5">
    <geom type="cylinder" size=".1 .3" contype="0" conaffinity="0"/></body>
  <body name="a" pos="0 0 .8"><freejoint/><geom type="box" size=".3 .2 .1"/>
    <site name="down" zaxis="0 0 -1"/><site name="x" pos=".1 0 0" zaxis="1 .1 -.2"/>
    <site name="y" pos="0 .1 0" zaxis=".1 1 -.2"/><site name="up" zaxis="0 0 1"/>
    <body pos="0 0 .3"><joint name="h" axis="1 0 0"/><geom type="capsule" size=".05 .2"/>
      <site name="arm" zaxis=".1 .2 -1"/></body></body>
  <body name="b" pos=".5 .3 .4"><freejoint/><geom type="ellipsoid" size=".2 .3 .1"/></body>
  </worldbody><sensor>
  <rangefinder site="down"/><rangefinder site="x" data="dist normal"/>
  <rangefinder site="y" cutoff=".5"/><jointpos joint="h"/><rangefinder site="up" data="point"/>
  <rangefinder site="arm" data="dir depth"/><rangefinder site="x" data="normal"/>
  <rangefinder site="y" data="point" cutoff=".3"/><rangefinder site="arm"/></sensor></mujoco>"""


def test_rays_among_many_geoms_equal_mujoco():
    """Own bodies and transparent geoms are not seen; groups, masks and mocap bodies are nothing."""
    met = []
    for seed in range(20):
        f = fixture(CROWD, seed)
        assert_close(forward.forward(f.m, f.d).sensordata, f.mjd.sensordata, f"seed {seed}")
        met.append(f.mjd.sensordata[[0, 1, 5]] >= 0)
    assert 0.2 < np.mean(met) < 0.95


def test_rays_that_nothing_can_meet():
    text = """<mujoco><worldbody><body><joint/><geom size=".1"/><site name="s"/></body></worldbody>
      <sensor><rangefinder site="s" data="dist normal origin"/></sensor></mujoco>"""
    with pytest.raises(ValueError, match="data"):  # MuJoCo wants the fields in its own order
        load(text)
    f = fixture(text.replace("dist normal origin", "dist origin normal"))
    d = forward.forward(f.m, f.d)
    assert_close(d.sensordata, f.mjd.sensordata, "nothing there")
    assert d.sensordata[0, 0] == -1


LENSES = {
    "angle": 'fovy="50" resolution="7 4"',
    "one pixel": 'fovy="50"',
    "focal length": 'sensorsize=".011 .023" focal=".021 .033" resolution="5 6"',
    "principal point": 'sensorsize=".011 .023" focalpixel="7.3 8.1" principalpixel="1.7 2.3" '
    'resolution="7 5"',
    "orthographic": 'projection="orthographic" fovy="1.3" resolution="6 4"',
}
MODES = ("fixed", "track", "trackcom", "targetbody", "targetbodycom")


def _cameras(lens: str, data: str = FIELDS, more: str = "") -> str:
    """The crowd with cameras that move in every way, on a body and in the world."""
    eyes = "".join(
        f'<camera name="{mode}" mode="{mode}" {lens} pos=".1 {0.1 * k} .2" euler="-20 {5 * k} 3"'
        f" {'target=' + chr(34) + 'b' + chr(34) if mode.startswith('target') else ''}/>"
        for k, mode in enumerate(MODES)
    )
    sensors = "".join(f'<rangefinder camera="{mode}" data="{data}"/>' for mode in MODES)
    text = CROWD.replace('<site name="down"', f'{eyes}<site name="down"')
    text = text.replace("<worldbody>", f'<worldbody><camera name="w" {lens} pos=".03 .02 2"/>')
    sensors += f'<rangefinder camera="w" cutoff="1.7"/>{more}'
    return text[: text.index("<sensor>")] + f"<sensor>{sensors}</sensor></mujoco>"


@pytest.mark.parametrize("lens", LENSES)
def test_rays_of_cameras_equal_mujoco(lens):
    for seed in range(4):
        f = fixture(_cameras(LENSES[lens], more='<rangefinder site="x" data="depth"/>'), seed)
        assert_close(forward.forward(f.m, f.d).sensordata, f.mjd.sensordata, f"seed {seed}")
        count = f.mj.cam_resolution[0].prod()
        assert f.mj.sensor_dim.tolist() == [14 * count] * len(MODES) + [count, 1]
        met = f.mjd.sensordata[: 14 * count * len(MODES)].reshape(-1, 14)
        assert (met[:, 0] > 0).any()
        assert lens == "one pixel" or len(np.unique(met[:, 0].round(9))) > count


def test_gradients_are_finite_and_right():
    """Tilting a ray that looks down from a height h: the distance is h / cos(angle)."""
    text = """<mujoco><worldbody><geom type="plane" size="9 9 1"/><geom size=".2" pos="3 0 1"/>
      <body pos="0 0 2"><joint axis="0 1 0"/><geom size=".1"/><site name="s" zaxis="0 0 -1"/></body>
      </worldbody><sensor><rangefinder site="s"/></sensor></mujoco>"""
    m = io.put_model(load(text), dtype=torch.float64)
    angle = torch.tensor([[0.3], [0.0], [1.2]], dtype=torch.float64, requires_grad=True)
    d = forward.forward(m, replace(make_data(m, 3), qpos=angle))
    (slope,) = torch.autograd.grad(d.sensordata.sum(), angle)
    torch.testing.assert_close(slope, 2 * angle.sin() / angle.cos() ** 2)


def test_rays_of_a_simulator_equal_mj_ray():
    sim = alloy.build(CROWD, worlds=3, dtype=torch.float64)
    rng = np.random.default_rng(0)
    sim.qpos = sim.qpos + 0.2 * torch.tensor(rng.normal(size=(3, sim.qpos.shape[1])))
    pnt, vec = rng.uniform((-1, -1, 0), (1, 1, 2), (2, 3, 30, 3))
    vec[..., 2] -= 1.5
    mjd = mujoco.MjData(sim.mj_model)
    for exclude, body in ((None, -1), ("a", sim.mj_model.body("a").id)):
        ours = sim.ray(pnt, torch.tensor(vec), exclude)
        for w in range(3):
            mjd.qpos[:] = sim.qpos[w]
            mujoco.mj_kinematics(sim.mj_model, mjd)
            args = (None, 1, body, np.zeros(1, np.int32), None)
            theirs = [
                mujoco.mj_ray(sim.mj_model, mjd, p, v, *args)
                for p, v in zip(pnt[w], vec[w], strict=True)
            ]
            np.testing.assert_allclose(ours[w], theirs, atol=1e-9)
        assert 5 < (ours < 0).sum() < 60
    assert torch.equal(sim.ray(pnt[1], vec[1])[1], sim.ray(pnt, vec)[1])


def test_rays_on_a_mesh_of_several_blocks_equal_mj_ray():
    mj = load("""<mujoco><asset><mesh name="m" builtin="sphere" params="3" scale="1 .6 .4"/></asset>
      <worldbody><geom type="mesh" mesh="m" euler="10 20 30"/></worldbody></mujoco>""")
    assert mj.mesh_facenum[0] > 1000
    rng, mjd, sim = (
        np.random.default_rng(0),
        mujoco.MjData(mj),
        alloy.build(mj, dtype=torch.float64),
    )
    pnt = rng.uniform(-1.5, 1.5, (50, 3))
    vec = 0.3 * rng.normal(size=(50, 3)) - pnt
    mujoco.mj_kinematics(mj, mjd)
    args = (None, 1, -1, np.zeros(1, np.int32), None)
    theirs = [mujoco.mj_ray(mj, mjd, p, v, *args) for p, v in zip(pnt, vec, strict=True)]
    np.testing.assert_allclose(sim.ray(pnt, vec)[0], theirs, atol=1e-9)
    assert 20 < (np.array(theirs) > 0).sum() < 50


def test_rays_over_a_large_height_field_equal_mj_ray():
    """Steep, flat and level rays, along the grid and across it, from above, inside and outside."""
    rng = np.random.default_rng(3)
    text = """<mujoco><asset><hfield name="h" nrow="23" ncol="41" size="2 1 .5 .1"/></asset>
      <worldbody><geom type="hfield" hfield="h" euler="0 0 30" pos=".1 0 0"/>
      <body><joint/><geom size=".01" contype="0" conaffinity="0" pos="9 9 9"/></body></worldbody>
      </mujoco>"""
    mj = load(text)
    mj.hfield_data[:] = rng.uniform(size=23 * 41)
    sim = alloy.build(mj, dtype=torch.float64)
    pnt = rng.uniform((-2.5, -1.5, -0.3), (2.5, 1.5, 1), (400, 3))
    vec = rng.normal(size=(400, 3)) * rng.choice([0.02, 1], (400, 1))
    vec[:60] *= [1, 1, 0.1]
    vec[60:120] = [0, 0, -1]
    vec[120:160, :2] = np.array([[3**0.5, 1], [-1, 3**0.5]])[rng.integers(2, size=40)]  # the grid's
    vec[160:180, 2] = 0
    mjd = mujoco.MjData(mj)
    mujoco.mj_kinematics(mj, mjd)
    args = (None, 1, -1, np.zeros(1, np.int32), None)
    theirs = [mujoco.mj_ray(mj, mjd, p, v, *args) for p, v in zip(pnt, vec, strict=True)]
    np.testing.assert_allclose(sim.ray(pnt, vec)[0], theirs, atol=1e-9, rtol=1e-9)
    assert 80 < (np.array(theirs) < 0).sum() < 320


def test_rays_of_other_shapes_are_refused():
    sim = alloy.build(CROWD, 2)
    for pnt, vec in ((2, 3), (2, 2)), ((3,), (3,)), ((3, 5, 3), (3, 5, 3)), ((4, 3), (5, 3)):
        with pytest.raises(ValueError, match=r"expected \[2, N, 3\] or \[N, 3\] twice; received"):
            sim.ray(torch.zeros(pnt), torch.zeros(vec))
    with pytest.raises(alloy.names.UnknownName, match="'arms'"):
        sim.ray(torch.zeros(1, 3), torch.ones(1, 3), exclude="arms")
