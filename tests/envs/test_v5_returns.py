"""Returns of a random policy: Gymnasium's v5 environments against ours, by distribution."""

import gymnasium as gym
import numpy as np
import pytest
import torch

import alloy

EPISODES = 1000
# Time limits below Gymnasium's own where episodes do not end by themselves.
LIMITS = {
    "HalfCheetah": 50, "Hopper": 200, "Walker2d": 200, "Swimmer": 50, "InvertedPendulum": 100,
    "InvertedDoublePendulum": 100, "Reacher": 50, "Ant": 40, "Humanoid": 100, "HumanoidStandup": 15,
    "Pusher": 50,
}  # fmt: skip


def their_returns(robot):
    env = gym.make(f"{robot}-v5", max_episode_steps=LIMITS[robot])
    env.action_space.seed(0)
    returns = []
    for seed in range(EPISODES):
        env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total, ended = total + reward, terminated or truncated
        returns.append(total)
    return np.array(returns)


def our_returns(robot):
    env = alloy.envs.make(f"{robot}-v5", EPISODES, engine="lanes", max_episode_steps=LIMITS[robot])
    env.reset(seed=10_000)
    low, high = (
        torch.as_tensor(x) for x in (env.single_action_space.low, env.single_action_space.high)
    )
    g = torch.Generator().manual_seed(0)
    returns = torch.full((EPISODES,), torch.nan)
    for _ in range(LIMITS[robot]):
        action = low + (high - low) * torch.rand(EPISODES, len(low), generator=g)
        info = env.step(action)[4]
        first = info["_episode"] & returns.isnan()  # of each world, so that short ones count once
        returns = torch.where(first, info["episode"]["r"], returns)
    return returns.numpy()


def p_value(a, b):
    """Probability of a larger gap between the samples' distributions if both are one (Smirnov)."""
    at = np.sort(np.concatenate([a, b]))
    share = [np.searchsorted(np.sort(x), at, side="right") / len(x) for x in (a, b)]
    size = (len(a) * len(b) / (len(a) + len(b))) ** 0.5
    scaled = (size + 0.12 + 0.11 / size) * np.abs(share[0] - share[1]).max()
    k = np.arange(1, 101)
    return float(np.clip(2 * ((-1.0) ** (k - 1) * np.exp(-2 * (k * scaled) ** 2)).sum(), 0, 1))


def test_p_value_tells_distributions_apart():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, EPISODES))
    assert p_value(a, b) > 0.05
    assert p_value(a, b + 0.15) < 0.01
    assert p_value(a, 1.3 * b) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("robot", LIMITS)
def test_a_random_policy_returns_as_much(robot):
    ours, theirs = our_returns(robot), their_returns(robot)
    assert np.isfinite(ours).all()
    assert p_value(ours, theirs) > 0.01
