"""The entry point: structures, memory, errors, budget, reports."""

import logging
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch

from alloy import lanes
from alloy.lanes.pool import Pool
from tests.lanes.harness import compile


@dataclass(frozen=True)
class State:
    q: torch.Tensor
    extra: dict
    label: str = "static"


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


def step(state, action):
    q = state.q + action * 0.5
    return State(q, {"n": state.extra["n"] + 1}, state.label), [Pair(q.sum(-1), q > 0), None, 3]


def world_last(*shape, dtype=torch.float32):
    return torch.zeros(*shape[1:], shape[0], dtype=dtype).movedim(-1, 0)


def test_nested_structures_come_back():
    state = State(torch.randn(5, 3), {"n": torch.arange(5)})
    action = torch.randn(5, 3)
    new, (pair, none, three) = compile(step, state, action)(state, action)
    expected, (expected_pair, *_) = step(state, action)
    assert type(new) is State and new.label == "static" and none is None and three == 3
    torch.testing.assert_close(new.q, expected.q)
    assert torch.equal(new.extra["n"], expected.extra["n"])
    torch.testing.assert_close(pair.first, expected_pair.first)
    assert torch.equal(pair.second, expected_pair.second)


def test_results_are_world_last_and_fresh():
    x = torch.randn(21, 3)
    c = compile(lambda x: x * 2, x)
    a, b = c(x), c(x)
    assert a.stride() == (1, 21)
    assert a.data_ptr() != b.data_ptr()


@pytest.mark.parametrize("worlds", [1, 16, 37])
def test_memory_in_any_layout(worlds):
    x = torch.randn(worlds, 4, 3)
    c = compile(lambda x: x.sum(1) * 2, x)
    expected = x.sum(1) * 2
    for given in (x, x.transpose(1, 2).contiguous().transpose(1, 2),
                  x.movedim(0, -1).contiguous().movedim(-1, 0), x[:1].expand(worlds, 4, 3),
                  torch.cat([x, x], 1)[:, ::2]):  # fmt: skip
        torch.testing.assert_close(c(given), given.sum(1) * 2)
    for out in (torch.zeros(worlds, 3), world_last(worlds, 3), torch.zeros(worlds, 6)[:, ::2]):
        assert c(x, out=out) is out
        torch.testing.assert_close(out, expected)


def test_results_into_the_inputs():
    q, v = world_last(33, 2), world_last(33, 2)
    v += torch.arange(33.0)[:, None]
    c = compile(lambda q, v: (q + v, v * 0.5), q, v)
    run = c.bind(q, v, out=(q, v))
    for _ in range(3):
        run()
    torch.testing.assert_close(q, torch.arange(33.0)[:, None] * 1.75 * torch.ones(2))


def test_rows_beyond_the_worlds_are_not_written():
    x = torch.randn(2, 5).movedim(-1, 0)
    buffer = torch.full((2 * 5 + 64,), -7.0)
    out = buffer[:10].view(2, 5).movedim(-1, 0)
    compile(lambda x: x + 1, x)(x, out=out)
    torch.testing.assert_close(out, x + 1)
    assert (buffer[10:] == -7).all()


def test_shared_arguments_are_folded():
    table, x = torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.randn(9, 2)
    c = compile(lambda t, x: x @ t, table, x, shared=(0,))
    torch.testing.assert_close(c(None, x), x @ table)
    assert c.report()["statements"] == 0


def test_wrong_arguments():
    x = torch.randn(4, 3)
    c = compile(lambda x, y: {"out": x + y}, x, x)
    with pytest.raises(ValueError, match="expected 2 arguments, received 1"):
        c(x)
    with pytest.raises(ValueError, match=r"shape \(4, 2\), expected \(W, 3\)"):
        c(x, torch.randn(4, 2))
    with pytest.raises(ValueError, match="has 5 worlds, an earlier input has 4"):
        c(x, torch.randn(5, 3))
    with pytest.raises(ValueError, match="not nested"):
        c(x, (x,))
    with pytest.raises(ValueError, match=r"expected \(4, 3\)"):
        c(x, x, out={"out": torch.zeros(4, 2)})
    with pytest.raises(ValueError, match="not nested as the result"):
        c(x, x, out=torch.zeros(4, 3))


def test_what_is_not_world_batched():
    with pytest.raises(ValueError, match="needs a world axis"):
        compile(lambda x: x, torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"output 0 .* needs a world axis"):
        compile(lambda x: x.sum(), torch.randn(3, 2))
    with pytest.raises(ValueError, match=r"dtype torch.float16"):
        compile(lambda x: x, torch.randn(3, 2).half())
    with pytest.raises(ValueError, match="width 5"):
        compile(lambda x: x, torch.randn(3, 2), width=5)


def test_unsupported_operator_names_itself_and_the_line():
    def fn(x):
        y = x + 1
        return torch.special.bessel_j0(y)

    with pytest.raises(lanes.UnsupportedOperator, match=r"aten\.special_bessel_j0") as e:
        compile(fn, torch.randn(3))
    assert "test_compile.py" in e.value.source
    assert "torch.special.bessel_j0(y)" in e.value.source
    assert isinstance(e.value, NotImplementedError)


def test_unsupported_form_says_which():
    with pytest.raises(lanes.UnsupportedOperator, match="ord=3"):
        compile(lambda x: torch.linalg.vector_norm(x, 3, dim=-1), torch.randn(3, 2))


def test_budget():
    x = torch.randn(3, 5)
    with pytest.raises(lanes.OverBudget, match="over its budget of 4") as e:
        compile(lambda x: x.sin(), x, budget=4)
    assert e.value.statements > 4
    assert compile(lambda x: x.sin(), x, budget=10**4)(x).shape == (3, 5)


def test_report_and_progress(caplog):
    seen = []
    x = torch.randn(3, 30)
    with caplog.at_level(logging.INFO, logger="alloy.lanes"):
        c = compile(lambda x: x.sin().cumsum(-1), x, name="waves", threads=1,
                    progress=lambda *a: seen.append(a))  # fmt: skip
    report = c.report()
    assert report["name"] == "waves" and report["threads"] == 1 and not report["cache_hit"]
    assert report["statements"] > 30 and report["seconds"] > 0
    assert sum(report["pieces"].values()) == report["statements"]
    assert seen[-1] == (report["functions"] + 1,) * 2
    assert "lanes: compiling waves" in caplog.text


def test_large_programs_are_cut_into_functions():
    x = torch.randn(40, 12, generator=torch.Generator().manual_seed(0)) * 0.1

    def fn(x):
        for _ in range(6):
            x = torch.tanh(x @ torch.ones(12, 12).tril() * 0.2 + x.sin())
        return x

    c = compile(fn, x)
    assert c.report()["functions"] > 2
    torch.testing.assert_close(c(x), fn(x), rtol=1e-4, atol=1e-5)


def test_pool_runs_every_job_and_passes_errors_on():
    pool = Pool(2)
    seen = []
    for _ in range(50):
        pool.run(seen.append, 3)
    assert sorted(seen) == sorted([0, 1, 2] * 50)

    def fail(k):
        if k == 0:
            raise KeyError("job")

    with pytest.raises(KeyError):
        pool.run(fail, 3)
    pool.run(seen.append, 2)
    assert len(seen) == 152
