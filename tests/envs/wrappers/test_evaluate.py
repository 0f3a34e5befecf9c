"""Held-out episodes against a count by hand, one world at a time; Wilson's interval."""

import json

import pytest
import torch

from alloy.envs.recipes import Recipe
from alloy.envs.wrappers.evaluate import HELD_OUT, evaluate, held_out, wilson
from alloy.envs.wrappers.policy import Policy
from tests.envs import toy


def push(obs):
    return 0.2 + obs[:, :1]


def alone(seed, task):
    """The first episode of a seed: return, length, success, terminated."""
    env = toy.env(1, task, autoreset="disabled")
    obs, _ = env.reset(seed=seed)
    total, length = 0.0, 0
    while True:
        obs, reward, terminated, truncated, info = env.step(push(obs))
        total, length = total + reward.item(), length + 1
        if terminated or truncated:
            return [total, length, bool(info["success"]), bool(terminated)]


@pytest.mark.parametrize("backend", ["torch", "tensordict"])
def test_every_world_counts_its_first_episode_alone(backend):
    task = toy.task(success=toy.C.Check(toy.position, "position") < -0.2, max_steps=40)
    env = toy.env(12, task, backend=backend)

    def act(obs):
        return push(obs if backend == "torch" else obs["policy"])

    got = evaluate(act, env, seed=5, measure=lambda env, info: {"x": info["x"]})
    expected = [alone(5 + world, task) for world in range(12)]
    lengths = [row[1] for row in expected]
    assert got.returns.tolist() == pytest.approx([row[0] for row in expected], rel=1e-5)
    assert got.lengths.tolist() == lengths
    assert len(set(lengths)) > 3
    assert got.success is not None
    assert got.success.tolist() == [row[2] for row in expected]
    assert got.terminated.tolist() == [row[3] for row in expected]
    torch.testing.assert_close(sum(got.terms.values()), got.returns)
    torch.testing.assert_close(got.means["x"], got.terms["position"] / got.lengths)
    said = got.summary()
    good = sum(row[2] for row in expected)
    assert 0 < good < 12
    assert said["success"] == {"count": good, "rate": good / 12, "wilson95": wilson(good, 12)}
    assert said["return"]["mean"] == pytest.approx(sum(row[0] for row in expected) / 12, rel=1e-5)
    json.dumps(said)


@pytest.mark.parametrize(
    ("good", "count", "interval"),
    # Brown, Cai and DasGupta (2001) and R's binom::binom.wilson
    [
        (8, 10, (0.4901625, 0.9433178)),
        (0, 10, (0.0, 0.2775328)),
        (10, 10, (0.7224672, 1.0)),
        (50, 100, (0.4038315, 0.5961685)),
    ],
)
def test_wilson(good, count, interval):
    assert wilson(good, count) == pytest.approx(interval, abs=1e-6)


def test_wilson_refuses_what_is_no_share():
    for good, count in ((3, 2), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match="is no share"):
            wilson(good, count)


def test_other_environments_are_refused():
    with pytest.raises(ValueError, match="autoreset='same_step'"):
        evaluate(push, toy.env(1, autoreset="disabled"), seed=0)
    with pytest.raises(ValueError, match="max_steps=None"):
        evaluate(push, toy.env(1, toy.task(max_steps=None)), seed=0)


def test_held_out_says_whether_the_bar_is_reached():
    policy = Policy([4, 1], "elu")
    about = {"env_id": "InvertedPendulum-v5", "episodes": 3, "env": {"max_episode_steps": 5}}
    for bar, reached in ((4.0, True), (6.0, False), (None, None)):
        said = held_out(policy, Recipe(**about, return_bar=bar), engine="reference")
        assert said["bar"] is reached
        assert said["episodes"] == 3
        assert said["seed"] == HELD_OUT
        assert said["return"]["mean"] == 5.0
        assert "success" not in said
