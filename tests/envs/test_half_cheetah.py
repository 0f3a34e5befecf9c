"""HalfCheetah-v5 against Gymnasium's own environment, in float64."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv

import alloy
from alloy.envs.gymnasium_suite import gymnasium_file

STEPS = 1000


def make(worlds, **kwargs):
    return alloy.envs.make("HalfCheetah-v5", worlds, dtype=torch.float64, **kwargs)


def put(env, qpos, qvel, warmstart=None):
    env.reset(seed=0)
    env.sim.qpos, env.sim.qvel = np.asarray(qpos), np.asarray(qvel)
    if warmstart is not None:
        env.sim.data.qacc_warmstart.copy_(torch.as_tensor(np.asarray(warmstart)))


@pytest.fixture(scope="module")
def walk():
    """What Gymnasium's environment does in 1,000 random-action steps, before and after each."""
    env = HalfCheetahEnv()
    env.action_space.seed(0)
    env.reset(seed=0)
    d, rows = env.data, []
    for _ in range(STEPS):
        state = d.qpos.copy(), d.qvel.copy(), d.qacc_warmstart.copy()
        action = env.action_space.sample()
        obs, reward, _, _, info = env.step(action)
        rows.append((*state, action, obs, reward, info))
    return rows


def test_one_step_from_every_state_of_a_walk(walk):
    qpos, qvel, warmstart, action, obs, reward, info = zip(*walk, strict=True)
    env = make(STEPS, backend="numpy")
    put(env, qpos, qvel, warmstart)
    ours, our_reward, terminated, truncated, our_info = env.step(np.stack(action))
    np.testing.assert_allclose(ours, np.stack(obs), atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(our_reward, reward, atol=1e-6)
    assert not terminated.any()
    assert not truncated.any()
    for key in info[0]:
        np.testing.assert_allclose(our_info[key], [i[key] for i in info], atol=1e-6)


def test_a_free_run_stays_with_gymnasium():
    theirs = HalfCheetahEnv()
    ours = make(1, backend="numpy")
    theirs.reset(seed=3)
    put(ours, [theirs.data.qpos.copy()], [theirs.data.qvel.copy()])
    theirs.action_space.seed(3)
    for _ in range(20):
        action = theirs.action_space.sample()
        np.testing.assert_allclose(ours.step(action[None])[0][0], theirs.step(action)[0], atol=1e-4)


def test_spaces_and_info_keys_are_gymnasiums():
    theirs = gym.make("HalfCheetah-v5")
    alloy.envs.register_gymnasium()
    ours = gym.make("alloy/HalfCheetah-v5", dtype=torch.float64)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.unwrapped.dt == theirs.unwrapped.dt
    assert ours.metadata["render_fps"] == theirs.metadata["render_fps"]
    assert ours.spec.max_episode_steps == theirs.spec.max_episode_steps == 1000
    mine, other = ours.reset(seed=0)[1], theirs.reset(seed=0)[1]
    assert set(mine) == set(other) == {"x_position"}
    mine, other = (e.step(e.action_space.sample())[4] for e in (ours, theirs))
    assert set(other) <= set(mine)
    for key in other:
        assert isinstance(mine[key], float), key


def test_truncation_at_the_time_limit():
    env = make(2, max_episode_steps=3)
    env.reset(seed=0)
    flags = [env.step(torch.zeros(2, 6))[3].tolist() for _ in range(6)]
    assert flags == [[False] * 2, [False] * 2, [True] * 2] * 2
    assert make(1).task.max_steps == 1000


def test_reset_noise_has_gymnasiums_distribution():
    env = make(4000, reset_noise_scale=0.3)
    env.reset(seed=0)
    qpos, qvel = env.sim.qpos, env.sim.qvel
    assert qpos.abs().max() <= 0.3
    assert qpos.std(0).sub(0.3 / 3**0.5).abs().max() < 0.01  # uniform within +-0.3
    assert qpos.mean(0).abs().max() < 0.015
    assert qvel.std(0).sub(0.3).abs().max() < 0.015
    assert (qvel.abs() > 0.6).double().mean() == pytest.approx(0.0455, abs=0.005)  # normal


def test_keyword_arguments_are_gymnasiums():
    options = {
        "xml_file": str(gymnasium_file("half_cheetah.xml")),
        "frame_skip": 2,
        "forward_reward_weight": 3.0,
        "ctrl_cost_weight": 0.5,
        "reset_noise_scale": 0.0,
        "exclude_current_positions_from_observation": False,
        "default_camera_config": {"distance": 4.0},
        "width": 64,
        "height": 48,
    }
    theirs, ours = HalfCheetahEnv(**options), make(1, backend="numpy", **options)
    obs, _ = theirs.reset(seed=0)
    np.testing.assert_allclose(ours.reset(seed=0)[0][0], obs)
    assert ours.single_observation_space == theirs.observation_space
    action = np.full(6, 0.7, np.float32)
    a, b = ours.step(action[None]), theirs.step(action)
    np.testing.assert_allclose(a[0][0], b[0], atol=1e-6)
    assert a[1][0] == pytest.approx(b[1], abs=1e-6)
    with pytest.raises(FileNotFoundError, match=r"half_cheeta\.xml"):
        make(1, xml_file="half_cheeta.xml")
