"""Counter-based draws of a reset, one Philox block of a world per lane. Twin of `alloy.random`."""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from alloy.ops.triton.lane import empty, launch, load, store, worlds_of

_MULTIPLIER0, _MULTIPLIER1 = tl.constexpr(0xD2511F53), tl.constexpr(0xCD9E8D57)
_WEYL0, _WEYL1 = tl.constexpr(0x9E3779B9), tl.constexpr(0xBB67AE85)
_STEP = tl.constexpr(2.0**-24)
_TURN = tl.constexpr(6.283185307179586)


@triton.jit
def _philox(k0, k1, c0, c1, c2, c3):
    """Philox 4x32-10 of keys and counters, uint32; four words."""
    for _ in tl.static_range(10):
        high0, low0 = tl.umulhi(c0, _word(c0, _MULTIPLIER0)), c0 * _word(c0, _MULTIPLIER0)
        high1, low1 = tl.umulhi(c2, _word(c2, _MULTIPLIER1)), c2 * _word(c2, _MULTIPLIER1)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _word(k0, _WEYL0), k1 + _word(k1, _WEYL1)
    return c0, c1, c2, c3


@triton.jit
def _word(like, value):
    return tl.full(like.shape, value, tl.uint32)


@triton.jit
def _draw_kernel(
    # in
    seed, episode,
    # out
    out,
    # sizes
    draw, NORMAL: tl.constexpr, n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """Words of key seed and counter (block, draw, episode), as uniform or normal numbers.

    Uniform: multiples of 2^-24. Normal: sqrt(-2 log(1 - u)) times cosine and sine of 2 pi v.
    Source: Salmon, Moraes, Dror, Shaw, SC 2011; Box and Muller (1958).
    """
    w, m = worlds_of(n_world, BLOCK)
    block = tl.program_id(1)
    key, count = load(seed, 0, w, m).to(tl.uint64), load(episode, 0, w, m).to(tl.uint64)
    words = _philox(
        key.to(tl.uint32), (key >> 32).to(tl.uint32), _word(key, block),
        _word(key, draw), count.to(tl.uint32), (count >> 32).to(tl.uint32),
    )  # fmt: skip
    if NORMAL:
        for pair in tl.static_range(2):
            u = (words[2 * pair] >> 8).to(tl.float64) * _STEP
            v = (words[2 * pair + 1] >> 8).to(tl.float64) * _STEP
            radius, angle = tl.sqrt(-2.0 * tl.log(1.0 - u)), v * _TURN
            at = 4 * block + 2 * pair
            store(out, at, w, m, (radius * tl.cos(angle)).to(tl.float32))
            store(out, at + 1, w, m, (radius * tl.sin(angle)).to(tl.float32))
    else:
        for k in tl.static_range(4):
            store(out, 4 * block + k, w, m, (words[k] >> 8).to(tl.float32) * _STEP)


def uniform(
    seed: Tensor, episode: Tensor, draw: int, n: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """See `alloy.random.uniform`."""
    return _numbers(seed, episode, draw, n, dtype, normal=False)


def normal(
    seed: Tensor, episode: Tensor, draw: int, n: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """See `alloy.random.normal`."""
    return _numbers(seed, episode, draw, n, dtype, normal=True)


def _numbers(
    seed: Tensor, episode: Tensor, draw: int, n: int, dtype: torch.dtype, normal: bool
) -> Tensor:
    worlds, blocks = seed.shape[0], (n + 3) // 4
    out = empty(worlds, 4 * blocks, like=seed, dtype=dtype)
    launch(_draw_kernel, worlds, seed, episode, out, draw, programs=blocks, NORMAL=normal)
    return out[:, :n]
