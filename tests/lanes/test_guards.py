"""Guards, neighbours, threads and numbers of worlds: none of them changes a result."""

import math

import pytest
import torch

from tests.lanes.harness import assert_close, compile, eager_batch, while_loop


def contacts(q, v):
    """A mass on springs over four planes: masked contributions, a solve and an iteration."""
    normal = torch.tensor([[1.0, 0.0, 0.2], [0.0, 1.0, 0.1], [0.3, 0.4, 0.9], [-0.5, 0.1, 0.8]])
    depth = q @ normal.T + 0.8  # (W, 4)
    active = depth < 0
    stiff = torch.where(active, 50.0 * torch.exp(-depth) + depth.square(), 0.0)
    jac = torch.where(active[..., None], normal * torch.sin(depth)[..., None] + normal, 0.0)
    hess = torch.eye(3) * 2 + jac.transpose(1, 2) @ (stiff[..., None] * jac)
    pull = (jac * (stiff * depth)[..., None]).sum(1)

    def go(a, n):
        return (a - v).norm(dim=-1) > 1e-3

    def body(a, n):
        on = active & ((jac @ a[..., None])[..., 0] < 0.2)
        bend = torch.where(on, stiff * torch.tanh((jac * a[:, None]).sum(-1)), 0.0)
        push = (jac * bend[..., None]).sum(1)
        chol = torch.linalg.cholesky(hess)
        step = torch.cholesky_solve((push + pull + a - v)[..., None], chol)[..., 0]
        return a - 0.5 * step, n + 1

    return while_loop(go, body, (v + 1.0, torch.zeros(q.shape[0], dtype=torch.int64)), 12)


def inputs(worlds, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(worlds, 3, generator=g), torch.randn(worlds, 3, generator=g)


@pytest.fixture(scope="module")
def guarded():
    return compile(contacts, *inputs(1))


def test_guards_are_made_and_change_nothing(guarded):
    q, v = inputs(129)
    q[:40] = 5.0  # whole blocks without a contact
    plain = compile(contacts, q, v, guards=False)
    assert guarded.report()["guards"] > 3
    assert plain.report()["guards"] == 0
    for a, b in zip(guarded(q, v), plain(q, v), strict=True):
        assert_close(a, b, 1e-6, 1e-6)
    for a, b in zip(guarded(q, v), eager_batch(contacts, q, v), strict=True):
        assert_close(a, b, 2e-4, 2e-4)


@pytest.mark.parametrize("worlds", [1, 3, 17, 64])
def test_a_world_does_not_depend_on_how_many_there_are(guarded, worlds):
    q, v = inputs(64)
    whole = guarded(q, v)
    part = guarded(q[:worlds], v[:worlds])
    for a, b in zip(whole, part, strict=True):
        assert torch.equal(a[:worlds], b)


def test_a_poisoned_neighbour_is_not_noticed(guarded):
    q, v = inputs(40)
    clean = guarded(q, v)
    for bad in (math.nan, math.inf, -1e38):
        for place in (0, 7, 39):
            dirty = v.clone()
            dirty[place] = bad
            out = guarded(q, dirty)
            others = torch.arange(40) != place
            for a, b in zip(clean, out, strict=True):
                assert torch.equal(a[others], b[others])
            if bad != bad:
                assert torch.isnan(out[0][place]).any()


def test_order_of_worlds(guarded):
    q, v = inputs(50)
    perm = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    for a, b in zip(guarded(q, v), guarded(q[perm], v[perm]), strict=True):
        assert torch.equal(a[perm], b)


def test_threads_and_repeats_are_bitwise_equal(guarded):
    q, v = inputs(333)
    results = [compile(contacts, q, v, threads=n)(q, v) for n in (1, 2, 3)]
    results.append(guarded(q, v))
    results.append(guarded(q, v))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert torch.equal(a, b)


def test_width_changes_nothing_but_rounding(guarded):
    q, v = inputs(70)
    wide = compile(contacts, q, v, width=2 * guarded.width)
    for a, b in zip(guarded(q, v), wide(q, v), strict=True):
        assert_close(a, b, 1e-5, 1e-5)


def test_masked_sums_of_both_signs():
    def fn(x):
        a, b = x[:, 0] > 0, x[:, 1] > 0
        y = x.exp().sum(-1)
        z = torch.where(a, y, 0.0) - torch.where(b, y * x[:, 0].sin(), 0.0)
        z = 2 - z - torch.where(a & b, x[:, 2].tanh() * y, 0.0)
        return torch.where(a, z / y, z), -torch.where(~a, x[:, 2].cos() * y, 0.0) + z

    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(2))
    c = compile(fn, x)
    for a, b in zip(c(x), fn(x), strict=True):
        assert_close(a, b, 1e-5, 1e-5)


def test_guard_on_what_it_guards():
    """A condition computed from a value that is itself used under the condition."""

    def fn(x):
        y = torch.exp(x).sin() * x.cos()
        deep = torch.where(y > 0.1, torch.log(y) * y.sqrt() + y.exp().tanh() * x.sin().exp(), 0.0)
        deeper = torch.where(
            (deep > 0.2) & (y > 0.1), deep.exp() * y.cos() + y.atan() * x.exp(), 0.0
        )
        return deep + deeper, torch.where(deeper > 0, deep, y)

    x = torch.randn(77, generator=torch.Generator().manual_seed(3))
    for a, b in zip(compile(fn, x)(x), fn(x), strict=True):
        assert_close(a, b, 1e-5, 1e-5)
