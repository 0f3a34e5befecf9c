"""A scene's randomizations, drawn anew for every episode of every world."""

import torch

import alloy
from alloy.envs import Task, VectorEnv
from tests.envs import toy


def scene():
    s = alloy.Scene.from_mjcf(toy.CART)
    s.randomize("cart", "mass", 0.5, 2.0)
    s.randomize("world", "gravity", -11.0, -9.0)
    return s


def mass(sim):
    return sim.body("cart").mass


def env(worlds=4, **options):
    task = Task(obs=["cart", mass], max_steps=3)
    return VectorEnv(scene(), task, worlds, engine="reference", **options)


def masses(e, seed, episodes=3):
    """The mass of every world in its first episodes, [episodes, W]."""
    out = [e.reset(seed=seed)[0][:, 2]]
    for _ in range(1, episodes):
        for _ in range(3):
            obs = e.step(torch.zeros(e.num_envs, 1))[0]
        out.append(obs[:, 2])
    return torch.stack(out)


def test_every_world_and_episode_draws_its_own():
    drawn = masses(env(), 0)
    assert len(set(drawn.flatten().tolist())) == drawn.numel()
    assert drawn.min() >= 0.5
    assert drawn.max() <= 2.0


def test_draws_depend_on_seed_and_episode_alone():
    assert torch.equal(masses(env(), 3), masses(env(), 3))
    assert torch.equal(masses(env(), 3), masses(env(9), 3)[:, :4])
    assert torch.equal(masses(env(), 3)[:, 1:], masses(env(3), 4))
    assert not torch.equal(masses(env(), 3), masses(env(), 30))


def test_a_world_keeps_its_draw_until_its_own_reset():
    e = env(autoreset="disabled")
    before = e.reset(seed=0)[0][:, 2]
    mask = torch.tensor([False, True, False, False])
    after = e.reset(options={"reset_mask": mask})[0][:, 2]
    assert torch.equal(before != after, mask)
    for _ in range(3):
        obs = e.step(torch.zeros(4, 1))[0]
    assert torch.equal(obs[:, 2], after)


def test_the_drawn_mass_is_what_moves():
    e = env()
    e.reset(seed=0)
    m = e.sim.body("cart").mass
    obs = e.step(torch.full((4, 1), 0.5))[0]
    # force 10 N, damping 1, two implicit steps of 10 ms from rest
    v = torch.zeros(4)
    for _ in range(2):
        v = (m * v + 0.1) / (m + 0.01)
    torch.testing.assert_close(obs[:, 1], v)


def test_state_of_the_simulator_brings_the_draw_back():
    e = env()
    e.reset(seed=0)
    saved, then = e.sim.state(), e.sim.body("cart").mass
    e.reset(seed=50)
    assert not torch.equal(e.sim.body("cart").mass, then)
    e.sim.load_state(saved)
    assert torch.equal(e.sim.body("cart").mass, then)
    assert torch.equal(e.step(torch.zeros(4, 1))[0][:, 2], then)
