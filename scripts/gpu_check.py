"""Is the Triton engine right and fast on this GPU? One run of under 8 minutes, no mujoco needed.

    python scripts/gpu_pack.py                       # where mujoco is; writes out/gpu_pack
    python scripts/gpu_check.py                      # where the GPU is; torch, triton, numpy
    python scripts/gpu_check.py --device cpu         # rehearsal in Triton's interpreter, minutes

Checks every kernel and whole steps against the float64 reference, the engine's recorded steps
against plain launches and for bitwise determinism, then measures: steps/s with and without a CUDA
graph, memory per world, time per kernel. Prints a table and writes a JSON file. A part that fails
is reported and the others still run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # run from a checkout that is not installed
if "cpu" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
from kernels import cast, fast_interpreter, note_calls, twin_of, worst
from torch import Tensor

from alloy import ops
from alloy.engines_triton import TritonEngine, cuda_graph
from alloy.guard import Guard, guarded_step, make_guard
from alloy.ops.triton import lane
from alloy.physics import forward
from alloy.physics.model import STATE, Data, Model, empty_world_last
from alloy.structure import flatten, unflatten

BUDGET = 420.0  # seconds; no new part starts later; a rehearsal takes as long as it takes
TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-3}  # of kernels; of steps, see check_steps
# more than a block and no multiple of it, but of 16 as all other counts of worlds are: kernels are
# compiled for that
SOME_WORLDS = 48
UNMEASURED = ("Shapes",)  # models that are there for what kernels they have
REPORT: dict[str, Any] = {}


@dataclass
class Case:
    """A packed model, on the device."""

    name: str
    model: Model  # float64
    start: dict[str, Tensor]
    after: dict[int, dict[str, Tensor]]

    def data(self, worlds: int, dtype: torch.dtype) -> Data:
        """The packed states over and over, world axis last in memory."""
        out = {}
        for name, value in self.start.items():
            count = -(-worlds // len(value))
            many = cast(value, dtype).repeat(count, *(1,) * (value.ndim - 1))[:worlds]
            kw = {"dtype": many.dtype, "device": many.device}
            out[name] = empty_world_last(worlds, tuple(value.shape[1:]), **kw).copy_(many)
        return Data(**out)


@dataclass
class Options:
    """What to run, and until when."""

    device: torch.device
    worlds: list[int]
    steps: int  # of the determinism check
    parts: list[str]
    substeps: int  # of a control step
    began: float = field(default_factory=time.perf_counter)

    @property
    def late(self) -> bool:
        """Whether the time is up for new measurements."""
        return self.device.type == "cuda" and time.perf_counter() - self.began > BUDGET

    def wait(self) -> None:
        """Wait for the device's queue."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def load(path: Path, device: torch.device) -> Case:
    """A packed model."""
    packed = torch.load(path, weights_only=False)
    return Case(path.stem, *(cast(packed[k], torch.float64, device) for k in (
        "model", "start", "after")))  # fmt: skip


# ------------------------------------------------------------------ is it right?


def check_kernels(case: Case, options: Options) -> dict[str, float]:
    """Largest relative error of every kernel on the calls of a reference step."""
    worlds = SOME_WORLDS if options.device.type == "cuda" else 2
    d = case.data(worlds, torch.float64)
    calls = note_calls(lambda: forward.step(case.model, d))
    errors = {}
    for name, call in calls.items():
        twin = twin_of(name)
        for dtype in TOLERANCE:
            pairs = zip(twin(*cast(call.args, dtype)), call.result, strict=True)
            # in float32 the solver may take an iteration more or less
            pairs = [(a, e) for a, e in pairs if dtype == torch.float64 or e.is_floating_point()]
            error = worst(tuple(a for a, _ in pairs), tuple(e for _, e in pairs))
            short = str(dtype).removeprefix("torch.")
            errors[f"{name} {short}"] = error
            if not error <= TOLERANCE[dtype]:
                raise AssertionError(f"{name} in {short}: relative error {error:.1e}")
    return errors


def check_steps(case: Case, options: Options) -> dict[str, float]:
    """Error of qpos after 1 and 10 steps against the reference's, stored with the model.

    In float64 it is bound to 1e-7. In float32 contacts amplify rounding: the median world's error
    is bound instead, to 1e-3.
    """
    errors = {}
    worlds = len(case.start["qpos"]) if options.device.type == "cuda" else 1
    for dtype in (torch.float64, torch.float32):
        m, d = cast(case.model, dtype), case.data(worlds, dtype)
        with ops.kernels(True):
            for step in range(1, (10 if options.device.type == "cuda" else 1) + 1):
                d = forward.step(m, d)
                if step in case.after:
                    expected = case.after[step]["qpos"][:worlds]
                    gap = (d.qpos.double() - expected).abs().amax(-1)
                    short = str(dtype).removeprefix("torch.")
                    value = gap.amax() if dtype == torch.float64 else gap.median()
                    errors[f"{step} steps {short}"] = float(value)
    bounds = {name: 1e-7 if "float64" in name else 1e-3 for name in errors}
    wrong = {name: e for name, e in errors.items() if not e <= bounds[name]}
    if wrong:
        raise AssertionError(f"qpos is off by {wrong}, allowed {bounds}")
    return errors


