"""How much work a step gives a GPU: counted in Triton's interpreter, on states with contacts.

    python scripts/triton_work.py                     # all models, minutes; JSON
    python scripts/triton_work.py --models HalfCheetah

One block of 32 worlds takes a physics step with all kernels interpreted, and every operation is
counted. It is an instruction of a warp, also where it is on a scalar (a table's entry, an address),
before the compiler shares, fuses (multiply and add) or hoists any; what a loop's counter takes is
not in it. Only operations on blocks are flops, one for each world. Bytes are what loads and stores
of blocks ask for, whatever a cache answers. scripts/triton_report.py turns them into bounds for a
card.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
from gpu_pack import MODELS, states
from kernels import fast_interpreter
from triton.runtime.interpreter import InterpreterBuilder

from alloy import ops
from alloy.ops.triton import lane
from alloy.physics import forward, io

WORLDS = 32
# floating-point operations; a square root or quotient is counted as one
FLOPS = {f"create_{name}" for name in (
    "fadd", "fsub", "fmul", "fdiv", "precise_divf", "sqrt", "precise_sqrt", "sin", "cos", "exp",
    "log", "fma")}  # fmt: skip
# a value is 4 bytes: float32, int32 tables are read as scalars
MEMORY = {f"create_{name}" for name in ("load", "masked_load", "store", "masked_store")}
# no instruction: shapes, types, constants
FREE = {f"create_{name}" for name in (
    "splat", "broadcast", "expand_dims", "bitcast", "reshape", "unsplat", "make_range", "barrier",
    "get_program_id", "get_num_programs")}  # fmt: skip


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts operations by kind: scalar, and those on blocks: block, of them flops and memory."""
    counts: Counter[str] = Counter()
    names = [n for n in dir(InterpreterBuilder) if n.startswith("create_") and n not in FREE]
    originals = {name: getattr(InterpreterBuilder, name) for name in names}

    def counting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            shown = args[0] if name in MEMORY else result  # an address has the value's shape
            if getattr(getattr(shown, "data", None), "size", 1) > 1:
                counts["block"] += 1
                counts["flops"] += name in FLOPS
                counts["memory"] += name in MEMORY
            else:
                counts["scalar"] += 1
            return result

        return method

    try:
        for name, original in originals.items():
            setattr(InterpreterBuilder, name, counting(name, original))
        yield counts
    finally:
        for name, original in originals.items():
            setattr(InterpreterBuilder, name, original)


def work_of(name: str) -> dict[str, dict[str, int]]:
    """What every kernel of a step does, and their total: see `summary`."""
    mj = MODELS[name]()
    m = io.put_model(mj)
    d = states(mj, m, WORLDS)
    by_kernel: dict[str, Counter[str]] = {}
    original = lane.run
    with ops.kernels(True), counted() as counts:
        lane.run = partial(_noted, original, counts, by_kernel)
        try:
            forward.step(m, d)
        finally:
            lane.run = original
    return {kernel: summary(c) for kernel, c in by_kernel.items()} | {"total": summary(counts)}


def _noted(
    run: Callable[..., Any], counts: Counter[str], by_kernel: dict[str, Counter[str]],
    kernel: Any, *parts: Any,
) -> None:  # fmt: skip
    """Start a kernel and note what it adds to the counts."""
    before = counts.copy()
    run(kernel, *parts)
    name = kernel.__name__.strip("_").removesuffix("_kernel")
    by_kernel.setdefault(name, Counter()).update(counts - before)


def summary(c: Counter[str]) -> dict[str, int]:
    """Instructions of a warp, flops of a world and bytes that a world asks for."""
    instructions = c["block"] + c["scalar"]
    return {"instructions": instructions, "flops": c["flops"], "bytes": 4 * c["memory"]}


def main() -> None:
    """Count, print as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    args = parser.parse_args()
    assert lane.BLOCK == WORLDS
    fast_interpreter()
    torch.set_grad_enabled(False)
    work = {}
    for name in args.models:
        work[name] = work_of(name)
        for kernel, counts in work[name].items():
            print(f"{name} {kernel}: {counts}", file=sys.stderr, flush=True)
    print(json.dumps(work))


if __name__ == "__main__":
    main()
