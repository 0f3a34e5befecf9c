"""The policy module: its arithmetic, its way into a file and back, and through TorchScript."""

import pytest
import torch
from torch import nn

from alloy.envs.wrappers.policy import Policy


def filled(**options):
    torch.manual_seed(0)
    policy = Policy([3, 5, 2], "elu", **options)
    policy.copy_layers([nn.Linear(3, 5), nn.ELU(), nn.Linear(5, 2)])
    policy.set_normalizer(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 1.0, 2.0]))
    policy.set_bounds([-3.0, 0.0], [3.0, 1.0])
    return policy.eval()


@pytest.mark.parametrize("squash", ["clip", "tanh"])
def test_normalises_clips_squashes_and_scales(squash):
    policy = filled(squash=squash, clip_observations=2.0)
    obs = torch.randn(7, 3) * 4
    x = ((obs - torch.tensor([1.0, 2.0, 3.0])) * torch.tensor([0.5, 1.0, 2.0])).clamp(-2, 2)
    first, last = policy.net[0], policy.net[2]
    x = nn.functional.elu(x @ first.weight.T + first.bias) @ last.weight.T + last.bias
    x = x.tanh() if squash == "tanh" else x.clamp(-1, 1)
    expected = torch.stack([3 * x[:, 0], 0.5 + 0.5 * x[:, 1]], -1)
    torch.testing.assert_close(policy(obs), expected)
    assert not policy.act(obs).requires_grad


def test_takes_groups_side_by_side():
    policy = filled(groups=["policy", "extra"])
    obs = torch.randn(4, 3)
    parts = {"extra": obs[:, 2:].double(), "critic": torch.zeros(4, 9), "policy": obs[:, :2]}
    assert torch.equal(policy.act(parts), policy.act(obs))


def test_packs_and_scripts():
    policy = filled(squash="tanh", clip_observations=5.0)
    obs = torch.randn(4, 3)
    again = Policy.unpacked(policy.packed())
    assert torch.equal(again(obs), policy(obs))
    assert again.config == policy.config
    assert torch.equal(torch.jit.script(policy)(obs), policy(obs))


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="'clip', 'tanh'"):
        Policy([1, 1], "elu", squash="none")
    with pytest.raises(ValueError, match="layers have shapes"):
        filled().copy_layers([nn.Linear(3, 4), nn.Linear(4, 2)])


def test_a_new_one_does_nothing_and_draws_nothing():
    before = torch.get_rng_state()
    assert Policy([3, 5, 2], "elu")(torch.randn(4, 3)).tolist() == [[0.0, 0.0]] * 4
    torch.set_rng_state(before)
    Policy([3, 5, 2], "elu")
    assert torch.equal(torch.get_rng_state(), before)