def stand_in(run: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
    """What recording is to a CPU: every replay runs the function again."""
    results: list[Tensor] = []
    structure = flatten(run(), results)
    results = [x.clone() for x in results]

    def replay() -> None:
        again: list[Tensor] = []
        flatten(run(), again)
        for old, new in zip(results, again, strict=True):
            old.copy_(new)

    return replay, unflatten(structure, iter(results))


def engine_of(m: Model, options: Options) -> TritonEngine:
    """The engine, recording CUDA graphs; in a rehearsal, behaving as if."""
    return TritonEngine(m, "check", cuda_graph if options.device.type == "cuda" else stand_in)


def plain_step(m: Model, d: Data, guard: Guard, substeps: int) -> tuple[Data, Guard]:
    """A control step as plain launches."""
    with ops.kernels(True):
        return guarded_step(m, d, guard, substeps, derived=False)


def check_engine(case: Case, options: Options) -> dict[str, Any]:
    """Control steps as one graph are those of plain launches, bit for bit; what they launch."""
    m, worlds = cast(case.model, torch.float32), 64 if options.device.type == "cuda" else 2
    engine, d = engine_of(m, options), case.data(worlds, torch.float32)
    guard = make_guard(worlds, options.device)
    expected, expected_guard = d, guard
    with ops.kernels(True):
        for step in range(2):
            d, guard = engine.step(m, d, guard, options.substeps)
            expected, expected_guard = plain_step(m, expected, expected_guard, options.substeps)
            for name in STATE:
                if not torch.equal(getattr(d, name), getattr(expected, name)):
                    raise AssertionError(f"{name} differs after {step + 1} control steps")
    report = engine.report()
    if "not recorded" in report:
        raise AssertionError(report["not recorded"])
    return report["programs"]


def digest(d: Data, worlds: int) -> str:
    """A hash of the state of the first worlds, bit by bit."""
    state = [getattr(d, name)[:worlds].cpu().contiguous().numpy().tobytes() for name in STATE]
    return hashlib.sha256(b"".join(state)).hexdigest()[:16]


def check_determinism(case: Case, options: Options) -> dict[str, str]:
    """The same bits after many steps, twice, and in another number of worlds.

    implicitfast's derivatives are products of torch's, which may round differently for another
    number of worlds: there only the first is asked.
    """
    m = cast(case.model, torch.float32)
    hashes = []
    few, many = (64, 192) if options.device.type == "cuda" else (2, 33)
    engine = engine_of(m, options)
    counts = (few, few) if m.opt.integrator == "implicitfast" else (few, few, many)
    for worlds in counts:
        d, guard = case.data(worlds, torch.float32), make_guard(worlds, options.device)
        with ops.kernels(True):
            for _ in range(options.steps):
                d, guard = engine.step(m, d, guard, 1)
        hashes.append(digest(d, few))
    if len(set(hashes)) != 1:
        raise AssertionError(f"hashes differ: {hashes} with {counts} worlds")
    return {"hash": hashes[0], "steps": str(options.steps), "worlds": str(counts)}


# ------------------------------------------------------------------ how fast is it?


def rate(run: Callable[[], object], options: Options, seconds: float = 1.0) -> float:
    """Calls per second, measured for about `seconds`."""
    run()
    options.wait()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for _ in range(5 if options.device.type == "cuda" else 1):
            run()
            count += 1
        options.wait()
    return count / (time.perf_counter() - began)


def measure(case: Case, options: Options) -> dict[str, dict[str, float]]:
    """Million physics steps/s by world count, plain and as a graph, and bytes per world."""
    m = cast(case.model, torch.float32)
    table: dict[str, dict[str, float]] = {}
    on_gpu = options.device.type == "cuda"
    for worlds in options.worlds:
        if options.late:
            break
        row = table[str(worlds)] = {}
        engine, guard = engine_of(m, options), make_guard(worlds, options.device)
        d = case.data(worlds, torch.float32)
        runs = {"plain": plain_step, "graph": engine.step}
        for name, step in runs.items():
            if on_gpu:
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            with ops.kernels(True):
                control = rate(partial(step, m, d, guard, options.substeps), options)
            row[name] = control * options.substeps * worlds / 1e6
            if on_gpu:
                peak = torch.cuda.max_memory_allocated() - before
                row[f"kB per world {name}"] = peak / worlds / 1e3
        if "not recorded" in engine.report():
            REPORT.setdefault("not recorded", {})[case.name] = engine.report()["not recorded"]
        with ops.kernels(True):
            after, _ = engine.step(m, d, guard, options.substeps)
        row["finite worlds"] = float(torch.isfinite(after.qpos).all(-1).float().mean())
    return table


def seconds_of(run: Callable[[], object], options: Options, repeats: int = 20) -> float:
    """Time of one launch; on a GPU as a graph of many, so that the host is not in it."""
    if options.device.type != "cuda":
        began = time.perf_counter()
        run()
        return time.perf_counter() - began
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            run()
    graph.replay()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / repeats


def time_kernels(case: Case, options: Options) -> dict[str, float]:
    """Microseconds that each kernel takes in one step of 4,096 worlds, all its launches together.

    A launch reads its arguments and writes others, so that repeating it changes nothing.
    """
    worlds = 4096 if options.device.type == "cuda" else 2
    m, times = cast(case.model, torch.float32), defaultdict(float)
    d, original = case.data(worlds, torch.float32), lane.run

    def timed(kernel: Any, *parts: Any) -> Any:
        result = original(kernel, *parts)
        options.wait()
        name = kernel.__name__.strip("_").removesuffix("_kernel")
        times[name] += seconds_of(lambda: original(kernel, *parts), options)
        return result

    with ops.kernels(True):
        forward.step(m, d)
        lane.run = timed
        try:
            forward.step(m, d)
        finally:
            lane.run = original
    return {name: seconds * 1e6 for name, seconds in times.items()}


# ------------------------------------------------------------------ all of it

PARTS: dict[str, Callable[[Case, Options], Any]] = {
    "kernels": check_kernels,
    "steps": check_steps,
    "engine": check_engine,
    "determinism": check_determinism,
    "throughput": measure,
    "microseconds": time_kernels,
}
MEASUREMENTS = ("throughput", "microseconds")


def run_parts(cases: list[Case], options: Options) -> bool:
    """Run every part for every model, checks before measurements; whether all went well."""
    good = True
    for part in options.parts:
        for case in cases:
            if part in MEASUREMENTS and case.name in UNMEASURED:
                continue
            if options.late:
                print(f"{part} {case.name}: left out, the time is up", flush=True)
                continue
            began = time.perf_counter()
            try:
                result = PARTS[part](case, options)
                said = "ok"
            except Exception as error:
                result, said, good = f"{type(error).__name__}: {error}", "FAILED", False
                traceback.print_exc()
            REPORT.setdefault(part, {})[case.name] = result
            print(f"{part} {case.name}: {said} in {time.perf_counter() - began:.1f} s", flush=True)
    return good


def print_table() -> None:
    """Throughput and the largest errors, as Markdown."""
    columns = ("plain", "graph", "kB per world plain", "kB per world graph", "finite worlds")
    print("\n| model | worlds | M steps/s plain | M steps/s graph | "
          + " | ".join(columns[2:]) + " |")  # fmt: skip
    print("| --- " * (2 + len(columns)) + "|")
    for name, rows in REPORT.get("throughput", {}).items():
        for worlds, row in rows.items() if isinstance(rows, dict) else ():
            cells = [f"{row[k]:.3g}" if k in row else "-" for k in columns]
            print(f"| {name} | {worlds} | " + " | ".join(cells) + " |")
    for name, programs in REPORT.get("engine", {}).items():
        for program, said in programs.items() if isinstance(programs, dict) else ():
            spills = max((k["spills"] or 0 for k in said["kernels"].values()), default=0)
            print(f"engine {name}: {program}: {said['launches']} launches, spills {spills}")
    for name, times in REPORT.get("microseconds", {}).items():
        if isinstance(times, dict):
            print(f"microseconds {name}: "
                  + ", ".join(f"{k} {t:.0f}" for k, t in times.items()))  # fmt: skip
    for part in ("kernels", "steps"):
        for name, result in REPORT.get(part, {}).items():
            if isinstance(result, dict):
                print(f"{part} {name}: largest error {max(result.values()):.1e}")


def main() -> None:
    """Run everything; exit status 1 if a check failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pack", type=Path, default=Path("out/gpu_pack"))
    parser.add_argument("--out", type=Path, default=Path("out/gpu_check.json"))
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--models", nargs="+", help="of the packed ones; all by default")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--steps", type=int, default=1000, help="of the determinism check")
    args = parser.parse_args()
    device = torch.device(args.device)
    if device.type == "cuda":
        REPORT["card"] = torch.cuda.get_device_name()
        worlds, substeps = [1024, 4096, 16384, 65536], 4
    else:
        fast_interpreter()
        REPORT["card"], worlds, substeps = "none: rehearsal in the interpreter", [2], 1
    REPORT["versions"] = {"torch": torch.__version__, "triton": triton.__version__}
    torch.set_grad_enabled(False)
    paths = sorted(args.pack.glob("*.pt"))
    paths = [p for p in paths if args.models is None or p.stem in args.models]
    if not paths:
        raise SystemExit(f"no model in {args.pack}; make one with scripts/gpu_pack.py")
    options = Options(device, worlds, args.steps, args.parts, substeps)
    good = run_parts([load(p, device) for p in paths], options)
    print_table()
    REPORT["seconds"] = time.perf_counter() - options.began
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(REPORT, indent=1))
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
