"""Go2Velocity-v0: what it shows, what it asks for, what it pays and when it counts as walked."""

import math

import pytest
import torch

import alloy
from alloy.envs.loco.task import BASE, FEET, ROBOT, go2_velocity_task
from alloy.envs.loco.terms import Commands, planar_velocity
from alloy.envs.robots_go2 import JOINTS, STANDING
from alloy.envs.vector_env import VectorEnv

PLAIN = {"randomize": False, "noise": 0.0, "push_speed": 0.0}
POSE = torch.tensor([STANDING[name] for name in JOINTS])


def make(worlds=2, **options):
    env = alloy.envs.make("Go2Velocity-v0", worlds, engine="reference", **{**PLAIN, **options})
    env.reset(seed=0)
    return env


def still(worlds):
    """Actions that ask for the standing pose."""
    env = make(1)
    low, high = env.program.actions.bounds
    middle = (POSE - 0.5 * (low + high)) / (0.5 * (high - low))
    return middle.expand(worlds, 12)


@pytest.fixture(scope="module")
def env():
    return make(3)


def test_observations_are_laid_out_as_said(env):
    obs, _ = env.reset(seed=1)
    for _ in range(3):
        obs, *_ = env.step(still(3) + 0.2)
    policy, critic, sim = obs["policy"], obs["critic"], env.sim
    assert policy.shape == (3, 45)
    assert critic.shape == (3, 57)
    mat = sim.body(BASE).mat
    spin = (mat.mT @ sim.body(BASE).angvel.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(policy[:, :3], 0.25 * spin)
    torch.testing.assert_close(policy[:, 3:6], mat[:, 2])
    assert torch.equal(policy[:, 6:9], env._episode.memory["velocity command"])
    torch.testing.assert_close(policy[:, 9:21], sim.qpos[:, 7:] - POSE)
    torch.testing.assert_close(policy[:, 21:33], 0.05 * sim.qvel[:, 6:])
    torch.testing.assert_close(policy[:, 33:], still(3) + 0.2)
    assert torch.equal(critic[:, :45], policy)
    linvel = (mat.mT @ sim.body(BASE).linvel.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(critic[:, 45:48], linvel)
    assert torch.equal(critic[:, 48], sim.body(BASE).pos[:, 2])
    touching = torch.stack([sim.in_contact(foot) for foot in FEET], -1)
    assert torch.equal(critic[:, 49:53].bool(), touching)
    assert env.action_names() == [f"{ROBOT}/{name}" for name in JOINTS]


def test_noise_is_on_what_the_policy_sees_alone():
    env = make(50, noise=1.0)
    obs, *_ = env.step(still(50))
    off = obs["policy"] - obs["critic"][:, :45]
    assert (off[:, 6:9] == 0).all()  # the command is known
    assert (off[:, 33:] == 0).all()  # and so is the last action
    assert off[:, :3].abs().max() <= 0.05 + 1e-6
    assert 0.01 < off[:, 21:33].std() < 0.075
    assert 0 < off[:, 9:21].abs().max() <= 0.01 + 1e-6


def test_standing_still_neither_falls_nor_moves(env):
    env.reset(seed=0)
    for _ in range(40):
        *_, terminated, truncated, info = env.step(still(3))
        assert not terminated.any()
    assert planar_velocity(env.sim, BASE).abs().max() < 0.1
    assert (env.sim.body(BASE).pos[:, 2] - 0.25).abs().max() < 0.04
    assert info["terms"]["fall"].tolist() == [0, 0, 0]


def test_commands_are_drawn_within_their_ranges_and_again_in_time():
    env = make(400, vx=(0.2, 0.6), vy=(-0.1, 0.0), yaw=(1.0, 1.0), resample=0.04, standing=0.25)
    seen = [env._episode.memory[Commands.KEY]]
    for _ in range(4):
        info = env.step(still(400))[4]
        assert torch.equal(info["command"], seen[-1])  # what the step was judged by
        seen.append(env._episode.memory[Commands.KEY])
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])
    assert torch.equal(seen[2], seen[3])
    standing = (seen[0] == 0).all(-1)
    assert standing.float().mean().item() == pytest.approx(0.25, abs=0.07)
    vx, vy, yaw = seen[0][~standing].unbind(-1)
    assert vx.min() >= 0.2
    assert vx.max() <= 0.6
    assert vx.mean().item() == pytest.approx(0.4, abs=0.03)
    assert vy.min() >= -0.1
    assert vy.max() <= 0.0
    assert (yaw == 1.0).all()


