"""How much work a step gives a GPU: counted in Triton's interpreter, on states with contacts.

    python scripts/triton_work.py                     # all models, minutes; JSON
    python scripts/triton_work.py --models HalfCheetah

One block of 32 worlds takes a physics step with all kernels interpreted, and every operation on a
block is counted: it is an instruction of a warp, before the compiler shares, fuses (multiply and
add) or hoists any. So the numbers are upper bounds of instructions and right for flops and bytes
asked for. scripts/triton_report.py turns them into bounds for a card.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
from gpu_pack import MODELS, states
from kernels import fast_interpreter
from suite import LANES
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
    """Counts the operations on blocks, by kind: all, flops, memory."""
    counts: Counter[str] = Counter()
    names = [n for n in dir(InterpreterBuilder) if n.startswith("create_") and n not in FREE]
    originals = {name: getattr(InterpreterBuilder, name) for name in names}

    def counting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            shown = args[0] if name in MEMORY else result  # an address has the value's shape
            if getattr(getattr(shown, "data", None), "size", 1) > 1:
                counts["all"] += 1
                counts["flops"] += name in FLOPS
                counts["memory"] += name in MEMORY
            return result

        return method

    try:
        for name, original in originals.items():
            setattr(InterpreterBuilder, name, counting(name, original))
        yield counts
    finally:
        for name, original in originals.items():
            setattr(InterpreterBuilder, name, original)


def work_of(name: str) -> dict[str, float]:
    """Instructions of a warp, flops of a world and bytes that a world asks for, per step."""
    mj = LANES[name]().compile()
    m = io.put_model(mj)
    d = states(mj, m, WORLDS)
    with ops.kernels(True), counted() as counts:
        forward.step(m, d)
    return {"instructions": counts["all"], "flops": counts["flops"], "bytes": 4 * counts["memory"]}


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
        print(name, work[name], file=sys.stderr, flush=True)
    print(json.dumps(work))


if __name__ == "__main__":
    main()
