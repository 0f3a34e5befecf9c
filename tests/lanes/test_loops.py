"""Loops: each world leaves on its own, counters become trip counts, constants stay constant."""

import torch

from tests.lanes.harness import assert_close, compile, eager, eager_batch, while_loop


def newton_root(x):
    """Square root by Newton's method with a line search nested inside."""
    y0 = torch.ones_like(x)

    def go(y, n):
        return ((y * y - x).abs() > 1e-5 * x).all(-1)

    def body(y, n):
        step = (x - y * y) / (2 * y)

        def worse(t, k):
            return ((y + t * step).square() - x).abs().sum(-1) > (y * y - x).abs().sum(-1)

        def halve(t, k):
            return t * 0.5, k + 1

        t, k = while_loop(worse, halve, (torch.ones_like(y), n * 0), 20)
        return y + t * step, n + 1

    return while_loop(go, body, (y0, torch.zeros(x.shape[0], dtype=torch.int64)), 60)


def test_nested_loops_with_their_own_ends():
    x = torch.logspace(-3, 4, 53)[:, None]
    root, count = compile(newton_root, x)(x)
    expected, expected_count = eager_batch(newton_root, x)
    assert_close(root, expected, 1e-5, 0)  # an iteration may stop one rounding earlier
    assert (count - expected_count).abs().max() <= 1
    assert_close(root, x.sqrt(), 1e-4, 0)
    assert len(count.unique()) > 3


def test_plain_while_loop_with_closure():
    def fn(x, y):
        def cond(i, a, flag):
            return (i < 7) & (a.abs().amax(-1) < 100).all() & ~flag.any()

        def body(i, a, flag):
            return i + 1, a * y + x, flag | (a.sum(-1) > 50)

        start = (torch.zeros(x.shape[0], dtype=torch.int64), x, torch.zeros(x.shape[0]) > 1)
        return torch.while_loop(cond, body, start)

    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(41, 3, generator=g), torch.randn(41, 3, generator=g) * 3
    got, expected = compile(fn, x, y)(x, y), eager(fn, x, y)
    for a, b in zip(got, expected, strict=True):
        assert_close(a, b, 1e-5, 1e-5)


def test_counted_loop_is_rolled():
    def fn(x):
        def body(i, a):
            return i + 1, a * 1.5 + torch.sin(a)

        return torch.while_loop(
            lambda i, a: (i < 5).all(), body, (torch.zeros(x.shape[0], dtype=torch.int64), x)
        )[1]

    x = torch.randn(19, 2)
    c = compile(fn, x)
    expected = x
    for _ in range(5):
        expected = expected * 1.5 + torch.sin(expected)
    assert_close(c(x), expected, 1e-5, 1e-5)
    assert c.report()["loops"] == 1
    assert c.report()["statements"] < 90


def test_counter_is_a_value():
    def fn(x):
        def body(i, a):
            return i + 2, a + i.to(x.dtype)

        return torch.while_loop(
            lambda i, a: (i < 9).all(), body, (torch.zeros(x.shape[0], dtype=torch.int64), x)
        )

    x = torch.randn(7)
    i, a = compile(fn, x)(x)
    assert torch.equal(i, torch.full((7,), 10))
    assert_close(a, x + 20)


def test_carried_constants_and_swaps():
    def fn(x):
        def body(i, a, b, zero, fixed):
            return i + 1, b, a + fixed, zero * a, fixed

        n = torch.zeros(x.shape[0], dtype=torch.int64)
        start = (n, x, 2 * x, torch.zeros_like(x), torch.ones_like(x))
        return torch.while_loop(lambda i, *_: (i < 3).all(), body, start)

    x = torch.randn(18)
    _, a, b, zero, fixed = compile(fn, x)(x)
    first, second = x, 2 * x
    for _ in range(3):
        first, second = second, first + 1
    assert_close(a, first)
    assert_close(b, second)
    assert torch.equal(zero, torch.zeros(18))
    assert torch.equal(fixed, torch.ones(18))


def test_loop_that_never_runs_and_loop_without_carried_results():
    def fn(x):
        out = torch.while_loop(
            lambda i, a: (i < 0).all(), lambda i, a: (i + 1, a * 2),
            (torch.zeros(x.shape[0], dtype=torch.int64), x),
        )  # fmt: skip
        return out[1], x + 1

    x = torch.randn(5)
    a, b = compile(fn, x)(x)
    assert torch.equal(a, x)
    assert_close(b, x + 1)


def test_invariant_work_is_done_once():
    def fn(x, y):
        return while_loop(
            lambda a, n: a < 10, lambda a, n: (a + torch.exp(y).square() * 0.3 + 0.1, n + 1),
            (x, torch.zeros(x.shape[0], dtype=torch.int64)), 40,
        )  # fmt: skip

    x, y = torch.randn(33), torch.randn(33)
    got, expected = compile(fn, x, y)(x, y), eager_batch(fn, x, y)
    assert_close(got[0], expected[0], 1e-4, 1e-4)
    assert torch.equal(got[1], expected[1])
