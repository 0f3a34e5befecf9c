"""Actions and rewards in other units against the environment in its own."""

import pytest
import torch

from alloy.envs import make
from alloy.envs.wrappers.scaling import ScaledReward, UnitActions
from tests.envs import toy


def test_unit_actions_reach_the_bounds():
    plain, env = (make("InvertedPendulum-v5", 3, engine="reference") for _ in range(2))
    env = UnitActions(env)
    plain.reset(seed=0)
    env.reset(seed=0)
    action = torch.tensor([[-1.0], [0.5], [7.0]])
    for _ in range(3):
        expected = plain.step(3.0 * action)[0]
        assert torch.equal(env.step(action)[0], expected)
    assert env.single_action_space.high.tolist() == [1.0]
    assert torch.equal(env.step(action.numpy())[0], plain.step(3.0 * action)[0])


def test_scaled_reward_leaves_the_terms():
    env = ScaledReward(toy.env(3, toy.always_three()), 0.5)
    env.reset(seed=0)
    _, reward, _, _, info = env.step(torch.zeros(3, 1))
    assert reward.tolist() == [0.5] * 3
    assert info["terms"]["one"].tolist() == [1.0] * 3
    with pytest.raises(ValueError, match="positive"):
        ScaledReward(toy.env(1), 0.0)
