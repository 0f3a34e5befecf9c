"""Draws of a reset: the same numbers as `alloy.random`, bit for bit where they are uniform."""

import pytest
import torch

from alloy import random
from alloy.ops.triton import random as kernels

SEEDS = torch.tensor([0, 1, -1, 2**40 + 7, 123456789])
EPISODES = torch.tensor([0, 3, 2**33, 1, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("worlds", "draw", "n"), [(1, 0, 1), (3, 1, 7), (5, 2**31, 4)])
def test_draws_equal_the_reference(worlds, draw, n, dtype):
    args = (SEEDS[:worlds], EPISODES[:worlds], draw, n, dtype)
    actual = kernels.uniform(*args)
    assert torch.equal(actual, random.uniform(*args)) and actual.dtype == dtype
    # the two may round a number to either side of a tie in float32
    torch.testing.assert_close(kernels.normal(*args), random.normal(*args), rtol=2e-7, atol=1e-7)


def test_more_worlds_than_a_block():
    seeds, episodes = torch.arange(37), torch.zeros(37, dtype=torch.int64)
    expected = random.uniform(seeds, episodes, 5, 3)
    assert torch.equal(kernels.uniform(seeds, episodes, 5, 3), expected)
