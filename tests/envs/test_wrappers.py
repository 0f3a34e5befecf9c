"""The normalising wrapper against moments of everything that was seen, in every mode."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from alloy.envs.wrappers import NormalizeObservation, RunningMoments
from tests.envs import toy


def test_running_moments_are_those_of_all_rows():
    g = torch.Generator().manual_seed(0)
    rows = 3 + 2 * torch.randn(100, 4, generator=g)
    mask = torch.rand(100, generator=g) < 0.5
    moments = RunningMoments(4)
    for part, keep in zip(rows.split(7), mask.split(7), strict=True):
        moments.update(part, keep)
    moments.update(rows, torch.zeros(100, dtype=torch.bool))
    seen = rows[mask].double()
    torch.testing.assert_close(moments.mean, seen.mean(0))
    torch.testing.assert_close(moments.var, seen.var(0, unbiased=False))
    assert moments.count == mask.sum()


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
@pytest.mark.parametrize("backend", ["torch", "numpy", "tensordict"])
def test_c24_normalises_in_every_mode(backend, mode):
    plain = toy.env(5, backend=backend, autoreset=mode)
    env = NormalizeObservation(toy.env(5, backend=backend, autoreset=mode))
    seen = []

    def see(obs, rows=None):
        flat = np.asarray(obs["policy"] if backend == "tensordict" else obs)
        seen.append(flat if rows is None else flat[np.asarray(rows)])
        return flat

    def check(mine, flat):
        every = np.concatenate(seen).astype(np.float64)
        expected = (flat - every.mean(0)) / np.sqrt(every.var(0) + 1e-8)
        mine = np.asarray(mine["policy"] if backend == "tensordict" else mine)
        np.testing.assert_allclose(mine, expected.clip(-10, 10), atol=1e-4)
        assert mine.dtype == np.float32

    flat = see(plain.reset(seed=0)[0])
    check(env.reset(seed=0)[0], flat)
    for action in toy.actions(5, 15):
        obs, _, terminated, truncated, info = plain.step(action)
        mine, *_, their_info = env.step(action)
        flat = see(obs)
        ended = np.asarray(terminated) | np.asarray(truncated)
        if mode == "same_step" and ended.any():
            last = see(info["final_obs"], ended)
            check(their_info["final_obs"][ended], last)
        check(mine, flat)
        if mode == "disabled" and ended.any():
            again = {"options": {"reset_mask": ended}}
            flat = np.asarray(_flat(plain.reset(**again)[0], backend))
            seen.append(flat[ended])
            check(env.reset(**again)[0], flat)
    if backend == "numpy":
        assert env.observation_space.contains(mine)


def _flat(obs, backend):
    return obs["policy"] if backend == "tensordict" else obs


def test_frozen_moments_stay():
    env = NormalizeObservation(toy.env(3))
    env.reset(seed=0)
    env.frozen = True
    before = env.moments[""].mean.clone()
    a = env.step(torch.zeros(3, 1))[0]
    assert torch.equal(env.moments[""].mean, before)
    assert a.isfinite().all()


def test_groups_are_normalised_by_themselves():
    env = NormalizeObservation(
        toy.env(3, toy.task(obs={"policy": ["cart"], "critic": [toy.position]}))
    )
    obs, _ = env.reset(seed=0)
    assert isinstance(env.single_observation_space, gym.spaces.Dict)
    torch.testing.assert_close(obs["policy"][:, :1], obs["critic"])
    with pytest.raises(ValueError, match="positive"):
        NormalizeObservation(toy.env(1), epsilon=0.0)
