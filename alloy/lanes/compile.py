"""`compile`: a world-batched torch function as native code, one world per SIMD lane."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from alloy import structure
from alloy.lanes import cache as store
from alloy.lanes import emit, passes, schedule, slots
from alloy.lanes.compiled import Compiled, Leaf
from alloy.lanes.driver import ELEMENT, Row, driver, functions, place_constants
from alloy.lanes.errors import LanesError, OverBudget, UnsupportedOperator
from alloy.lanes.jit import Code, assemble
from alloy.lanes.ops import kind_of_dtype
from alloy.lanes.scalar import Graph, Node, Value
from alloy.lanes.target import Target, host

log = logging.getLogger(__name__)


def compile(
    fn: Callable[..., Any],
    example_inputs: Sequence[Any],
    *,
    shared: Sequence[int] = (),
    threads: int | None = None,
    width: int | None = None,
    name: str | None = None,
    cache: bool = True,
    key: str | None = None,
    budget: int | None = None,
    guards: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Compiled:
    """Compile `fn` for any number of worlds.

    Args:
        fn: maps tensors with the world axis first, possibly nested in tuples, lists, dicts and
            dataclasses, to such tensors. Worlds must not look at each other: a reduction over the
            world axis is a reduction over one world. Loops go through `torch.while_loop`, whose
            condition is taken for each world by itself. Computed in float32.
        example_inputs: one value for each argument; only shapes, dtypes and structure matter,
            except at `shared` positions.
        shared: positions of arguments that are the same for all worlds and for ever; their values
            are folded into the code, and later calls ignore what is passed there.
        threads: worker threads; default: all cores this process may use.
        width: worlds in a block, a multiple of the vector width; default: what suits the host.
        name: for log lines and reports; default: the function's name.
        cache: keep object code on disk (`$ALLOY_CACHE_DIR`, or ~/.cache/alloy/lanes).
        key: a text that identifies `fn` and everything it closes over. With it, an entry that is
            in the cache is used without tracing `fn` at all, so it must change when `fn` does.
        budget: most scalar statements allowed.
        guards: skip work that no world of a block needs; the results are the same without.
        progress: called with (functions compiled, functions in all).

    Raises:
        UnsupportedOperator: naming the operator and the line that calls it.
        OverBudget: with the number of statements.
        ValueError: for arguments that are not world-batched tensors.
    """
    started = time.perf_counter()
    target = host()
    width = _width(width, target)
    name = name or str(getattr(fn, "__name__", "program"))
    job = _Job(fn, example_inputs, shared, target, width, name, guards)
    label = store.digest(target, "key", key, job.signature()) if key and cache else ""
    entry = _remembered(label, budget, name)
    code = _load(target, entry)
    hit = code is not None
    if code is None or entry is None:
        with _no_collector(), _remembering(label):
            entry, hit = job.build(budget, cache, progress)
        code = Code(target, entry.objects)
        if label and structure.is_plain(entry.meta["output"]):
            store.write(label, entry)
    meta = entry.meta
    if budget is not None and meta["report"]["statements"] > budget:
        raise OverBudget(meta["report"]["statements"], budget, name)
    report = dict(
        meta["report"],
        functions=len(meta["report"]["pieces"]),
        name=name,
        cache_hit=hit,
        seconds=time.perf_counter() - started,
    )
    return Compiled(code, meta, job.parts, threads, report)


def _remembered(label: str, budget: int | None, name: str) -> store.Entry | None:
    """The cached entry; what was too long the last time and still is is refused again."""
    entry = store.read(label) if label else None
    if entry is None or entry.objects:
        return entry
    if budget is not None and entry.meta["statements"] > budget:
        raise OverBudget(entry.meta["statements"], budget, name)
    return None


@contextmanager
def _remembering(label: str) -> Iterator[None]:
    """Keep that a program is over its budget: an entry without code."""
    try:
        yield
    except OverBudget as over:
        if label:
            store.write(label, store.Entry({"statements": over.statements}, []))
        raise


@contextmanager
def _no_collector() -> Iterator[None]:
    """Millions of small live objects and no garbage: the cycle collector would only look on."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _width(width: int | None, target: Target) -> int:
    width = width or target.lanes
    if width % target.lanes or width & (width - 1):
        raise ValueError(
            f"width {width} is not a power of two that is a multiple of this machine's "
            f"{target.lanes} lanes"
        )
    return width


