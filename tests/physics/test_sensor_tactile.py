"""Tactile sensors against MuJoCo in float64."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

import alloy
from alloy.engines import LanesEngine, make_guard
from alloy.physics import forward, io
from alloy.physics.model import make_data
from tests.physics.fixture import load

PLATE = 'builtin="plate" params="9 7" scale=".04 .03 .005"'
SURFACES = {
    "plate": PLATE,
    "wedge": 'builtin="wedge" params="6 5 40 30 0" scale=".03 .03 .03"',
    "sphere": 'builtin="sphere" params="1" scale=".03 .03 .03"',  # one normal each: no speeds
    "corners": 'vertex="-.03 -.03 -.01 .03 -.03 -.01 0 .03 -.01 0 0 .02"',
}
OTHERS = {
    "sphere": 'type="sphere" size=".02"',
    "capsule": 'type="capsule" size=".012 .02"',
    "ellipsoid": 'type="ellipsoid" size=".02 .03 .025"',
    "cylinder": 'type="cylinder" size=".02 .03"',
    "box": 'type="box" size=".02 .03 .015"',
}
# the sensor's geom is on a body welded to the one that touches; a mesh is not felt
SCENE = """<mujoco><asset><mesh name="pad" {mesh}/>
  <mesh name="tent" vertex="-.02 -.02 -.02 .02 -.02 -.02 0 .02 -.02 0 0 .02"/></asset><worldbody>
  <geom type="plane" size="1 1 1" pos="0 0 -.01"/>
  <body name="hand" pos=".01 0 0"><freejoint/>
    <geom type="box" size=".04 .03 .005" margin=".002" gap=".002"/>
    <body pos="0 .01 0" euler="4 5 6"><geom size=".001" pos="9 0 0"/>
      <geom name="skin" type="mesh" mesh="pad" contype="0" conaffinity="0" mass="0"
        pos=".001 .002 .015" euler="3 2 1"/></body></body>
  {bodies}</worldbody><sensor><tactile name="t" geom="skin" mesh="pad"/>{more}</sensor></mujoco>"""
WORLDS = 24


def _body(geom, k):
    return (
        f'<body name="o{k}" pos="{0.02 * k - 0.03} {0.01 - 0.01 * k} .015"><freejoint/>'
        f"<geom {geom}/></body>"
    )


def _scene(mesh=PLATE, others=("sphere",), more=""):
    bodies = "".join(_body(OTHERS.get(other, other), k) for k, other in enumerate(others))
    return load(SCENE.format(mesh=mesh, bodies=bodies, more=more))


def _states(mj, worlds=WORLDS, seed=0):
    """All bodies moved about, so that most touch the hand, and turned."""
    rng = np.random.default_rng(seed)
    qpos = np.tile(mj.qpos0, (worlds, 1))
    qpos += np.where(np.arange(mj.nq) % 7 < 3, 0.006, 0.2) * rng.normal(size=qpos.shape)
    return torch.from_numpy(qpos), torch.from_numpy(rng.normal(size=(worlds, mj.nv)))


def _ours(mj, qpos, qvel, dtype=torch.float64):
    m = io.put_model(mj, dtype=dtype)
    state = {"qpos": qpos.to(dtype), "qvel": qvel.to(dtype)}
    return forward.forward(m, replace(make_data(m, len(qpos)), **state)).sensordata


def _theirs(mj, qpos, qvel):
    mjd, out = mujoco.MjData(mj), []
    for mjd.qpos[:], mjd.qvel[:] in zip(qpos, qvel, strict=True):
        mujoco.mj_forward(mj, mjd)
        out.append(mjd.sensordata.copy())
    return torch.from_numpy(np.array(out))


@pytest.mark.parametrize("surface", SURFACES)
def test_every_surface_equals_mujoco(surface):
    mj = _scene(SURFACES[surface], ("sphere", "capsule"), '<tactile geom="skin" mesh="tent"/>')
    state = _states(mj)
    ours, theirs = _ours(mj, *state), _theirs(mj, *state)
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-9)
    assert (theirs[:, : mj.mesh_vertnum[0]] > 0).any(0).sum() > 2
    speeds = theirs[:, mj.mesh_vertnum[0] : 3 * mj.mesh_vertnum[0]]
    assert bool(speeds.any()) == (surface in ("plate", "wedge"))


@pytest.mark.parametrize("other", OTHERS)
def test_every_shape_equals_mujoco(other):
    mj = _scene(others=(other, OTHERS[other]))
    state = _states(mj, 2 * WORLDS)
    ours, theirs = _ours(mj, *state), _theirs(mj, *state)
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-9)
    assert (theirs[:, :63] > 0).any(1).sum() > WORLDS // 2


def test_of_several_geoms_the_deepest_counts_and_speeds_add_up():
    mj = _scene(others=("sphere", "box", "sphere"))
    qpos, qvel = _states(mj)
    qpos[:, 7:].view(WORLDS, 3, 7)[:, :, :2] *= 0.3
    ours, theirs = _ours(mj, qpos, qvel), _theirs(mj, qpos, qvel)
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-9)
    alone = []
    for k in range(3):
        away = qpos.clone()
        for other in {0, 1, 2} - {k}:
            away[:, 9 + 7 * other] += 5
        alone.append(_ours(mj, away, qvel)[:, :63] > 0)
    assert (torch.stack(alone).sum(0) > 1).any()


def test_it_feels_while_there_is_a_contact_and_no_mesh():
    clipped = '<tactile geom="skin" mesh="pad" cutoff=".004"/>'
    mj = _scene(others=("sphere", 'type="mesh" mesh="tent"'), more=clipped)
    state = _states(mj)
    ours, theirs = _ours(mj, *state), _theirs(mj, *state)
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-9)
    assert theirs[:, 189:252].max() == 0.004
    # within the margin of the hand's box, above which the sensor's surface is
    qpos, qvel = (x[:1].clone() for x in state)
    qpos[0, 2:7] = torch.tensor([0.3, 1, 0, 0, 0])
    qpos[0, 7:14] = torch.tensor([0.01, 0, 0, 1, 0, 0, 0])
    for height, felt in ((0.328, True), (0.3295, False)):
        qpos[0, 9] = height
        ours = _ours(mj, qpos, qvel)
        torch.testing.assert_close(ours, _theirs(mj, qpos, qvel), atol=1e-10, rtol=0)
        assert bool((ours[0, :63] > 0).any()) is felt


def test_compiled_it_agrees_with_the_reference():
    mj = _scene('builtin="plate" params="4 3" scale=".04 .03 .005"', ("sphere", "capsule"))
    qpos, qvel = _states(mj)
    m = io.put_model(mj)
    engine = LanesEngine(m, "test")
    d = replace(make_data(m, WORLDS), qpos=qpos.float(), qvel=qvel.float())
    d, _ = engine.step(m, d, make_guard(WORLDS, "cpu"), 1, ("sensordata",))
    assert "not compiled" not in engine.report()
    theirs = _ours(mj, qpos, qvel)
    torch.testing.assert_close(d.sensordata.double(), theirs, atol=1e-4, rtol=1e-4)
    assert d.sensordata.any()


def test_too_many_taxels_to_compile_run_on_the_reference():
    mj = _scene('builtin="plate" params="40 40" scale=".04 .03 .005"', ("sphere", "box"))
    sim = alloy.build(mj, worlds=2, engine="lanes")
    sim.step()
    (said,) = sim.engine_report()["not compiled"]
    assert "lanes does not compile 4800 pairs" in said


def test_float32_and_gradients():
    mj = _scene()
    qpos, qvel = _states(mj)
    single = _ours(mj, qpos, qvel, torch.float32)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), _ours(mj, qpos, qvel), atol=1e-5, rtol=1e-4)
    (slope,) = torch.autograd.grad(_ours(mj, qpos.requires_grad_(), qvel)[:, :63].sum(), qpos)
    assert torch.isfinite(slope).all()
    up = torch.zeros_like(qpos)
    up[:, 9] = 1e-7
    with torch.no_grad():
        above, below = (_ours(mj, q, qvel)[:, :63].sum(1) for q in (qpos + up, qpos - up))
    torch.testing.assert_close(slope[:, 9], (above - below) / 2e-7, atol=1e-5, rtol=1e-5)
    assert (slope[:, 9].abs() > 0.5).sum() > WORLDS // 4


def test_what_it_cannot_measure_is_refused_by_name():
    hills = '<hfield name="h" nrow="2" ncol="2" size=".1 .1 .01 .01" elevation="0 0 0 1"/>'
    text = SCENE.format(mesh=PLATE, bodies="", more="").replace("<asset>", f"<asset>{hills}")
    plane = '<geom type="plane" size="1 1 1"'
    text = text.replace(plane, '<geom name="g" type="hfield" hfield="h"')
    with pytest.raises(NotImplementedError, match="'t' of type 'tactile': the depth in geom 'g'"):
        io.put_model(load(text))
    spec = mujoco.MjSpec.from_string(
        SCENE.format(mesh=PLATE, bodies=_body('name="g" type="mesh" mesh="tent"', 0), more="")
    )
    spec.mesh("tent").needsdf = True
    with pytest.raises(NotImplementedError, match="the depth in geom 'g', a mesh with an octree"):
        io.put_model(spec.compile())
