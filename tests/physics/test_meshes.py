"""Contacts of meshes, through a whole model, against MuJoCo's."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

import alloy
from alloy.physics import collision, forward, io
from alloy.physics.model import make_data
from tests.ops.oracle import turn

N = 60


def ball(count, seed):
    points = np.random.default_rng(seed).normal(size=(count, 3))
    return points / np.linalg.norm(points, axis=1, keepdims=True) * (0.1, 0.08, 0.06)


def prism(sides, radius=0.1):
    angles = 2 * np.pi * np.arange(sides) / sides
    return [(radius * np.cos(a), radius * np.sin(a), z) for a in angles for z in (-0.1, 0.1)]


CUBE = [(x, y, z) for x in (-0.1, 0.1) for y in (-0.08, 0.08) for z in (-0.05, 0.05)]
MESHES = {
    "cube": CUBE,
    "hexa": prism(6),
    "rod": prism(32, 0.08),
    "tetra": [(0.1, 0, -0.05), (-0.1, 0.1, -0.05), (-0.1, -0.1, -0.05), (0, 0, 0.1)],
    "stone": ball(20, 0),
    "pebble": ball(400, 1),  # a few degrees between its faces
    # two corners of the hull that MuJoCo gives no face: they are in one, up to its rounding
    "bump": [*CUBE, (0.02, 0.03, 0.05001), (-0.03, -0.02, -0.05001)],
}
SHAPES = {
    "plane": 'type="plane" size="2 2 .1"', "sphere": 'type="sphere" size=".06"',
    "capsule": 'type="capsule" size=".04 .08"', "ellipsoid": 'type="ellipsoid" size=".05 .08 .1"',
    "cylinder": 'type="cylinder" size=".07 .08"', "box": 'type="box" size=".05 .07 .09"',
}  # fmt: skip
PAIRS = [
    ("plane", "cube"), ("plane", "hexa"), ("plane", "rod"), ("plane", "stone"), ("sphere", "cube"),
    ("sphere", "stone"), ("capsule", "cube"), ("capsule", "stone"), ("ellipsoid", "hexa"),
    ("ellipsoid", "stone"), ("cylinder", "cube"), ("cylinder", "stone"), ("box", "cube"),
    ("box", "hexa"), ("box", "stone"), ("cube", "cube"), ("cube", "hexa"), ("tetra", "tetra"),
    ("stone", "stone"), ("rod", "rod"), ("box", "pebble"), ("stone", "pebble"),
    ("pebble", "pebble"), ("plane", "bump"), ("capsule", "bump"), ("box", "bump"),
    ("cube", "bump"),
]  # fmt: skip


def geom(name):
    return SHAPES.get(name) or f'type="mesh" mesh="{name}"'


def model(one, two, margin=0.0):
    assets = "".join(
        f'<mesh name="{n}" vertex="{" ".join(f"{x:.6f}" for x in np.ravel(v))}"/>'
        for n, v in MESHES.items()
    )
    mj = mujoco.MjModel.from_xml_string(
        f'<mujoco><asset>{assets}</asset><worldbody><geom name="a" {geom(one)} margin="{margin}"/>'
        f'<body><freejoint/><geom name="b" {geom(two)} mass="1"/></body></worldbody></mujoco>'
    )
    mj.opt.ccd_tolerance, mj.opt.ccd_iterations = 1e-12, 1000
    return mj


def poses(one, rng, level):
    """Positions and quaternions (N, 7): any, or a few degrees off those of the axes."""
    out = np.zeros((N, 7))
    for row in out:
        if level:
            row[:3] = rng.normal(size=3) * 0.03
            row[rng.integers(3)] += rng.uniform(0.05, 0.2)
            row[3:] = turn(rng.normal(size=3), rng.uniform(0, 0.1))
        else:
            quat = rng.normal(size=4)
            row[:3], row[3:] = rng.normal(size=3) * 0.08, quat / np.linalg.norm(quat)
        if one == "plane":
            row[2] = rng.uniform(-0.02, 0.12)
    return out


def contacts(mj, qpos, dtype=torch.float64):
    """Ours and MuJoCo's contacts of each pose: rows of distance, point and normal."""
    m = io.put_model(mj, dtype=dtype)
    d = replace(make_data(m, len(qpos)), qpos=torch.tensor(qpos, dtype=dtype))
    d = collision.collision(m, forward.kinematics(m, d))
    rows = torch.cat([d.contact_dist[..., None], d.contact_pos, d.contact_frame[..., 0, :]], -1)
    ours = [r[r[:, 0] <= m.con_margin[0, 0]].double().numpy() for r in rows]
    theirs, mjd = [], mujoco.MjData(mj)
    for q in qpos:
        mjd.qpos[:] = q
        mujoco.mj_kinematics(mj, mjd)
        mujoco.mj_collision(mj, mjd)
        found = [[c.dist, *c.pos, *c.frame[:3]] for c in mjd.contact]
        theirs.append(np.array(found).reshape(-1, 7))
    return ours, theirs


def same(a, b, tol):
    if len(a) != len(b) or not len(a):
        return len(a) == len(b)
    gap = np.abs(a[:, None] - b[None]).max(-1)
    return gap.min(0).max() < tol and gap.min(1).max() < tol


