"""Other machines than this one: code for narrower registers and without mask registers."""

import platform
import sys
from dataclasses import replace

import pytest
import torch

from alloy.lanes.target import host
from tests.lanes.harness import assert_close, compile, eager_batch, special, while_loop

TARGETS = [{"lanes": host().lanes}, {"lanes": 4}]
if platform.machine() in ("x86_64", "AMD64"):
    TARGETS += [
        {"cpu": "x86-64", "features": "", "lanes": 4, "fma": False},
        {"cpu": "haswell", "features": "", "lanes": 8, "fma": True},
    ]


def mixed(x, n):
    """Floats, masks that cross a loop, integers, a solve and elementary functions."""
    on = x > 0.1
    y = torch.where(on, x.exp().sin() * x.cos() + x.atan() * x.tanh(), 0.0).sum(-1)

    def go(y, flag, k):
        return flag & (y.abs() < 50)

    def body(y, flag, k):
        return y * 1.5 + torch.where(on, x, 0.0).sum(-1) + 0.3, flag & (k < 9), k + n * 3

    y, flag, k = while_loop(go, body, (y, on.any(-1), n), 12)
    a = torch.diag_embed(x.square() + 1) + 0.1
    z = torch.cholesky_solve(x.unsqueeze(-1), torch.linalg.cholesky(a)).squeeze(-1)
    return y, flag, k, z, (k % 7).int(), torch.minimum(x, z), x.floor(), torch.round(x)


@pytest.mark.parametrize("target", TARGETS)
def test_registers_without_masks(monkeypatch, target):
    narrow = replace(host(), masks=False, **target)
    # the module, which the function of the same name hides
    monkeypatch.setattr(sys.modules["alloy.lanes.compile"], "host", lambda: narrow)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(37, 4, generator=g)
    n = torch.randint(0, 5, (37,), generator=g)
    c = compile(mixed, x, n)
    assert c.width == narrow.lanes
    for actual, expected in zip(c(x, n), eager_batch(mixed, x, n), strict=True):
        assert_close(actual, expected, 2e-5, 2e-5)
    s = special(19, 3)
    wave = compile(lambda s: (s.sin(), s.exp(), s.isfinite()), s)
    sin, exp, finite = wave(s)
    assert torch.equal(finite, s.isfinite())
    assert torch.isnan(sin[s.isnan()]).all() and torch.isnan(exp[s.isnan()]).all()
