"""Counter-based random numbers: one world, episode and draw give one number, wherever they run.

Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011)
in integer tensor operations. Nothing is stored between draws: the key is the world's seed and the
counter is (index, draw, episode), so a number depends neither on the device, the float dtype and
the engine, nor on how many worlds there are and which of them reset together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_ROUNDS = 10
# The multipliers less 2^32. A 32-bit word times such a number stays below 2^63, so that no product
# overflows: x * M = x * (M - 2^32) + x * 2^32 adds x to the high word and leaves the low one alone.
_MULTIPLIER = (0xD2511F53 - 2**32, 0xCD9E8D57 - 2**32)
_WEYL = (0x9E3779B9, 0xBB67AE85)


@lru_cache(maxsize=8)
def _constants(device: str) -> tuple[Tensor, Tensor]:
    """Multipliers by output word (2, 1, 1) and key increments by round (rounds, 2, 1, 1)."""
    # the word made from c0 lands in the second pair and the other way round: hence reversed
    multiplier = torch.tensor(_MULTIPLIER[::-1]).reshape(2, 1, 1)
    weyl = torch.arange(_ROUNDS).reshape(-1, 1) * torch.tensor(_WEYL)
    return multiplier.to(device), weyl.reshape(_ROUNDS, 2, 1, 1).to(device)


def philox(key: Tensor, counter: Tensor) -> Tensor:
    """Philox 4x32-10: 128 random bits for every key and counter.

    Args:
        key: (..., 2) int64, each a 32-bit word.
        counter: (..., 4) int64, each a 32-bit word; leading dimensions broadcast with those of key.

    Returns:
        (..., 4) int64, each a 32-bit word.
    """
    shape = torch.broadcast_shapes(key.shape[:-1], counter.shape[:-1])
    key = key.expand(*shape, 2).reshape(1, -1, 2).movedim(-1, 0)
    words = counter.expand(*shape, 4).reshape(1, -1, 4).movedim(-1, 0)
    return _rounds(key, words[0::2], words[1::2]).reshape(*shape, 4)


def _rounds(key: Tensor, even: Tensor, odd: Tensor) -> Tensor:
    """The ten rounds over words (2, a, b): key, (c0, c2), (c1, c3); gives (a, b, 4)."""
    multiplier, weyl = _constants(str(even.device))
    keys = (key + weyl) & _MASK
    for i in range(_ROUNDS):
        other = even.flip(0)
        product = other * multiplier
        even, odd = (((product >> 32) + other) & _MASK) ^ odd ^ keys[i], product & _MASK
    return torch.stack([even[0], odd[0], even[1], odd[1]], -1)


def _words(seed: Tensor, episode: Tensor, draw: int, n: int) -> Tensor:
    """The first n random 32-bit words of a draw; (W, n) int64."""
    blocks = (n + 3) // 4
    worlds = seed.shape[0]
    key = torch.stack([seed & _MASK, (seed >> 32) & _MASK]).unsqueeze(-1)
    index = torch.arange(blocks, device=seed.device).expand(worlds, blocks)
    low, high = (episode & _MASK).unsqueeze(-1), ((episode >> 32) & _MASK).unsqueeze(-1)
    even = torch.stack([index, low.expand_as(index)])
    odd = torch.stack([torch.full_like(index, draw & _MASK), high.expand_as(index)])
    return _rounds(key, even, odd).reshape(worlds, 4 * blocks)[:, :n]


def uniform(
    seed: Tensor, episode: Tensor, draw: int, n: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Uniform numbers in [0, 1), multiples of 2^-24, so exact in every dtype offered.

    Args:
        seed: (W,) int64, the seed of each world.
        episode: (W,) int64, how many episodes the world has begun.
        draw: which draw within the episode; give every purpose its own.
        n: numbers per world. A longer draw begins with the numbers of a shorter one.
        dtype: float32 or float64.

    Returns:
        (W, n).
    """
    return (_words(seed, episode, draw, n) >> 8).to(dtype) * 2.0**-24


def normal(
    seed: Tensor, episode: Tensor, draw: int, n: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Standard normal numbers by Box and Muller (1958), rounded to float32 in every dtype.

    Arguments and result as for `uniform`. Of n numbers in pairs, the first of a pair takes the
    cosine and the second the sine; they are computed in float64, so that devices agree.
    """
    pairs = (n + 1) // 2
    u = uniform(seed, episode, draw, 2 * pairs, torch.float64).unflatten(-1, (pairs, 2))
    radius = torch.sqrt(-2.0 * torch.log1p(-u[..., 0]))
    angle = 2.0 * math.pi * u[..., 1]
    both = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], -1)
    return both.flatten(-2)[:, :n].to(torch.float32).to(dtype)


def world_seeds(
    seed: int | Sequence[int] | Tensor, worlds: int, device: torch.device | str = "cpu"
) -> Tensor:
    """The seed of each world, (W,) int64: s becomes s, s + 1, ...; a list is taken as it is.

    Raises:
        ValueError: a list of another length than the number of worlds, or a seed that is no integer
            of 64 bits.
    """
    if hasattr(seed, "tolist"):  # a tensor, an array, or a number of either
        seed = seed.tolist()
    if isinstance(seed, Sequence):
        if len(seed) != worlds:
            raise ValueError(
                f"seed has {len(seed)} entries for {worlds} worlds; give one integer per world, "
                f"or a single integer s for the seeds s, s + 1, ..."
            )
        seeds = list(seed)
    else:
        seeds = [seed] * worlds
    for s in seeds:
        if isinstance(s, bool) or not hasattr(s, "__index__"):
            raise ValueError(f"seed must be an integer or one integer per world, not {s!r}")
    numbers = [int(s) for s in seeds]
    if not isinstance(seed, Sequence):
        numbers = [s + i for i, s in enumerate(numbers)]
    for s in numbers:
        if not -(2**63) <= s < 2**63:
            raise ValueError(f"seed {s} does not fit 64 bits; use one from -2**63 to 2**63 - 1")
    return torch.tensor(numbers, dtype=torch.int64, device=device)
