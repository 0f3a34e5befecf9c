"""What every Triton kernel costs, found by compiling it ahead of time: no GPU is needed.

    python scripts/triton_report.py                          # all models, sm_80, sm_89, sm_90
    python scripts/triton_report.py --models HalfCheetah --targets 90 --check
    python scripts/triton_report.py --write docs/gpu.md      # the table between the two markers

Registers, stack (spills) and shared memory are read from the compiled code by the cuobjdump that
comes with Triton.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# set where our options leave it open, so that it is the same in every release
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import torch
import triton
from kernels import Launch, kernels, noted_launches
from suite import LANES
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from alloy.ops.triton import lane
from alloy.physics import forward, io
from alloy.physics.model import make_data

MODELS = ("HalfCheetah", "Ant", "Humanoid", "Go2", "GripperLift")
WORLDS = 256  # as many as any multiple of 16: the same code
MAX_STACK = 64  # bytes a thread may spill
MAX_SECONDS = 60.0  # to compile all kernels of a model for one target
BEGIN, END = "<!-- report -->", "<!-- end of report -->"
TYPES = {
    torch.float32: "*fp32", torch.float64: "*fp64", torch.int64: "*i64", torch.int32: "*i32",
    torch.bool: "*i1",
}  # fmt: skip
BANDWIDTH = {"H200": 4.8e12, "L4": 3.0e11}  # bytes/s, of the data sheets


@dataclass
class Cost:
    """A kernel compiled for one target."""

    seconds: float
    registers: int
    stack: int
    shared: int
    instructions: int


@dataclass
class Variant:
    """One specialisation of a kernel, and the models that use it."""

    launch: Launch
    source: ASTSource
    models: list[str] = field(default_factory=list)
    costs: dict[int, Cost] = field(default_factory=dict)


@dataclass
class Step:
    """What one physics step of a model launches."""

    launches: list[Launch]
    torch_calls: int
    bytes: int  # of each world that the kernels read and write, every value once


class CallCount(TorchDispatchMode):
    """Counts the torch operations that would be kernels of their own."""

    views = ("view", "expand", "select", "slice", "alias", "detach", "t.", "transpose", "permute",
             "unsqueeze", "squeeze", "movedim", "split", "unbind", "as_strided", "empty",
             "diagonal", "_unsafe_view", "reshape")  # fmt: skip

    def __init__(self) -> None:
        """Start at none."""
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__
        if not name.startswith(self.views):
            self.calls[name] += 1
        return func(*args, **(kwargs or {}))


def step_of(name: str) -> Step:
    """Note one step of a model."""
    m = io.put_model(LANES[name]().compile())
    d = make_data(m, WORLDS)
    with kernels(m), noted_launches():
        forward.step(m, d)  # makes the tables
        with noted_launches() as launches, CallCount() as count:
            forward.step(m, d)
    fields = [a for x in launches for a in x.args if isinstance(a, tuple) and len(a) == 3]
    fields = [a for a in fields if isinstance(a[0], Tensor) and a[2]]
    moved = sum(a[0].numel() * a[0].element_size() for a in fields) // WORLDS
    return Step(launches, count.calls.total(), moved)


def source_of(launch: Launch) -> ASTSource:
    """The specialisation that Triton would compile for these arguments."""
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], Any] = {}

    def kind(value: Any, path: tuple[int, ...]) -> Any:
        if isinstance(value, tuple):
            return tuple(kind(x, (*path, i)) for i, x in enumerate(value))
        if isinstance(value, Tensor):
            attributes[path] = [["tt.divisibility", 16]]
            return TYPES[value.dtype]
        if isinstance(value, float):
            return "fp32"
        if value == 1:
            constants[path] = 1
            return "constexpr"
        if value % 16 == 0:
            attributes[path] = [["tt.divisibility", 16]]
        return "i32" if abs(value) < 2**31 else "i64"

    kernel, signature = launch.kernel, {}
    for i, parameter in enumerate(kernel.params):
        if i < len(launch.args):
            signature[parameter.name] = kind(launch.args[i], (i,))
        elif parameter.is_constexpr:
            signature[parameter.name] = "constexpr"
            constants[(i,)] = launch.constants[parameter.name]
        else:
            signature[parameter.name] = kind(launch.constants[parameter.name], (i,))
    return ASTSource(kernel, signature, constants, attributes)


def compile_for(source: ASTSource, target: int) -> Cost:
    """Compile for a compute capability, e.g. 90, and read what it takes."""
    began = sum(os.times()[:4])  # of this process and the assembler that it starts
    compiled = triton.compile(source, target=GPUTarget("cuda", target, 32), options=lane.OPTIONS)
    seconds = sum(os.times()[:4]) - began
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = {name: int(n) for name, n in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}
    instructions = len(re.findall(r"^\s+(?:@%?\w+ )?[a-z]\w*\.", compiled.asm["ptx"], re.M))
    stack = used["STACK"] + used["LOCAL"]
    return Cost(seconds, used["REG"], stack, compiled.metadata.shared, instructions)


def variants_of(steps: dict[str, Step]) -> list[Variant]:
    """Every distinct specialisation, in the order of a step."""
    found: dict[str, Variant] = {}
    for model, step in steps.items():
        for launch in step.launches:
            source = source_of(launch)
            key = source.hash()
            variant = found.setdefault(key, Variant(launch, source))
            if model not in variant.models:
                variant.models.append(model)
    return list(found.values())


def kernel_table(variants: list[Variant], targets: list[int]) -> list[str]:
    """Markdown rows of the kernels."""
    head = ["kernel", "used by", *(f"registers sm_{t}" for t in targets), "spilled bytes",
            "shared bytes", "PTX instructions", "seconds to compile, all targets"]  # fmt: skip
    rows = [head, ["---"] * len(head)]
    for v in variants:
        costs = [v.costs[t] for t in targets]
        detail = {k: x for k, x in v.launch.constants.items() if k in ("SHAPES", "DIMS", "NORMAL")}
        name = " ".join([v.launch.name, *(str(x) for x in detail.values() if x != ())])
        rows.append([
            name,
            "all" if len(v.models) == len(MODELS) else ", ".join(v.models),
            *(str(c.registers) for c in costs),
            str(max(c.stack for c in costs)),
            str(max(c.shared for c in costs)),
            str(costs[-1].instructions),
            f"{sum(c.seconds for c in costs):.1f}",
        ])  # fmt: skip
    return ["| " + " | ".join(row) + " |" for row in rows]


def step_table(steps: dict[str, Step], seconds: dict[str, float]) -> list[str]:
    """Markdown rows of the models."""
    head = ["model", "kernels per substep", "torch calls per substep that stay",
            "kB per world that kernels touch", *(f"bandwidth bound {gpu}" for gpu in BANDWIDTH),
            "seconds to compile, one target"]  # fmt: skip
    rows = [head, ["---"] * len(head)]
    for name, step in steps.items():
        bounds = [f"{rate / step.bytes / 1e6:.0f} M steps/s" for rate in BANDWIDTH.values()]
        rows.append([name, str(len(step.launches)), str(step.torch_calls),
                     f"{step.bytes / 1e3:.1f}", *bounds, f"{seconds[name]:.0f}"])  # fmt: skip
    return ["| " + " | ".join(row) + " |" for row in rows]


def main() -> None:
    """Compile, print the tables, and complain where a bound is passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--targets", nargs="+", type=int, default=[80, 89, 90])
    parser.add_argument("--write", type=Path, help="put the tables between the file's markers")
    parser.add_argument("--check", action="store_true", help="fail on spills or slow compilation")
    args = parser.parse_args()
    steps = {name: step_of(name) for name in args.models}
    variants = variants_of(steps)
    for v in variants:
        v.costs = {t: compile_for(v.source, t) for t in args.targets}
    seconds = {
        name: max(
            sum(v.costs[t].seconds for v in variants if name in v.models) for t in args.targets
        )
        for name in steps
    }
    note = f"Triton {triton.__version__}, float32, {lane.BLOCK} worlds a program."
    tables = [note, "", *step_table(steps, seconds), "", *kernel_table(variants, args.targets)]
    print("\n".join(tables))
    if args.write:
        text = args.write.read_text()
        before, rest = text.split(BEGIN)
        after = rest.split(END)[1]
        args.write.write_text("\n".join([before + BEGIN, "", *tables, "", END + after]))
    stacks = {v.launch.name: max(c.stack for c in v.costs.values()) for v in variants}
    spilled = [name for name, stack in stacks.items() if stack > MAX_STACK]
    slow = [name for name, s in seconds.items() if s > MAX_SECONDS]
    if args.check and (spilled or slow):
        raise SystemExit(f"spills above {MAX_STACK} bytes: {spilled}; slow to compile: {slow}")


if __name__ == "__main__":
    main()