def test_velocity_is_that_of_the_heading_frame(env):
    env.reset(seed=0)
    sim, half = env.sim, 0.25 * math.pi
    qpos, qvel = sim.qpos, sim.qvel
    qpos[:, 3:7] = torch.tensor([math.cos(half), 0.0, 0.0, math.sin(half)])  # looks along y
    qvel[:, :6] = torch.tensor([-0.3, 0.7, 0.1, 0.0, 0.0, 0.5])
    sim.qpos, sim.qvel = qpos, qvel
    expected = torch.tensor([0.7, 0.3, 0.5]).expand(3, 3)
    torch.testing.assert_close(planar_velocity(sim, BASE), expected, atol=1e-6, rtol=0)


def test_a_fall_ends_the_episode_and_costs(env):
    env.reset(seed=0)
    qpos = env.sim.qpos
    qpos[1, 3:7] = torch.tensor([math.cos(0.6), math.sin(0.6), 0.0, 0.0])  # leans by 1.2 rad
    qpos[1, 2] = 0.6
    qpos[2, 2] = 0.05
    env.sim.qpos = qpos
    *_, terminated, truncated, info = env.step(still(3))
    assert terminated.tolist() == [False, True, True]
    assert info["terms"]["fall"].tolist() == [0.0, -1.0, -1.0]
    assert not info["success"].any()


def test_success_is_a_whole_episode_that_followed_its_commands():
    stay = {"vx": (0.0, 0.0), "vy": (0.0, 0.0), "yaw": (0.0, 0.0)}
    for options, success in ((stay, True), ({"vx": (0.8, 0.8), "standing": 0.0}, False)):
        env = make(2, max_steps=30, **options)
        for step in range(30):
            *_, terminated, truncated, info = env.step(still(2))
            assert not terminated.any()
            assert truncated.all() == (step == 29)
            assert info["success"].all() == (success and step == 29)


def test_pushes_come_in_time_and_within_their_speed():
    quiet, pushed = (make(64, push_speed=s, push_every=0.06) for s in (0.0, 0.5))
    gap = []
    for _ in range(3):
        for env in (quiet, pushed):
            env.step(still(64))
        gap.append((quiet.sim.qvel - pushed.sim.qvel)[:, :2].abs().amax(-1))
    assert gap[0].max() == 0
    assert gap[1].max() == 0
    assert (gap[2] > 0.02).float().mean() > 0.9
    assert gap[2].max() < 0.8


def test_what_is_randomized_differs_between_worlds():
    env = make(32, randomize=True)
    m, nominal = env.sim.model, env.sim._nominal
    base = env.sim._names.id("body", BASE)
    extra = m.body_mass[:, base] - nominal.body_mass[:, base]
    assert extra.min() >= -1
    assert extra.max() <= 3
    assert extra.std() > 0.5
    for name in ("con_friction", "actuator_gainprm", "actuator_biasprm", "body_ipos"):
        value = getattr(m, name)
        assert value.shape[0] == 32
        assert value.flatten(1).std(0).max() > 0


def test_feet_count_their_time_in_the_air(env):
    env.reset(seed=0)
    qpos, qvel = env.sim.qpos, env.sim.qvel
    qpos[:, 2] += 0.05
    qvel[:, :] = 0.0
    qpos[:, 7:] = POSE
    env.sim.qpos, env.sim.qvel = qpos, qvel
    for step in range(1, 25):
        obs, _, _, _, info = env.step(still(3))
        flight, touching = obs["critic"][:, 53:], obs["critic"][:, 49:53].bool()
        if touching.any():
            break
        torch.testing.assert_close(flight, torch.full_like(flight, 0.02 * step))
    assert 3 < step < 12  # sqrt(2 h / g) is 0.1 s
    assert (flight[touching] == 0).all()
    assert (info["terms"]["air_time"] <= 0).all()  # a short hop is no step


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"vx": (1.0, -1.0)}, "command vx"),
        ({"standing": 1.5}, "standing is a share"),
        ({"kp": "stiff"}, "kp"),
    ],
)
def test_bad_options_are_refused_by_name(options, what):
    with pytest.raises((ValueError, TypeError), match=what):
        go2_velocity_task(**options)


def test_scene_and_task_make_an_environment_of_their_own():
    scene, task = go2_velocity_task(**PLAIN)
    env = VectorEnv(scene, task, 2, engine="reference", backend="numpy")
    obs, _ = env.reset(seed=0)
    assert obs["policy"].shape == (2, 45)
    assert env.dt == pytest.approx(0.02)
