"""A compiled program and its calls."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from alloy import structure
from alloy.lanes.driver import aligned
from alloy.lanes.jit import Code
from alloy.lanes.pool import default_threads, pool

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Leaf:
    """One tensor among the inputs or outputs: its place, shape behind the world axis, dtype."""

    index: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def rows(self) -> int:
        """Number of scalars of one world."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype as torch's."""
        return getattr(torch, self.dtype)

    def plain(self) -> list[Any]:
        """As JSON."""
        return [self.index, list(self.shape), self.dtype]

    @classmethod
    def parse(cls, plain: Sequence[Any]) -> Leaf:
        """From JSON."""
        return cls(plain[0], tuple(plain[1]), plain[2])

    def empty(self, worlds: int) -> Tensor:
        """A tensor whose world axis is last in memory."""
        return torch.empty(*self.shape, worlds, dtype=self.torch_dtype).movedim(-1, 0)

    def is_world_last(self, t: Tensor) -> bool:
        """Whether the program can read or write the tensor in place."""
        return t.dtype == self.torch_dtype and t.movedim(0, -1).is_contiguous()


class Compiled:
    """Native code for one function; call it like the function, with any number of worlds."""

    def __init__(
        self, code: Code, meta: dict[str, Any], parts: list[structure.Structure],
        threads: int | None, report: dict[str, Any],
    ) -> None:  # fmt: skip
        """Made by `alloy.lanes.compile`."""
        self._code, self._parts, self._output = code, parts, meta["output"]
        live = set(meta["live"])
        inputs = [Leaf.parse(x) for x in meta["inputs"]]
        self._inputs = inputs
        self._live = [leaf for leaf in inputs if leaf.index in live]
        self._outputs = [Leaf.parse(x) for x in meta["outputs"]]
        self._count = sum(_leaf_count(p) for p in parts)
        self.width: int = meta["width"]
        self.threads = threads or default_threads()
        self._scratch = [aligned(meta["slots"], self.width) for _ in range(self.threads)]
        self._places = [s.ctypes.data for s in self._scratch]
        self._busy = threading.Lock()
        self._report = report
        self._readers = [
            structure.reader(p) if not self._is_folded(i) else _skip(_leaf_count(p))
            for i, p in enumerate(parts)
        ]
        self._build = structure.builder(self._output)
        self._plans: dict[int, _Plan] = {}

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """Run every world; returns fresh tensors, or fills and returns `out`.

        Args:
            inputs: as for the function. A tensor whose memory has the world axis last (a
                transposed view of a `[..., W]` buffer) is read in place, others are converted.
            out: tensors in the structure of the result; those with the world axis last are written
                in place, others by a copy. They may be the inputs themselves.

        Raises:
            ValueError: for inputs of another structure, shape or number of worlds.
        """
        if out is None:
            results = self._direct(inputs)
            if results is not None:
                return self._build(iter(results))
        return self.bind(*inputs, out=out)()

    def _direct(self, inputs: Sequence[Any]) -> list[Tensor] | None:
        """The common case, kept short: all inputs as they should be, fresh results."""
        leaves: list[Tensor] = []
        try:
            for read, x in zip(self._readers, inputs, strict=True):
                read(x, leaves)
        except ValueError:
            return None
        worlds = leaves[self._inputs[0].index].shape[0] if self._inputs else 1
        plan = self._plans.get(worlds)
        if plan is None:
            if len(self._plans) > 16:
                self._plans.clear()
            plan = self._plans[worlds] = _Plan(self._inputs, self._live, self._outputs, worlds)
        addresses = np.empty(self._count + len(self._outputs), np.uint64)
        for index, size in plan.sizes:
            if leaves[index].shape != size or not leaves[index].is_cpu:
                return None
        for index, dtype, strides in plan.reads:
            t = leaves[index]
            if t.dtype is not dtype or t.stride() != strides:
                return None
            addresses[index] = t.data_ptr()
        results, addresses[self._count :] = plan.allocate()
        self._run(addresses, worlds)
        return results

    def bind(self, *inputs: Any, out: Any = None) -> Callable[[], Any]:
        """Check and lay out the arguments once; the returned function runs them again and again.

        Each call reads the tensors as they are then and writes to the same results. Inputs that had
        to be converted are converted in every call.
        """
        leaves = self._flatten(inputs)
        worlds = self._worlds(leaves)
        results = self._results(out, worlds)
        addresses = np.zeros(self._count + len(self._outputs), np.uint64)
        staged: list[tuple[Tensor, Tensor]] = []
        kept: list[Tensor] = []
        for leaf in self._live:
            t = leaves[leaf.index]
            if not leaf.is_world_last(t):
                buffer = leaf.empty(worlds)
                staged.append((buffer, t))
                t = buffer
            kept.append(t)
            addresses[leaf.index] = t.data_ptr()
        unstaged: list[tuple[Tensor, Tensor]] = []
        for leaf, t in zip(self._outputs, results, strict=True):
            target = t
            if not leaf.is_world_last(t):
                target = leaf.empty(worlds)
                unstaged.append((t, target))
            kept.append(target)
            addresses[self._count + leaf.index] = target.data_ptr()
        tree = out if out is not None else self._build(iter(results))

        def run() -> Any:
            for buffer, t in staged:
                buffer.copy_(t)
            self._run(addresses, worlds)
            for t, buffer in unstaged:
                t.copy_(buffer)
            return tree

        run.keep = (kept, addresses)  # type: ignore[attr-defined]
        return run

    def _run(self, addresses: np.ndarray, worlds: int) -> None:
        arrays = addresses.ctypes.data
        counter = np.zeros(1, np.int64)
        following = counter.ctypes.data
        blocks = -(-worlds // self.width)
        threads = min(self.threads, blocks)
        with self._busy:
            places, drive = self._places, self._code.drive
            if threads == 1:
                drive(arrays, places[0], following, worlds)
                return
            pool(self.threads).run(lambda k: drive(arrays, places[k], following, worlds), threads)

    def report(self) -> dict[str, Any]:
        """What was compiled: statements, functions, guards, loops, seconds, cache, widths."""
        return dict(self._report, width=self.width, threads=self.threads)

    # ---- arguments ----------------------------------------------------------------------------

    def _flatten(self, inputs: Sequence[Any]) -> list[Tensor]:
        if len(inputs) != len(self._parts):
            raise ValueError(f"expected {len(self._parts)} arguments, received {len(inputs)}")
        leaves: list[Tensor] = []
        for i, (value, part) in enumerate(zip(inputs, self._parts, strict=True)):
            if self._is_folded(i):
                leaves.extend([torch.empty(0)] * _leaf_count(part))
                continue
            found = structure.flatten(value, leaves)
            if not structure.same(found, part):
                raise ValueError(f"argument {i} is not nested as the example it was compiled for")
        return leaves

    def _is_folded(self, argument: int) -> bool:
        """Whether the values of an argument are part of the code."""
        start = sum(_leaf_count(p) for p in self._parts[:argument])
        own = set(range(start, start + _leaf_count(self._parts[argument])))
        return bool(own) and own.isdisjoint(leaf.index for leaf in self._inputs)

    def _worlds(self, leaves: list[Tensor]) -> int:
        worlds = None
        for leaf in self._inputs:
            t = leaves[leaf.index]
            if t.ndim != len(leaf.shape) + 1 or tuple(t.shape[1:]) != leaf.shape:
                raise ValueError(
                    f"input {leaf.index} has shape {tuple(t.shape)}, expected (W, "
                    f"{', '.join(map(str, leaf.shape))})"
                )
            if t.device.type != "cpu":
                raise ValueError(f"input {leaf.index} is on {t.device}; lanes runs on the CPU")
            if worlds is None:
                worlds = t.shape[0]
            elif t.shape[0] != worlds:
                raise ValueError(
                    f"input {leaf.index} has {t.shape[0]} worlds, an earlier input has {worlds}"
                )
        return 1 if worlds is None else worlds

    def _results(self, out: Any, worlds: int) -> list[Tensor]:
        if out is None:
            return [leaf.empty(worlds) for leaf in self._outputs]
        results: list[Tensor] = []
        found = structure.flatten(out, results)
        if not structure.same(found, self._output):
            raise ValueError("out is not nested as the result of the function")
        for leaf, t in zip(self._outputs, results, strict=True):
            if tuple(t.shape) != (worlds, *leaf.shape):
                raise ValueError(
                    f"out tensor {leaf.index} has shape {tuple(t.shape)}, "
                    f"expected {(worlds, *leaf.shape)}"
                )
        return results


class _Plan:
    """What inputs and results of one number of worlds look like in memory."""

    def __init__(
        self, inputs: list[Leaf], live: list[Leaf], outputs: list[Leaf], worlds: int
    ) -> None:
        self.sizes = [(leaf.index, torch.Size((worlds, *leaf.shape))) for leaf in inputs]
        self.reads = [(leaf.index, leaf.torch_dtype, leaf.empty(worlds).stride()) for leaf in live]
        self.totals: dict[torch.dtype, int] = {}
        self.views: list[tuple[torch.dtype, Any, Any, int, int]] = []
        for leaf in outputs:
            t = leaf.empty(worlds)
            start = self.totals.get(t.dtype, 0)
            self.totals[t.dtype] = start + t.numel()
            self.views.append((t.dtype, t.shape, t.stride(), start, start * t.element_size()))

    def allocate(self) -> tuple[list[Tensor], list[int]]:
        """Fresh results, all those of one dtype in one allocation, and their addresses."""
        whole = {dtype: torch.empty(n, dtype=dtype) for dtype, n in self.totals.items()}
        base = {dtype: t.data_ptr() for dtype, t in whole.items()}
        results, addresses = [], []
        for dtype, size, strides, start, offset in self.views:
            results.append(whole[dtype].as_strided(size, strides, start))
            addresses.append(base[dtype] + offset)
        return results, addresses


def _skip(count: int) -> Callable[[Any, list[Tensor]], None]:
    """A reader for an argument whose values are folded."""
    nothing = [torch.empty(0)] * count
    return lambda _, leaves: leaves.extend(nothing)


def _leaf_count(part: structure.Structure) -> int:
    if part["kind"] == "leaf":
        return 1
    return sum(_leaf_count(p) for _, p in part.get("items", []))