def _check_inputs(leaves: list[Tensor], folded: set[int]) -> None:
    for i, t in enumerate(leaves):
        if i in folded:
            continue
        if t.ndim == 0 or t.shape[0] == 0:
            raise ValueError(
                f"input {i} has shape {tuple(t.shape)}; it needs a world axis in front"
            )
        if t.device.type != "cpu":
            raise ValueError(f"input {i} is on {t.device}; lanes runs on the CPU")
        if str(t.dtype).removeprefix("torch.") not in ELEMENT:
            raise ValueError(f"input {i} has dtype {t.dtype}; lanes takes {', '.join(ELEMENT)}")


def _load(target: Target, entry: store.Entry | None) -> Code | None:
    """Link a cached entry; None if there is none or it does not link."""
    if entry is None:
        return None
    try:
        return Code(target, entry.objects)
    except (RuntimeError, ValueError) as e:
        log.warning("lanes: a cached program does not link (%s); it is rebuilt", e)
        return None


class _Job:
    """One compilation: what goes in, and the stages from a function to object code."""

    def __init__(
        self,
        fn: Callable[..., Any],
        examples: Sequence[Any],
        shared: Sequence[int],
        target: Target,
        width: int,
        name: str,
        guards: bool,
    ) -> None:
        self.fn, self.target, self.width, self.name, self.guards = fn, target, width, name, guards
        self.leaves: list[Tensor] = []
        self.parts: list[structure.Structure] = []
        self.folded: set[int] = set()  # leaves whose values are part of the code
        for i, value in enumerate(examples):
            first = len(self.leaves)
            self.parts.append(structure.flatten(value, self.leaves))
            if i in shared:
                self.folded.update(range(first, len(self.leaves)))
        _check_inputs(self.leaves, self.folded)
        self.output: structure.Structure = {}
        self.pieces: dict[str, int] = {}

    def signature(self) -> str:
        """Shapes and dtypes behind the world axis, and the options that decide the code."""
        shapes = [(tuple(t.shape[i not in self.folded :]), str(t.dtype), i in self.folded)
                  for i, t in enumerate(self.leaves)]  # fmt: skip
        nesting = [p if structure.is_plain(p) else p["kind"] for p in self.parts]
        return repr((shapes, nesting, self.width, self.guards, self.name))

    def flat(self, *tensors: Tensor) -> list[Tensor]:
        """The function on a flat list of tensors."""
        feed = iter(tensors)
        result = self.fn(*(structure.unflatten(p, feed) for p in self.parts))
        outputs: list[Tensor] = []
        self.output = structure.flatten(result, outputs)
        for i, t in enumerate(outputs):
            if t.ndim == 0 or t.shape[0] != 1:
                raise ValueError(
                    f"output {i} of {self.name} has shape {tuple(t.shape)} for one world; "
                    "it needs a world axis in front"
                )
        return outputs

    def program(self) -> tuple[passes.Program, list[Leaf], list[Leaf]]:
        """Trace, scalarise and optimise."""
        # tracing takes half a second to import, which a program from the cache does not need
        from alloy.lanes.trace import scalarise, source_of, trace

        examples = [
            t.detach() if i in self.folded else t[:1].detach().contiguous().clone()
            for i, t in enumerate(self.leaves)
        ]
        gm = trace(self.flat, examples)
        g = Graph()
        inputs: list[Any] = []
        reads: list[Leaf] = []
        for i, t in enumerate(examples):
            if i in self.folded:
                inputs.append(t.double() if t.is_floating_point() else t)
                continue
            kind = kind_of_dtype(t.dtype)
            array = np.empty(t.numel(), dtype=object)
            for k in range(t.numel()):
                array[k] = g.fresh("in", kind, (i, k))
            inputs.append(array.reshape(tuple(t.shape)))
            reads.append(Leaf(i, tuple(t.shape[1:]), _dtype(t.dtype, f"input {i}")))
        try:
            arrays, dtypes = scalarise(gm, inputs, g)
        except UnsupportedOperator as e:
            where = source_of(e.operator, self.flat, examples)
            raise UnsupportedOperator(e.operator, where, e.detail) from None
        roots: list[Value] = []
        writes: list[Leaf] = []
        for i, (a, dtype) in enumerate(zip(arrays, dtypes, strict=True)):
            kind = kind_of_dtype(dtype)
            roots.extend(g.cast(x, kind) for x in a.reshape(-1))
            writes.append(Leaf(i, tuple(a.shape[1:]), _dtype(dtype, f"output {i}")))
        p = passes.Program(g, roots)
        passes.optimise(p)
        return p, reads, writes

    def build(
        self, budget: int | None, cache: bool, progress: Callable[[int, int], None] | None
    ) -> tuple[store.Entry, bool]:
        """Object code and its description, from the cache where the same code is there."""
        began = time.perf_counter()
        p, reads, writes = self.program()
        items = schedule.schedule(p, guarded=self.guards)
        count = schedule.statements(items)
        if budget is not None and count > budget:
            raise OverBudget(count, budget, self.name)
        modules, live, slot_count = self.emit(p, items, writes)
        traced = time.perf_counter() - began
        meta = {
            "inputs": [leaf.plain() for leaf in reads],
            "live": live,
            "outputs": [leaf.plain() for leaf in writes],
            "output": self.output,
            "slots": slot_count,
            "width": self.width,
            "report": dict(
                _report(items, slot_count, self.width, p), pieces=self.pieces, trace_seconds=traced
            ),
        }
        label = store.digest(self.target, "code", *modules) if cache else ""
        found = store.read(label) if label else None
        if found is not None and _load(self.target, found) is not None:
            return store.Entry(meta, found.objects), True
        objects = assemble(self.target, modules, self.ticker(len(modules), progress))
        entry = store.Entry(meta, objects)
        if label:
            store.write(label, store.Entry({}, objects))
        return entry, False

    def ticker(
        self, total: int, progress: Callable[[int, int], None] | None
    ) -> Callable[[int], None]:
        def tick(done: int) -> None:
            log.info("lanes: compiling %s, %d/%d functions", self.name, done, total)
            if progress:
                progress(done, total)

        return tick

    def emit(
        self, p: passes.Program, items: list[schedule.Item], outputs: list[Leaf]
    ) -> tuple[list[str], list[int], int]:
        """LLVM modules (the driver's last), the inputs that are read, the size of the scratch."""
        steps = emit.cut(items)
        layout = slots.lay_out(steps, p.roots)
        w = emit.Writer(self.target, self.width, layout)
        places = place_constants(w, p.roots)
        head = emit.declarations(self.width)
        written = functions(w, steps, "part")
        modules = [head + text for _, text, _ in written]
        self.pieces = {fn: n for fn, _, n in written}
        live = [n for n in layout.slot if n.op == "in"]
        dtype = {i: _dtype(t.dtype, "") for i, t in enumerate(self.leaves)}
        reads = [Row(n.args[0], n.args[1], layout.slot[n], dtype[n.args[0]]) for n in live]
        reads.sort(key=lambda r: (r.array, r.row))
        writes, at = [], 0
        for leaf in outputs:
            for row in range(leaf.rows):
                writes.append(Row(len(self.leaves) + leaf.index, row, places[at], leaf.dtype))
                at += 1
        modules.append(driver(w, steps, reads, writes))
        return modules, sorted({r.array for r in reads}), layout.size


def _dtype(dtype: torch.dtype, what: str) -> str:
    text = str(dtype).removeprefix("torch.")
    if text not in ELEMENT:
        raise LanesError(f"{what} has dtype {dtype}; lanes computes {', '.join(ELEMENT)}")
    return text


def _report(
    items: list[schedule.Item], slot_count: int, width: int, p: passes.Program
) -> dict[str, Any]:
    regions, guarded, loops = schedule.summary(items)
    zeros = sum(1 for r in p.roots if not isinstance(r, Node) and r == 0)
    return {
        "statements": schedule.statements(items),
        "guards": regions,
        "guarded_statements": guarded,
        "loops": loops,
        "zero_results": zeros,
        "scratch_bytes": slot_count * width * 4,
        "width": width,
    }
