"""Loops of a step: eager, traced and compiled callers all go through here."""

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

    if not _traced():
        for _ in range(max_iter):
            if not go_on(*carry).any():
                break
            carry = step(*carry)
        return carry
    return _hop(lambda i, *v: go_on(*v).any() & (i < max_iter), lambda _, *v: step(*v), carry)


def repeat(n: int, body: Callable[..., Carry], carry: Carry) -> Carry:
    """Do `carry = body(i, *carry)` for i in 0 .. n - 1.

    Eager callers run a Python loop (i is an int); traced ones keep one copy of the body (i is an
    integer tensor), so that the size of a compiled program does not grow with n.
    """
    if n <= 1 or not _traced():
        for i in range(n):
            carry = body(i, *carry)
        return carry
    return _hop(lambda i, *_: i < n, body, carry)


def _traced() -> bool:
    return is_compiling() or get_proxy_mode() is not None


def _hop(cond: Callable[..., Tensor], body: Callable[..., Carry], carry: Carry) -> Carry:
    """torch.while_loop with a counter; it wants carries of one memory layout, none aliased."""

    def body_fn(i: Tensor, *values: Tensor) -> Carry:
        return (i + 1, *(v.clone(memory_format=torch.contiguous_format) for v in body(i, *values)))

    start = torch.zeros((), dtype=torch.int64, device=carry[0].device)
    values = tuple(v.clone(memory_format=torch.contiguous_format) for v in carry)
    return torch.while_loop(cond, body_fn, (start, *values))[1:]
