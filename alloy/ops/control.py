"""The one loop that may stop early: eager, traced and compiled callers all go through it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.fx.experimental.proxy_tensor import get_proxy_mode

Carry = tuple[Tensor, ...]


def freeze(go: Tensor, new: Carry, old: Carry) -> Carry:
    """New values where the world goes on, old ones elsewhere; go (W,), leaves (W, ...)."""
    return tuple(
        torch.where(go.reshape(go.shape + (1,) * (n.ndim - 1)), n, o)
        for n, o in zip(new, old, strict=True)
    )


def while_loop(
    go_on: Callable[..., Tensor], body: Callable[..., Carry], carry: Carry, max_iter: int
) -> Carry:
    """Repeat `body` while any world wants to go on, at most `max_iter` times.

    Args:
        go_on: maps the carry to (W,) bool: which worlds go on.
        body: maps the carry to the next carry (same shapes and dtypes), for all worlds at once.
        carry: tensors with the world axis first.
        max_iter: bound on the number of iterations.

    Returns:
        The carry after each world's own last iteration. A world that has stopped is frozen by a
        mask, so its result does not depend on how long its neighbours go on.

    Eager mode stops by looking at the flags (one device sync per iteration on a GPU). Under
    `torch.compile` and `make_fx` the loop becomes `torch.while_loop` with a body and a condition.
    """

    def step(*values: Tensor) -> Carry:
        return freeze(go_on(*values), body(*values), values)

    if not is_compiling() and get_proxy_mode() is None:
        for _ in range(max_iter):
            if not go_on(*carry).any():
                break
            carry = step(*carry)
        return carry

    # the HOP wants carries of one memory layout that are not constants, and a counter of its own
    def cond_fn(i: Tensor, *values: Tensor) -> Tensor:
        return go_on(*values).any() & (i < max_iter)

    def body_fn(i: Tensor, *values: Tensor) -> Carry:
        return (i + 1, *(v.clone(memory_format=torch.contiguous_format) for v in step(*values)))

    start = torch.zeros((), dtype=torch.int64, device=carry[0].device)
    values = tuple(v.clone(memory_format=torch.contiguous_format) for v in carry)
    return torch.while_loop(cond_fn, body_fn, (start, *values))[1:]
