"""What the tests of lanes share: special values, an eager loop, a comparison."""

import math
from unittest import mock

import torch

from alloy import lanes

SPECIAL = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 1e-3, math.pi, -math.pi / 2, 0.25, 3.0, -7.25),
    *(1e-30, -1e-30, 1e30, -1e30, 1e-40, -1e-42, 3.4e38, -3.4e38, 1e5, -99999.5, 88.0, -103.0),
    *(math.inf, -math.inf, math.nan),
)


def special(worlds, *shape, seed=0):
    """(worlds, *shape) float32: special values first, then random ones of many magnitudes."""
    g = torch.Generator().manual_seed(seed)
    n = math.prod((worlds, *shape))
    x = torch.randn(n, generator=g) * 10 ** torch.empty(n).uniform_(-3, 3, generator=g)
    x[: len(SPECIAL)] = torch.tensor(SPECIAL)[:n]
    x = x[torch.randperm(n, generator=g)] if seed else x
    return x.reshape(worlds, *shape)


def pairs(seed=0):
    """Two (W, 1) tensors that meet every special value with every other, and random pairs."""
    s = torch.tensor(SPECIAL)
    n = len(s)
    g = torch.Generator().manual_seed(seed)
    r = torch.randn(2, 137, generator=g)
    a = torch.cat([s.repeat_interleave(n), r[0]])[:, None]
    b = torch.cat([s.repeat(n), r[1]])[:, None]
    return a, b


def compile(fn, *inputs, **kw):
    """Compile without the cache on disk."""
    kw.setdefault("cache", False)
    return lanes.compile(fn, inputs, **kw)


def eager_while(cond, body, carry, additional=()):
    """What torch.while_loop means for one world."""
    carry = tuple(carry)
    while bool(cond(*carry, *additional)):
        carry = tuple(body(*carry, *additional))
    return carry


def while_loop(go_on, body, carry, max_iter):
    """A loop that each world leaves when its own go_on (W,) turns false; the rest waits frozen."""

    def step(i, *old):
        on = go_on(*old)
        new = body(*old)
        return i + 1, *(
            torch.where(on.reshape(on.shape + (1,) * (n.ndim - 1)), n, o)
            for n, o in zip(new, old, strict=True)
        )

    return torch.while_loop(
        lambda i, *values: go_on(*values).any() & (i < max_iter),
        step,
        (torch.zeros((), dtype=torch.int64), *carry),
    )[1:]


def eager_batch(fn, *inputs):
    """Run a function in torch on all worlds at once, loops included."""
    with mock.patch.object(torch, "while_loop", eager_while):
        return fn(*inputs)


def eager(fn, *inputs):
    """Run a function world by world in torch, loops included, and stack the results."""
    with mock.patch.object(torch, "while_loop", eager_while):
        rows = [fn(*(x[w : w + 1] for x in inputs)) for w in range(len(inputs[0]))]
    if isinstance(rows[0], torch.Tensor):
        return torch.cat(rows)
    return tuple(torch.cat(parts) for parts in zip(*rows, strict=True))


def assert_close(actual, expected, rtol=2e-6, atol=1e-6, what=""):
    """Equal NaN and infinities, everything else within tolerance of the (float64) expectation."""
    assert actual.shape == expected.shape, (what, actual.shape, expected.shape)
    if not expected.is_floating_point():
        assert actual.dtype == expected.dtype, (what, actual.dtype, expected.dtype)
        assert torch.equal(actual, expected), what
        return
    torch.testing.assert_close(
        actual.double(), expected.float().double(), rtol=rtol, atol=atol, equal_nan=True,
        msg=lambda m: f"{what}: {m}",
    )  # fmt: skip
