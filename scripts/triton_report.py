"""What every Triton kernel costs, found by compiling it ahead of time: no GPU is needed.

    python scripts/triton_report.py                  # all models; sm_80, sm_89, sm_90, gfx942
    python scripts/triton_report.py --models HalfCheetah --targets 90 --check
    python scripts/triton_report.py --work           # instead, what binds a step, minutes
    python scripts/triton_report.py --write docs/gpu.md  # the tables between two markers there

Registers, stack (spills) and shared memory are read from the compiled code, for NVIDIA by the
cuobjdump that comes with Triton. Seconds are processor time, of one process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# set where our options leave it open, so that it is the same in every release
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import torch
import triton
from gpu_pack import MODELS
from kernels import Launch, noted_launches
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from alloy import ops
from alloy.ops.triton import lane
from alloy.physics import forward, io
from alloy.physics.model import make_data

WORLDS = 256  # as many as any multiple of 16: the same code
MAX_SPILLED = 64  # bytes of a thread
MAX_SECONDS = 60.0  # to compile all kernels of a model for one target
# of a kernel, a little over twice what the slowest variant took when this was written
MAX_KERNEL_SECONDS = {"solve": 25.0, "contacts": 18.0, "kinematics": 18.0}
MAX_OTHER_SECONDS = 8.0
TARGETS = {
    "80": GPUTarget("cuda", 80, 32), "89": GPUTarget("cuda", 89, 32),
    "90": GPUTarget("cuda", 90, 32), "gfx942": GPUTarget("hip", "gfx942", 64),
}  # fmt: skip
Work = dict[str, dict[str, dict[str, int]]]  # model, kernel or total, what is counted
COSTS = "<!-- report -->", "<!-- end of report -->"
WORK = "<!-- work -->", "<!-- end of work -->"
TYPES = {
    torch.float32: "*fp32", torch.float64: "*fp64", torch.int64: "*i64", torch.int32: "*i32",
    torch.bool: "*i1",
}  # fmt: skip


@dataclass
class Card:
    """Peaks of a GPU, per second, from its data sheet."""

    bytes: float
    flops: float  # float32, multiply and add counted as two
    issues: float  # instructions of a warp: multiprocessors * schedulers * clock


CARDS = {
    "H200": Card(4.8e12, 67e12, 132 * 4 * 1.98e9),
    "L4": Card(3.0e11, 30.3e12, 58 * 4 * 2.04e9),
}


@dataclass
class Cost:
    """A kernel compiled for one target."""

    seconds: float
    registers: int
    spilled: int
    instructions: int
    shared: int


@dataclass
class Variant:
    """One specialisation of a kernel, and the models that use it."""

    launch: Launch
    models: list[str] = field(default_factory=list)
    costs: dict[str, Cost] = field(default_factory=dict)


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
    m = io.put_model(MODELS[name]())
    d = make_data(m, WORLDS)
    with ops.kernels(True), noted_launches():
        forward.step(m, d)  # makes the tables
        with noted_launches() as launches, CallCount() as count:
            forward.step(m, d)
    fields = [a for x in launches for a in x.args if isinstance(a, tuple) and len(a) == 3]
    fields = [a for a in fields if isinstance(a[0], Tensor) and a[2]]
    moved = sum(a[0].numel() * a[0].element_size() for a in fields) // WORLDS
    return Step(launches, count.calls.total(), moved)


def source_of(launch: Launch, block: int) -> ASTSource:
    """The specialisation that Triton would compile for these arguments and worlds a program."""
    given = launch.constants | {"BLOCK": block}
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
            constants[(i,)] = given[parameter.name]
        else:
            signature[parameter.name] = kind(given[parameter.name], (i,))
    return ASTSource(kernel, signature, constants, attributes)


def compile_for(launch: Launch, name: str) -> Cost:
    """Compile for one of TARGETS and read what it takes."""
    target = TARGETS[name]
    source = source_of(launch, lane.WARPS * target.warp_size)
    began = sum(os.times()[:4])  # of this process and the assembler that it starts
    compiled = triton.compile(source, target=target, options=lane.OPTIONS)
    seconds = sum(os.times()[:4]) - began
    read = _read_cubin if target.backend == "cuda" else _read_amdgcn
    return Cost(seconds, *read(compiled.asm), compiled.metadata.shared)


def _read_cubin(asm: dict[str, Any]) -> tuple[int, int, int]:
    """Registers, spilled bytes, PTX instructions.

    An array that the code declares is not a spill: sine and cosine of large angles have one.
    """
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(asm["cubin"])
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = {name: int(n) for name, n in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}
    instructions = re.findall(r"^\s+(?:@%?\w+ )?[a-z]\w*\.", asm["ptx"], re.M)
    arrays = sum(map(int, re.findall(r"\.local \.align.*\[(\d+)\];", asm["ptx"])))
    spilled = max(0, used["STACK"] + used["LOCAL"] - 8 * -(-arrays // 8))
    return used["REG"], spilled, len(instructions)


def _read_amdgcn(asm: dict[str, Any]) -> tuple[int, int, int]:
    """Vector registers, bytes in private memory, machine instructions."""
    text = asm["amdgcn"]
    names = ("vgpr_count", "agpr_count", "private_segment_fixed_size")
    vector, matrix, stack = (int(re.findall(rf"\.{name}:\s+(\d+)", text)[0]) for name in names)
    return vector + matrix, stack, len(re.findall(r"^\t[a-z]\w*_", text, re.M))


def variants_of(steps: dict[str, Step]) -> list[Variant]:
    """Every distinct specialisation, in the order of a step."""
    found: dict[str, Variant] = {}
    for model, step in steps.items():
        for launch in step.launches:
            key = source_of(launch, lane.BLOCK).hash()
            variant = found.setdefault(key, Variant(launch))
            if model not in variant.models:
                variant.models.append(model)
    return list(found.values())


def processor() -> str:
    """What compiles, as Linux names it."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.*)$", info.read_text(), re.M) if info.exists() else []
    return f"{len(names)} x {names[0]}" if names else platform.machine()


