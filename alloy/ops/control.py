"""Loops of a step: eager, traced and compiled callers all go through here."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.fx.experimental.proxy_tensor import get_proxy_mode

Carry = tuple[Tensor, ...]


def while_loop(body: Callable[..., Carry], carry: Carry, max_iter: int) -> Carry:
    """Repeat `carry = body(*carry)` while any world is on, at most `max_iter` times.

    Args:
        body: maps the carry to the next carry (same shapes and dtypes), for all worlds at once. It
            must leave the result of a world that is not on as it is, so that no world's result
            depends on how long its neighbours go on, and it never turns such a world on again.
        carry: tensors with the world axis first; the first one says which worlds are on, bool.
        max_iter: bound on the number of iterations.

    Returns:
        The carry after the last iteration.

    Eager mode stops by looking at the flags (one device sync per iteration on a GPU). Under
    `torch.compile` and `make_fx` the loop becomes `torch.while_loop` with a body and a condition.
    """
    if not traced():
        for _ in range(max_iter):
            if not carry[0].any():
                break
            carry = body(*carry)
        return carry
    return _hop(lambda i, on, *_: on.any() & (i < max_iter), lambda _, *v: body(*v), carry)


def repeat(n: int, body: Callable[..., Carry], carry: Carry) -> Carry:
    """Do `carry = body(i, *carry)` for i in 0 .. n - 1.

    Eager callers run a Python loop (i is an int); traced ones keep one copy of the body (i is an
    integer tensor), so that the size of a compiled program does not grow with n.
    """
    if n <= 1 or not traced():
        for i in range(n):
            carry = body(i, *carry)
        return carry
    return _hop(lambda i, *_: i < n, body, carry)


def where_on(on: Tensor, body: Callable[..., Carry], *tensors: Tensor) -> Carry:
    """`body(on, *tensors)` of the elements that are on; zeros elsewhere.

    Args:
        on: (...,) bool.
        body: maps `on` and tensors with its leading dimensions to tensors with these; no element
            may depend on another one.
        tensors: of leading dimensions that broadcast to those of `on`.

    Eager mode looks at the flags and hands on one leading dimension of those elements only, so that
    the cost follows what is on. Under `torch.compile` and `make_fx` all elements are computed.
    """
    lead = on.shape
    wide = [t.expand(*lead, *t.shape[len(lead) :]) for t in tensors]
    if traced():
        out = body(on, *wide)
        masks = [on.reshape(*lead, *([1] * (x.ndim - len(lead)))) for x in out]
        return tuple(
            torch.where(mask, x, torch.zeros_like(x)) for mask, x in zip(masks, out, strict=True)
        )
    places = on.nonzero(as_tuple=True)
    out = body(on[places], *(t[places] for t in wide))
    return tuple(x.new_zeros(*lead, *x.shape[1:]).index_put(places, x) for x in out)


def in_use(count: Tensor, most: int) -> int:
    """The largest of some counts, which are at most so large; `most` where they are not known yet.

    Eager mode looks at them, so that the cost follows what is there and not what there is room for.
    """
    return most if traced() or not count.numel() else min(most, int(count.max()))


def values(x: Tensor, count: int) -> list[int]:
    """Which of 0 .. count - 1 occur among whole numbers; all, where they are not known yet."""
    return list(range(count)) if traced() else sorted(set(x.tolist()))


def traced() -> bool:
    """Whether this is `torch.compile` or `make_fx`, for which shapes must not depend on data."""
    return is_compiling() or get_proxy_mode() is not None


def _hop(cond: Callable[..., Tensor], body: Callable[..., Carry], carry: Carry) -> Carry:
    """torch.while_loop with a counter; it wants carries of one memory layout, none aliased."""

    def body_fn(i: Tensor, *values: Tensor) -> Carry:
        return (i + 1, *(v.clone(memory_format=torch.contiguous_format) for v in body(i, *values)))

    start = torch.zeros((), dtype=torch.int64, device=carry[0].device)
    values = tuple(v.clone(memory_format=torch.contiguous_format) for v in carry)
    return torch.while_loop(cond, body_fn, (start, *values))[1:]