@pytest.mark.parametrize(("one", "two"), PAIRS)
@pytest.mark.parametrize("level", [False, True])
def test_contacts_are_mujocos(one, two, level):
    rng = np.random.default_rng(7)
    ours, theirs = contacts(model(one, two, 0.02 * level), poses(one, rng, level))
    wrong = [k for k in range(N) if not same(ours[k], theirs[k], 1e-5)]
    assert sum(len(t) for t in theirs) > 20
    # of four corners of a cap that span the same area others may be taken, and the search may end
    # in another triangle of a face
    allowed = 0.1 if one == "cylinder" else 0.02
    assert len(wrong) <= allowed * N
    for k in wrong:
        assert len(ours[k]) and len(theirs[k])


@pytest.mark.parametrize(("one", "two"), [("plane", "cube"), ("box", "hexa"), ("stone", "stone")])
def test_float32_is_close(one, two):
    qpos = poses(one, np.random.default_rng(8), False)
    exact, _ = contacts(model(one, two), qpos)
    ours, _ = contacts(model(one, two), qpos, torch.float32)
    assert sum(not same(a, b, 2e-4) for a, b in zip(ours, exact, strict=True)) <= 2


def test_tables_grow_with_the_meshes_and_not_with_their_pairs():
    vertices = {n: " ".join(f"{x:.6f}" for x in np.ravel(MESHES[n])) for n in ("cube", "pebble")}
    assets = "".join(f'<mesh name="{n}" vertex="{v}"/>' for n, v in vertices.items())
    bodies = "".join(
        f'<body pos="{k} 0 0"><freejoint/><geom type="mesh" mesh="{n}"/></body>'
        for k, n in enumerate(["cube", "pebble"] * 6)
    )
    mj = mujoco.MjModel.from_xml_string(
        f"<mujoco><asset>{assets}</asset><worldbody>{bodies}</worldbody></mujoco>"
    )
    (group,) = io.put_model(mj).pairs
    assert len(group.geom1) == 66
    for shape in group.shapes:
        assert len(shape.corners) == len(shape.around) == 2
        assert len(shape.row) == 66


@pytest.mark.parametrize(("one", "z"), [("plane", 0.04), ("box", 0.1)])
def test_a_corner_without_a_face_touches_alone(one, z):
    qpos = np.array([[0.01, 0.02, z, *turn((0.2, 0.4, 1), 1e-6)]])
    ours, theirs = contacts(model(one, "bump"), qpos)
    assert len(ours[0]) == 1
    assert same(ours[0], theirs[0], 1e-8)


def test_pairs_of_different_meshes_share_a_group_and_stay_themselves():
    assets = "".join(
        f'<mesh name="{n}" vertex="{" ".join(f"{x:.6f}" for x in np.ravel(v))}"/>'
        for n, v in MESHES.items()
    )
    bodies = "".join(
        f'<body pos="{0.5 * k} 0 .05" euler="{3 + k} {k - 4} 11"><freejoint/>'
        f'<geom type="mesh" mesh="{n}"/></body>'
        for k, n in enumerate(MESHES)
    )
    mj = mujoco.MjModel.from_xml_string(
        f'<mujoco><asset>{assets}</asset><worldbody><geom type="plane" size="9 9 1"/>'
        f'<geom type="box" size="5 5 .01" pos="0 0 -.01"/>{bodies}</worldbody></mujoco>'
    )
    mj.opt.ccd_tolerance, mj.opt.ccd_iterations = 1e-12, 1000
    ours, theirs = contacts(mj, mj.qpos0[None])
    assert len(theirs[0]) > 15
    assert same(ours[0], theirs[0], 1e-6)


def test_what_lanes_compiles_of_meshes_and_what_not():
    on_floor, on_mesh = model("plane", "stone"), model("cube", "stone")
    qpos = torch.tensor(poses("plane", np.random.default_rng(9), True), dtype=torch.float32)
    sims = [alloy.build(on_floor, worlds=N, engine=e) for e in ("lanes", "reference")]
    for sim in sims:
        sim.qpos = qpos
        sim.step(substeps=2)
    assert not sims[0].engine_report().get("not compiled")
    torch.testing.assert_close(sims[0].qpos, sims[1].qpos, atol=1e-4, rtol=0)
    torch.testing.assert_close(sims[0].qvel, sims[1].qvel, atol=1e-2, rtol=1e-3)

    sim = alloy.build(on_mesh, worlds=2, engine="lanes")
    sim.step()
    (said,) = sim.engine_report()["not compiled"]
    assert "pairs: 1 mesh-mesh" in said


def test_a_mesh_comes_to_rest_on_a_mesh():
    scene = alloy.Scene.from_mjcf(
        """<mujoco><option timestep=".005"/>
           <asset><mesh name="cube" vertex="-.1 -.1 -.05 -.1 -.1 .05 -.1 .1 -.05 -.1 .1 .05
             .1 -.1 -.05 .1 -.1 .05 .1 .1 -.05 .1 .1 .05"/></asset>
           <worldbody><geom type="mesh" mesh="cube" pos="0 0 .05"/>
             <body pos=".02 .01 .17" euler="3 2 20"><freejoint/>
               <geom type="mesh" mesh="cube" mass="1"/></body></worldbody></mujoco>"""
    )
    sim = alloy.build(scene, worlds=2, engine="reference", dtype=torch.float64)
    for _ in range(250):
        sim.step()
    assert torch.allclose(sim.qpos[:, 2], torch.full((2,), 0.15, dtype=torch.float64), atol=1e-3)
    assert sim.qvel.abs().max() < 1e-3