def label(target: str) -> str:
    """A target's name as its vendor writes it."""
    return f"sm_{target}" if TARGETS[target].backend == "cuda" else target


def kernel_table(variants: list[Variant], targets: list[str]) -> list[str]:
    """Markdown rows of the kernels."""
    head = ["kernel", "used by", *(f"registers {label(t)}" for t in targets),
            f"instructions {label(targets[0])}", "spilled bytes", "shared bytes",
            "seconds to compile, one target"]  # fmt: skip
    rows = [head, ["---"] * len(head)]
    for v in variants:
        costs = [v.costs[t] for t in targets]
        detail = {k: x for k, x in v.launch.constants.items() if k in ("KINDS", "DIMS")}
        name = " ".join([v.launch.name, *(str(x) for x in detail.values() if x != ())])
        rows.append([
            name,
            "all" if len(v.models) == len(MODELS) else ", ".join(v.models),
            *(str(c.registers) for c in costs),
            str(costs[0].instructions),
            str(max(c.spilled for c in costs)),
            str(max(c.shared for c in costs)),
            f"{max(c.seconds for c in costs):.1f}",
        ])  # fmt: skip
    return ["| " + " | ".join(row) + " |" for row in rows]


def step_table(steps: dict[str, Step], seconds: dict[str, float]) -> list[str]:
    """Markdown rows of the models."""
    head = ["model", "kernels per substep", "torch calls per substep that stay",
            "kB per world that kernels touch", "seconds to compile, one target"]  # fmt: skip
    rows = [head, ["---"] * len(head)]
    for name, step in steps.items():
        rows.append([name, str(len(step.launches)), str(step.torch_calls),
                     f"{step.bytes / 1e3:.1f}", f"{seconds[name]:.0f}"])  # fmt: skip
    return ["| " + " | ".join(row) + " |" for row in rows]


def work_of(models: list[str], counts: Path | None) -> Work:
    """What scripts/triton_work.py counts, or what a run of it has left in a file."""
    if counts:
        return json.loads(counts.read_text())
    script = Path(__file__).parent / "triton_work.py"
    command = [sys.executable, str(script), "--models", *models]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def work_table(steps: dict[str, Step], work: Work) -> list[str]:
    """Markdown rows of what binds the models' steps, in million steps/s of all worlds together."""
    kinds = ("bytes", "flops", "issues")
    head = ["model", "flops", "warp instructions", "kB asked for", "kB that kernels touch",
            *(f"{card}: bound by {kind}" for card in CARDS for kind in kinds)]  # fmt: skip
    rows = [head, ["---"] * len(head)]
    for name, step in steps.items():
        total = work[name]["total"]
        needs = (step.bytes, total["flops"], total["instructions"] / 32)
        bounds = [getattr(card, kind) / need / 1e6 for card in CARDS.values()
                  for kind, need in zip(kinds, needs, strict=True)]  # fmt: skip
        rows.append([name, f"{total['flops']:,}", f"{total['instructions']:,}",
                     f"{total['bytes'] / 1e3:.0f}", f"{step.bytes / 1e3:.0f}",
                     *(f"{b:,.0f}" if b >= 100 else f"{b:.3g}" for b in bounds)])  # fmt: skip
    return ["| " + " | ".join(row) + " |" for row in rows]


