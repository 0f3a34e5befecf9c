"""What scripts/triton_work.py counts, on a kernel whose operations can be counted by hand."""

from pathlib import Path

import torch
import triton
import triton.language as tl

from alloy.ops.triton import lane

SCRIPTS = Path(__file__).parents[3] / "scripts"


@triton.jit
def _axpy_kernel(x, y, out, n_world, BLOCK: tl.constexpr):
    w, m = lane.worlds_of(n_world, BLOCK)
    lane.store(out, 0, w, m, 2.0 * lane.load(x, 0, w, m) + lane.load(y, 0, w, m))


def test_operations_on_blocks_are_counted(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))  # the scripts import each other by name
    from triton_work import counted

    x, y, out = torch.ones(3, 1), torch.full((3, 1), 0.5), lane.empty(3, 1, like=torch.zeros(1))
    with counted() as counts:
        lane.launch(_axpy_kernel, 3, x, y, out)
    assert (out == 2.5).all()
    assert (counts["flops"], counts["memory"]) == (2, 3)
    # beside them the worlds' numbers and mask and three addresses; the program's number is a scalar
    assert counts["block"] >= 5 + 3 and counts["scalar"] >= 1
    before = dict(counts)
    lane.launch(_axpy_kernel, 3, x, y, out)
    assert counts == before, "counted outside"
