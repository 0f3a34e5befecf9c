"""Contacts of height fields, through a whole model, against MuJoCo's, and what has no slot."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch

import alloy
from alloy.health import SimulationError
from alloy.physics import io
from tests.physics.test_meshes import MESHES, contacts, geom, same

STONE = " ".join(f"{x:.6f}" for x in np.ravel(MESHES["stone"]))


def field(elevation, shapes, size="1 .8 .2 .1", more="", option=""):
    rows, columns = elevation.shape
    heights = " ".join(f"{x:.6f}" for x in elevation.ravel())
    return f"""<mujoco>{option}<asset><mesh name="stone" vertex="{STONE}"/>
      <hfield name="h" nrow="{rows}" ncol="{columns}" size="{size}" elevation="{heights}"/></asset>
      <worldbody><geom name="ground" type="hfield" hfield="h" {more}/>{shapes}</worldbody>
      </mujoco>"""


def model(shape, margin, rows=10, columns=12):
    elevation = np.random.default_rng(0).uniform(0, 1, (rows, columns))
    body = f'<body><freejoint/><geom name="b" {geom(shape)} mass="1"/></body>'
    more = f'margin="{margin}" euler="3 4 30" pos=".1 0 .05"'
    mj = mujoco.MjModel.from_xml_string(field(elevation, body, more=more))
    mj.opt.ccd_tolerance, mj.opt.ccd_iterations = 1e-12, 1000
    return mj


def poses(n, seed=1):
    rng = np.random.default_rng(seed)
    quat = rng.normal(size=(n, 4))
    quat /= np.linalg.norm(quat, axis=1, keepdims=True)
    place = rng.uniform((-0.9, -0.9, -0.05), (0.9, 0.9, 0.35), (n, 3))
    return np.concatenate([place, quat], 1)


def above_ground(mj, qpos):
    """Those whose centre is above the surface: others are pushed upwards, which MuJoCo does not."""
    mjd, geomid, kept = mujoco.MjData(mj), np.zeros(1, np.int32), []
    for q in qpos:
        mjd.qpos[:] = q
        mujoco.mj_kinematics(mj, mjd)
        down = -mjd.geom_xmat[0].reshape(3, 3)[:, 2]
        high = np.array(mjd.geom_xpos[1]) - down
        hit = mujoco.mj_ray(mj, mjd, high, down, None, 1, int(mj.geom_bodyid[1]), geomid)
        if hit < 0 or hit > 1:
            kept.append(q)
    return np.array(kept)


# without a margin MuJoCo's search ends early between a prism and a shape of corners: its corners
# have no numbers there by which it could tell that it comes by one again
@pytest.mark.parametrize(
    ("shape", "margin"),
    [
        ("sphere", 0), ("sphere", 0.02), ("capsule", 0), ("ellipsoid", 0), ("cylinder", 0),
        ("cylinder", 0.01), ("box", 1e-6), ("box", 0.02), ("stone", 1e-6),
    ],
)  # fmt: skip
def test_contacts_are_mujocos(shape, margin):
    mj = model(shape, margin)
    qpos = above_ground(mj, poses(160))[:80]
    ours, theirs = contacts(mj, qpos)
    assert max(len(t) for t in theirs) > 4 and not all(len(t) for t in theirs)
    few = [k for k in range(len(qpos)) if len(theirs[k]) <= 12]
    assert len(few) > 50
    # MuJoCo's direction on something curved is that of a search for the distance
    tol = 5e-5 if shape in ("cylinder", "ellipsoid") else 1e-5
    assert [k for k in few if not same(ours[k], theirs[k], tol)] == []


def test_float32_is_close():
    qpos = poses(60)
    exact, _ = contacts(model("sphere", 0), qpos)
    ours, _ = contacts(model("sphere", 0), qpos, torch.float32)
    assert sum(not same(a, b, 2e-4) for a, b in zip(ours, exact, strict=True)) <= 2


def test_spheres_that_fall_from_different_heights_rest_on_a_flat_field():
    ball = '<body pos="0 0 .3"><freejoint/><geom size=".02" mass=".1"/></body>'
    option = '<option timestep=".001"/>'
    text = field(np.full((10, 10), 0.7), ball, "1 1 .1 .1", option=option)
    sim = alloy.build(text, worlds=2, engine="reference", dtype=torch.float64)
    qpos = sim.qpos.clone()
    qpos[1, 2] = 0.5
    sim.qpos = qpos
    for _ in range(20):
        sim.step(substeps=40)
    assert (sim.qpos[:, 2] - 0.02).abs().max() < 1e-3
    assert sim.qvel.abs().max() < 1e-2
    assert not sim.health().dropped_contacts.any()


def wide_foot(**kw):
    foot = '<body pos="0 0 .049"><freejoint/><geom type="box" size=".2 .3 .05" mass="1"/></body>'
    text = field(np.zeros((41, 41)), foot, "1 1 .1 .1", option='<option timestep=".005"/>')
    return alloy.build(text, worlds=2, engine="reference", dtype=torch.float64, **kw)


def test_a_foot_over_hundreds_of_prisms_stands_level_and_says_what_is_left_out():
    sim = wide_foot()
    for _ in range(15):
        sim.step()
    assert (sim.qpos[:, 2] - 0.05).abs().max() < 1e-3
    assert (sim.qpos[:, 3].abs() > 1 - 1e-6).all()
    assert (sim.health().dropped_contacts > 100).all()
    sim.reset(torch.tensor([True, False]))
    assert sim.health().dropped_contacts[0] == 0
    assert sim.health().dropped_contacts[1] > 100


def test_where_slots_run_out_all_are_filled_and_the_outermost_and_deepest_have_one():
    sim = wide_foot()
    sim.qpos = sim.qpos + torch.tensor([0, 0, 0, 0, 0.02, 0.01, 0])  # one corner is deeper
    sim.forward()
    found = sim.data.contact_dist[0] < 0
    assert found.sum() == 12
    corners = sim.data.contact_pos[0, found][:, :2].abs()
    assert (corners.amax(0) > torch.tensor([0.19, 0.29])).all()
    every = deepest_of_all(sim)
    assert sim.data.contact_dist[0].min() == pytest.approx(every, abs=1e-9)


def deepest_of_all(sim: alloy.Simulation) -> float:
    """Lowest corner of the foot below the flat field at z = 0."""
    turn = sim.data.xmat[0, -1]
    corners = torch.cartesian_prod(
        *(torch.tensor([-s, s], dtype=turn.dtype) for s in (0.2, 0.3, 0.05))
    )
    return float((sim.qpos[0, :3] + corners @ turn.T)[:, 2].min())


def test_strict_raises_where_contacts_found_no_slot():
    sim = wide_foot(strict=True)
    with pytest.raises(SimulationError, match=r"worlds \[0, 1\] \(2 of 2\) there are more"):
        sim.step()


def test_a_shape_over_too_many_cells_is_refused_by_name():
    big = '<body pos="0 0 1"><freejoint/><geom name="moon" size=".9" mass="1"/></body>'
    mj = mujoco.MjModel.from_xml_string(field(np.zeros((100, 100)), big))
    with pytest.raises(NotImplementedError, match=r"prisms are under geom 'moon', at most 4096"):
        io.put_model(mj)


def test_the_lanes_engine_falls_back_and_says_so():
    ball = '<body pos="0 0 .3"><freejoint/><geom size=".02" mass=".1"/></body>'
    sim = alloy.build(field(np.zeros((4, 4)), ball), worlds=2, engine="lanes")
    sim.step(substeps=2)
    (said,) = sim.engine_report()["not compiled"]
    assert "the 2 substeps runs on the reference engine" in said and "1 hfield-sphere" in said