def share_table(work: Work) -> list[str]:
    """Markdown rows of the kernels' shares of a step's instructions, in percent."""
    kernels = list(dict.fromkeys(k for counts in work.values() for k in counts if k != "total"))
    rows = [["model", *kernels], ["---"] * (1 + len(kernels))]
    for name, counts in work.items():
        total = counts["total"]["instructions"]
        shares = [counts.get(k, {"instructions": 0})["instructions"] / total for k in kernels]
        rows.append([name, *(f"{100 * x:.0f}" if x else "-" for x in shares)])
    return ["| " + " | ".join(row) + " |" for row in rows]


def put_between(path: Path, begin: str, end: str, lines: list[str]) -> None:
    """Replace what stands between two markers in a file."""
    before, rest = path.read_text().split(begin)
    after = rest.split(end)[1]
    path.write_text("\n".join([before + begin, "", *lines, "", end + after]))


def show(lines: list[str], marks: tuple[str, str], path: Path | None) -> None:
    """Print, and put between the marks of a file if there is one."""
    print("\n".join(lines))
    if path:
        put_between(path, *marks, lines)


def complaints(variants: list[Variant], seconds: dict[str, float]) -> list[str]:
    """What is beyond a bound: spills, seconds of a kernel, seconds of a model."""
    wrong = []
    for v in variants:
        bound = MAX_KERNEL_SECONDS.get(v.launch.name, MAX_OTHER_SECONDS)
        for target, cost in v.costs.items():
            what = f"{v.launch.name} for {label(target)}"
            if cost.spilled > MAX_SPILLED:
                wrong.append(
                    f"{what} spills {cost.spilled} bytes, at most {MAX_SPILLED} are allowed"
                )
            if cost.seconds > bound:
                wrong.append(f"{what} took {cost.seconds:.0f} s to compile, at most {bound:.0f}")
    slow = {name: s for name, s in seconds.items() if s > MAX_SECONDS}
    return wrong + [f"{n} took {s:.0f} s, at most {MAX_SECONDS:.0f}" for n, s in slow.items()]


def main() -> None:
    """Compile, print the tables, and complain where a bound is passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--kernels", nargs="+", help="only these; all by default")
    parser.add_argument("--work", action="store_true", help="only count: what binds a step")
    parser.add_argument("--counts", type=Path, help="the same from what triton_work.py printed")
    parser.add_argument("--write", type=Path, help="put the tables between the file's markers")
    parser.add_argument("--check", action="store_true", help="fail on spills or slow compilation")
    args = parser.parse_args()
    steps = {name: step_of(name) for name in args.models}
    note = (
        f"{time.strftime('%Y-%m-%d')}, Triton {triton.__version__}, {processor()}: "
        f"`{' '.join(['python', *sys.argv])}`. float32, one world a thread, "
        f"{lane.WARPS} warp a program."
    )
    if args.work or args.counts:
        work = work_of(args.models, args.counts)
        show([note, "", *work_table(steps, work), "", *share_table(work)], WORK, args.write)
        return
    variants = variants_of(steps)
    variants = [v for v in variants if args.kernels is None or v.launch.name in args.kernels]
    for v in variants:
        v.costs = {t: compile_for(v.launch, t) for t in args.targets}
    seconds = {
        name: max(
            sum(v.costs[t].seconds for v in variants if name in v.models) for t in args.targets
        )
        for name in steps
    }
    tables = [note, "", *step_table(steps, seconds), "", *kernel_table(variants, args.targets)]
    show(tables, COSTS, args.write)
    wrong = complaints(variants, seconds)
    if args.check and wrong:
        raise SystemExit("; ".join(wrong))


if __name__ == "__main__":
    main()
