"""Statistics of episodes against a count by hand, in every autoreset mode."""

import math

import pytest
import torch

from alloy.envs.wrappers import EpisodeStatistics
from tests.envs import toy


@pytest.mark.parametrize("backend", ["torch", "tensordict"])
@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
def test_counts_the_episodes_that_end(mode, backend):
    task = toy.task(success=toy.C.Check(toy.position, "position") < -0.2)
    env = EpisodeStatistics(toy.env(4, task, autoreset=mode, backend=backend))
    env.reset(seed=0)
    total, terms, length = torch.zeros(4), torch.zeros(4), torch.zeros(4)
    pending = torch.zeros(4, dtype=torch.bool)
    expected = []
    for action in toy.actions(4, 40):
        _, reward, terminated, truncated, info = env.step(action)
        ended = terminated | truncated
        length += (~pending).float() if mode == "next_step" else 1.0
        total += reward
        terms += info["terms"]["position"]
        for i in ended.nonzero().flatten().tolist():
            expected.append(
                [total[i].item(), length[i].item(), float(info["success"][i]), terms[i].item()]
            )
            total[i] = terms[i] = length[i] = 0.0
        pending = ended
        if mode == "disabled" and ended.any():
            env.reset(options={"reset_mask": ended})
    means = torch.tensor(expected).mean(0).tolist()
    got = env.summary(env.take())
    assert got.pop("episodes") == len(expected) > 8
    assert [got[n] for n in ("return", "length", "success", "reward/position")] == pytest.approx(
        means
    )
    assert 0 < got["success"] < 1
    nothing = env.summary(env.take())
    assert nothing["episodes"] == 0
    assert math.isnan(nothing["return"])


def test_recent_means_are_numbers_once_an_episode_has_ended():
    env = EpisodeStatistics(toy.env(3, toy.always_three()))
    env.reset(seed=0)
    env.step(torch.zeros(3, 1))
    assert all(value.isnan() for value in env.means().values())
    for _ in range(5):
        env.step(torch.zeros(3, 1))
    assert {name: value.item() for name, value in env.means().items()} == pytest.approx(
        {"return": 3.0, "length": 3.0, "success": 0.0, "reward/one": 3.0}
    )


def test_a_term_may_be_called_success():
    task = toy.task(
        success=toy.C.Check(toy.position, "x") > -9.0, reward={"success": (10.0, toy.C.alive())}
    )
    env = EpisodeStatistics(toy.env(3, task))
    env.reset(seed=0)
    env.step(torch.zeros(3, 1))
    got = env.summary(env.take())
    assert got["success"] == 1.0
    assert got["reward/success"] == 10.0


def test_a_world_reset_before_its_end_does_not_count():
    env = EpisodeStatistics(toy.env(2, toy.always_three()))
    env.reset(seed=0)
    env.step(torch.zeros(2, 1))
    env.reset(options={"reset_mask": torch.tensor([True, False])})
    for _ in range(3):
        env.step(torch.zeros(2, 1))
    taken = env.summary(env.take())
    assert taken["episodes"] == 2
    assert taken["return"] == pytest.approx(3.0)


def test_numpy_is_refused():
    with pytest.raises(ValueError, match="RecordEpisodeStatistics"):
        EpisodeStatistics(toy.env(1, backend="numpy"))
