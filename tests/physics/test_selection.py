"""Models with a bound on contacts: the nearest ones are solved for, the others counted."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

import alloy
from alloy.health import SimulationError
from alloy.physics import forward, io
from alloy.physics.model import make_data

KINDS = ("sphere", "box", "capsule", "cylinder")


def scene(cone="pyramidal", rest=""):
    """Two dozen bodies of all condims on a plane, an arm with limits, friction loss, a connect."""
    rng = np.random.default_rng(0)
    bodies = []
    for k in range(12):
        x, y, z = 0.2 * (k % 4), 0.2 * (k // 4), rng.uniform(0.03, 0.08)
        bodies.append(
            f'<body pos="{x} {y} {z}" euler="{rng.integers(90)} 0 20"><freejoint/>'
            f'<geom type="{KINDS[k % 4]}" size=".05 .05 .05" condim="{(1, 3, 4, 6)[k // 3]}"/>'
            f'<site name="s{k}" size=".2"/></body>'
        )
    return f"""<mujoco><option cone="{cone}"/><worldbody>
      <geom type="plane" size="3 3 1" condim="1"/>
      <body name="arm" pos="-.5 0 .1"><joint name="h" axis="0 1 0" range="-10 10" limited="true"
        frictionloss=".1"/><geom type="capsule" size=".03 .2" condim="3"/>
        <site name="arm" size=".3"/></body>{"".join(bodies)}</worldbody>
      <sensor><touch site="s0"/><touch site="s7"/><touch site="arm"/><jointlimitfrc joint="h"/>
        <jointlimitvel joint="h"/><jointlimitpos joint="h"/></sensor>{rest}</mujoco>"""


def states(mj, n=12):
    d = mujoco.MjData(mj)
    rng, qpos, qvel = np.random.default_rng(1), [], []
    for _ in range(n):
        mujoco.mj_resetData(mj, d)
        d.qvel[:] = rng.normal(size=mj.nv) * 0.3
        for _ in range(rng.integers(1, 60)):
            mujoco.mj_step(mj, d)
        qpos.append(d.qpos.copy())
        qvel.append(d.qvel.copy())
    return {"qpos": torch.tensor(np.array(qpos)), "qvel": torch.tensor(np.array(qvel))}


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_with_room_enough_nothing_changes(cone):
    mj = mujoco.MjModel.from_xml_string(scene(cone))
    mj.opt.tolerance, mj.opt.iterations = 0, 50
    state = states(mj)
    found = []
    for most in (None, 16):
        m = io.put_model(mj, dtype=torch.float64, max_contacts=most)
        d = forward.forward(m, replace(make_data(m, 12), **state))
        found.append((m, forward.forces(m, d), forward.step(m, replace(make_data(m, 12), **state))))
    (m, full, after), (few_m, few, few_after) = found
    assert few_m.selection is not None and few_m.selection.nefc < 0.5 * m.nefc
    touching = (full.contact_dist < m.con_margin).sum(-1)
    assert touching.min() > 8
    assert not few.contact_dropped.any()
    for name in ("qacc", "efc_force", "efc_active", "sensordata", "cfrc_ext", "contact_dist"):
        ours, theirs = (getattr(x, name).double() for x in (few, full))
        assert (ours - theirs).abs().max() < 1e-9 * (1 + theirs.abs().max()), name
    torch.testing.assert_close(few_after.qpos, after.qpos, atol=1e-9, rtol=0)


def test_the_nearest_are_kept_and_the_others_counted():
    mj = mujoco.MjModel.from_xml_string(scene())
    state = states(mj)
    m = io.put_model(mj, dtype=torch.float64, max_contacts=3)
    d = forward.forward(m, replace(make_data(m, 12), **state))
    dims = torch.tensor(m.derived["contact"].dim)
    gap = d.contact_dist - m.con_margin
    for world in range(12):
        dropped = 0
        for dim in (1, 3, 4, 6):
            slots = (dims == dim).nonzero()[:, 0]
            chosen = [s for s in d.contact_chosen[world].tolist() if dims[s] == dim]
            assert len(chosen) == min(3, len(slots))
            assert gap[world, chosen].max() <= gap[world, slots].sort().values[2]
            dropped += max(0, int((gap[world, slots] < 0).sum()) - 3)
        assert int(d.contact_dropped[world]) == dropped
    assert d.contact_dropped.any()


def test_a_world_does_not_depend_on_its_neighbours():
    mj = mujoco.MjModel.from_xml_string(scene())
    state = states(mj)
    m = io.put_model(mj, dtype=torch.float64, max_contacts=4)
    every = forward.step(m, replace(make_data(m, 12), **state)).qpos
    alone = forward.step(m, replace(make_data(m, 1), **{n: x[5:6] for n, x in state.items()})).qpos
    assert torch.equal(every[5], alone[0])


def test_a_simulator_counts_suggests_and_is_strict():
    sim = alloy.build(scene(), worlds=3, max_contacts=1)
    sim.step(substeps=20)
    assert (sim.health().dropped_contacts > 0).all()
    before = sim.qpos.clone()
    need = sim.suggest_capacity(steps=5)
    assert torch.equal(sim.qpos, before)
    assert 3 <= need <= 60
    room = alloy.build(scene(), worlds=3, max_contacts=need, strict=True)
    room.step(substeps=20)
    assert not room.health().dropped_contacts.any()
    strict = alloy.build(scene(), worlds=3, max_contacts=1, strict=True)
    with pytest.raises(SimulationError, match="raise max_contacts"):
        strict.step(substeps=20)


def test_bounds_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="max_contacts must be a whole number of at least 1"):
        alloy.build(scene(), max_contacts=0)
    noslip = scene().replace('cone="pyramidal"', 'cone="pyramidal" noslip_iterations="3"')
    with pytest.raises(NotImplementedError, match="max_contacts=2 with option noslip_iterations=3"):
        alloy.build(noslip, max_contacts=2)
    # more than there are is no bound
    assert alloy.build(scene(), max_contacts=10_000).model.selection is None


def test_an_environment_reports_what_was_left_out():
    env = alloy.envs.make("Ant-v5", num_envs=3, max_contacts=1, engine="reference")
    env.reset(seed=0)
    dropped = torch.zeros(3, dtype=torch.int64)
    for _ in range(15):
        *_, info = env.step(torch.zeros(3, 8))
        dropped += info["dropped_contacts"]
    assert (dropped > 0).all()
    assert "dropped_contacts" not in alloy.envs.make("Ant-v5", engine="reference").reset()[1]
