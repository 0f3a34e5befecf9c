"""Rows and collisions for what is in use only: the same as with all of them, world by world."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import pytest
import torch

from alloy.ops.reference import contacts as reference_contacts
from alloy.physics import collision, forward, io, io_randomize, io_selection, occupancy
from alloy.physics.model import make_data
from alloy.physics.randomize import apply, draw_count
from alloy.scene import Scene
from alloy.scene_targets import targets
from tests.physics.test_selection import scene, states

WORLDS = 6
KEPT = ("sensordata", "cfrc_ext", "efc_force", "efc_active", "contact_dist", "qacc")


def crowd(cone="pyramidal", **option):
    """The scene of test_selection, its arm not in balance: forces of 1e18 N would be rounding."""
    option = " ".join(f'{name}="{value}"' for name, value in option.items())
    text = scene(cone).replace("<option", f"<option {option}")
    return text.replace('size=".03 .2" condim="3"', 'size=".03 .2" pos=".1 0 0" condim="3"')


def models(text, monkeypatch, rungs=(2, 3, 5), **kw):
    """The model with a ladder of these rungs, and without."""
    monkeypatch.setattr(io_selection, "RUNGS", rungs)
    mj = mujoco.MjModel.from_xml_string(text)
    mj.opt.tolerance, mj.opt.iterations = 1e-15, 30
    m = io.put_model(mj, dtype=torch.float64, **kw)
    return mj, m, replace(m, derived=m.derived | {"ladder": ()})


def rungs_of(m, state):
    d = collision.collision(m, forward.kinematics(m, replace(make_data(m, WORLDS), **state)))
    return occupancy._rungs(m, d, m.derived["ladder"])


@pytest.mark.parametrize(
    ("cone", "integrator"),
    [
        ("pyramidal", "Euler"),
        ("elliptic", "Euler"),
        ("pyramidal", "implicit"),
        ("pyramidal", "RK4"),
    ],
)
def test_a_step_is_that_of_all_rows(cone, integrator, monkeypatch):
    mj, m, full = models(crowd(cone, integrator=integrator), monkeypatch)
    assert [s.groups[1][1] for s in m.derived["ladder"]] == [2, 3, 5]
    state = states(mj, WORLDS)
    assert len(set(rungs_of(m, state).tolist())) > 2, "worlds on several rungs"
    ours, all_ = (forward.step(x, replace(make_data(x, WORLDS), **state), keep=KEPT)
                  for x in (m, full))  # fmt: skip
    assert all_.efc_J is not None and ours.efc_J is None
    assert (ours.efc_force != 0).any()
    for name in ("qpos", "qvel", *KEPT):
        one, two = (getattr(x, name).double() for x in (ours, all_))
        assert (one - two).abs().max() < 1e-9 * (1 + two.abs().max()), name


def test_a_world_does_not_depend_on_its_neighbours(monkeypatch):
    mj, m, _ = models(crowd(), monkeypatch)
    state = states(mj, WORLDS)
    every = forward.step(m, replace(make_data(m, WORLDS), **state))
    for w in range(WORLDS):  # beside others, that need other numbers of rows
        alike = {name: x[w].expand_as(x) for name, x in state.items()}
        beside = forward.step(m, replace(make_data(m, WORLDS), **alike))
        assert torch.equal(beside.qpos[w], every.qpos[w])
        assert torch.equal(beside.qvel[w], every.qvel[w])


def test_more_contacts_than_the_ladder_reaches_have_all_rows(monkeypatch):
    mj, m, full = models(crowd(), monkeypatch, rungs=(1,))
    state = states(mj, WORLDS)
    assert (rungs_of(m, state) == 1).all()
    one, two = (forward.step(x, replace(make_data(x, WORLDS), **state)) for x in (m, full))
    assert torch.equal(one.qvel, two.qvel)


def test_drawn_models_keep_each_worlds_own(monkeypatch):
    monkeypatch.setattr(io_selection, "RUNGS", (2, 3, 5))
    drawn = Scene.from_mjcf(crowd())
    drawn.randomize("arm", "mass", 0.5, 2.0, "scale")
    drawn.randomize("*", "friction", 0.1, 2.0)
    mj = drawn.compile()
    found = targets(mj, drawn.randomizations)
    nominal = io_randomize.put_model(mj, found, dtype=torch.float64)
    draws = torch.rand(WORLDS, draw_count(found), generator=torch.Generator().manual_seed(0))
    m = apply(nominal, found, draws)
    full = replace(m, derived=m.derived | {"ladder": ()})
    state = states(mj, WORLDS)
    assert len(set(rungs_of(m, state).tolist())) > 1 and len(m.con_friction) == WORLDS
    one, two = (forward.step(x, replace(make_data(x, WORLDS), **state)) for x in (m, full))
    assert (one.qvel - two.qvel).abs().max() < 1e-6  # both solvers stop at their tolerance


def test_rows_that_are_to_be_kept_are_all_there(monkeypatch):
    mj, m, _ = models(crowd(), monkeypatch)
    d = forward.step(m, replace(make_data(m, WORLDS), **states(mj, WORLDS)), keep=("efc_D",))
    assert d.efc_D.shape == (WORLDS, m.nefc)


def test_gradients_pass(monkeypatch):
    mj, m, full = models(crowd(), monkeypatch)
    state, slopes = states(mj, WORLDS), []
    for x in (m, full):
        qvel = state["qvel"].clone().requires_grad_()
        forward.step(
            x, replace(make_data(x, WORLDS), **state | {"qvel": qvel})
        ).qvel.sum().backward()
        slopes.append(qvel.grad)
    assert (slopes[0] - slopes[1]).abs().max() < 1e-6 * slopes[1].abs().max()


def test_small_models_and_noslip_have_no_ladder():
    small = "<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>"
    noslip = crowd(noslip_iterations=3)
    for text in (small, noslip):
        m = io.put_model(mujoco.MjModel.from_xml_string(text))
        assert m.derived["ladder"] == ()


def test_only_the_cpu_looks_which_pairs_are_near(monkeypatch):
    """A step that does cannot be recorded as a CUDA graph; no such device is needed to tell."""
    monkeypatch.setattr(reference_contacts, "MANY", 1)
    m = io.put_model(mujoco.MjModel.from_xml_string(crowd()))
    d = forward.kinematics(m, make_data(m, 2))
    group = next(g for g in m.pairs if g.kind == (2, 3))  # spheres with capsules
    fields, sides = (d.geom_xpos, d.geom_xmat, m.geom_size), (group.geom1, group.geom2)
    geoms, margin = tuple(x[:, g] for g in sides for x in fields), m.derived["pair_margin"][2, 3]
    assert reference_contacts._near(m, group, geoms, margin) is not None
    elsewhere = tuple(x.to("meta") for x in geoms)
    assert reference_contacts._near(m, group, elsewhere, margin) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pairs_that_are_not_near_are_left_out_and_others_equal(dtype, monkeypatch):
    mj = mujoco.MjModel.from_xml_string(crowd())
    m = io.put_model(mj, dtype=dtype)
    state = {name: x.to(dtype) for name, x in states(mj, WORLDS).items()}
    found = []
    for many in (1, 10**6):
        monkeypatch.setattr(reference_contacts, "MANY", many)
        found.append(
            forward.contacts(m, forward.kinematics(m, replace(make_data(m, WORLDS), **state)))
        )
    few, every = found
    touch = every.contact_dist < m.con_margin
    assert touch.any() and torch.equal(few.contact_dist < m.con_margin, touch)
    assert (few.contact_dist == 1e10).sum() > (every.contact_dist == 1e10).sum()
    for name in ("contact_dist", "contact_pos", "contact_frame"):
        assert torch.equal(getattr(few, name)[touch], getattr(every, name)[touch]), name
