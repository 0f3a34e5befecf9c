"""One world, one lane: how kernels see batched tensors, and how they are launched.

A kernel works on a block of worlds and takes every tensor as a *field* (pointer, step, stride):
value k of world w lies at pointer + k * step + w * stride. World-last memory is (p, W, 1), which
loads a block of worlds coalesced; a field that all worlds share is (p, 1, 0), so that no kernel
knows which of its inputs are shared.

A block has as many worlds as the program has threads. Each thread then owns one world, and what it
has written to global memory it reads back in program order: outputs serve as scratch, no barrier
and no atomic is needed, and no world sees another.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

WARPS = 1
BLOCK = (64 if torch.version.hip else 32) * WARPS  # worlds per program: one per thread
OPTIONS = {"num_warps": WARPS, "num_stages": 1, "enable_fp_fusion": True}
MAX_VALUES = 2**31 - 1  # offsets within a field are 32-bit

Field = tuple[Tensor, int, int]


def field(x: Tensor, worlds: int) -> Field:
    """A tensor (1|W, ...) as a kernel sees it; copied only if its worlds are not last in memory.

    Raises:
        ValueError: another number of worlds, or more values than 32-bit offsets reach.
    """
    if x.shape[0] not in (1, worlds):
        raise ValueError(f"expected 1 or {worlds} worlds, received shape {tuple(x.shape)}")
    if x.numel() > MAX_VALUES:
        raise ValueError(
            f"a tensor of shape {tuple(x.shape)} has {x.numel()} values, a kernel reaches at most "
            f"{MAX_VALUES}; build with fewer worlds"
        )
    if x.shape[0] == 1 or x.stride(0) == 0:
        return x[0].reshape(-1).contiguous(), 1, 0
    return x.movedim(0, -1).contiguous(), worlds, 1


def empty(worlds: int, *shape: int, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Uninitialised (worlds, *shape) with the worlds last in memory."""
    out = torch.empty(*shape, worlds, dtype=dtype or like.dtype, device=like.device)
    return out.movedim(-1, 0)


def run(kernel: Any, grid: tuple[int, int], args: tuple, constants: dict[str, Any]) -> Any:
    """Start a kernel. The one place where that happens: a report replaces it to see what would."""
    return kernel[grid](*args, **constants, **OPTIONS)


class Launched(NamedTuple):
    """A kernel that was started; registers and spills as its compiler says, if there was one."""

    kernel: str
    registers: int | None
    spills: int | None
    bytes: int  # of each world, every value that it is given counted once


_watchers: list[list[Launched]] = []


@contextmanager
def watch() -> Iterator[list[Launched]]:
    """Note every kernel that starts within."""
    launched: list[Launched] = []
    _watchers.append(launched)
    try:
        yield launched
    finally:
        _watchers.remove(launched)


def launch(kernel: Any, worlds: int, *args: Any, programs: int = 1, **constants: Any) -> None:
    """Run a kernel over all worlds, times `programs` along the second axis of the grid.

    Args:
        kernel: its last two parameters are n_world and BLOCK.
        worlds: number of worlds; none is no launch.
        *args: its arguments in order. Tensors (1|W, ...) become fields; an int32 tensor is a table
            and is passed as it is.
        programs: size of the grid's second axis.
        **constants: its other constexpr parameters.
    """
    if not worlds or not programs:
        return
    args = tuple(field(a, worlds) if is_field(a) else a for a in args)
    constants |= {"n_world": worlds, "BLOCK": BLOCK}
    fields = [a for a in args if isinstance(a, tuple) and a and isinstance(a[0], Tensor)]
    with torch.cuda.device_of(fields[0][0]):
        compiled = run(kernel, (triton.cdiv(worlds, BLOCK), programs), args, constants)
    for launched in _watchers:
        own = [pointer for pointer, _, stride in fields if stride]
        launched.append(Launched(
            kernel.__name__.strip("_").removesuffix("_kernel"),
            getattr(compiled, "n_regs", None), getattr(compiled, "n_spills", None),
            sum(x.numel() * x.element_size() for x in own) // worlds,
        ))  # fmt: skip


def is_field(arg: Any) -> bool:
    """Whether an argument has a value for each world, unlike a table or a number."""
    return isinstance(arg, Tensor) and arg.dtype != torch.int32


@triton.jit
def worlds_of(n_world, BLOCK: tl.constexpr):
    """World indices of this program and which of them exist."""
    w = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    return w, w < n_world


@triton.jit
def load(x, k, w, m):
    """Value k of a field in worlds w."""
    pointer, step, stride = x
    return tl.load(pointer + k * step + w * stride, mask=m, other=0.0)


@triton.jit
def store(x, k, w, m, value):
    """Set value k of a field in worlds w."""
    pointer, step, stride = x
    tl.store(pointer + k * step + w * stride, value, mask=m)


@triton.jit
def load3(x, k, w, m):
    """Vector k of a field (W, n, 3)."""
    return load(x, 3 * k, w, m), load(x, 3 * k + 1, w, m), load(x, 3 * k + 2, w, m)


@triton.jit
def store3(x, k, w, m, v):
    """Set vector k of a field (W, n, 3)."""
    store(x, 3 * k, w, m, v[0])
    store(x, 3 * k + 1, w, m, v[1])
    store(x, 3 * k + 2, w, m, v[2])


@triton.jit
def load4(x, adr, w, m):
    """Four values from address adr on."""
    return (
        load(x, adr, w, m),
        load(x, adr + 1, w, m),
        load(x, adr + 2, w, m),
        load(x, adr + 3, w, m),
    )


@triton.jit
def load6(x, k, w, m):
    """Spatial vector k of a field (W, n, 6), as rotation and translation."""
    return load3(x, 2 * k, w, m), load3(x, 2 * k + 1, w, m)


@triton.jit
def store6(x, k, w, m, v):
    """Set spatial vector k of a field (W, n, 6)."""
    store3(x, 2 * k, w, m, v[0])
    store3(x, 2 * k + 1, w, m, v[1])


@triton.jit
def load9(x, k, w, m):
    """Matrix k of a field (W, n, 3, 3), as three rows."""
    return load3(x, 3 * k, w, m), load3(x, 3 * k + 1, w, m), load3(x, 3 * k + 2, w, m)


@triton.jit
def store9(x, k, w, m, rows):
    """Set matrix k of a field (W, n, 3, 3)."""
    store3(x, 3 * k, w, m, rows[0])
    store3(x, 3 * k + 1, w, m, rows[1])
    store3(x, 3 * k + 2, w, m, rows[2])


@triton.jit
def zeros(x, w):
    """Zero for every world, in the field's dtype."""
    return tl.full(w.shape, 0.0, x[0].dtype.element_ty)


@triton.jit
def _either(a, b):
    return a | b


@triton.jit
def any_of(mask):
    """Whether any world of the block has the mask set."""
    return tl.reduce(mask.to(tl.int32), 0, _either) != 0
