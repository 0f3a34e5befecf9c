"""The GPU engine: a control step of Triton kernels, recorded once as a CUDA graph and replayed.

Kernels are picked by the ops themselves; what is here is the recording. A recorded function reads
its arguments from buffers of its own and leaves its results in others, so that a call copies in,
replays, and copies out into fresh tensors.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from alloy.engines_step import HELD, control_step, varied_fields, wants_gradient, written
from alloy.guard import Guard, guarded_step
from alloy.physics.model import Data, Model
from alloy.structure import flatten, unflatten

log = logging.getLogger(__name__)

# runs a function and returns what repeats it, and its results, which every repetition overwrites
Record = Callable[[Callable[[], Any]], tuple[Callable[[], None], Any]]


def cuda_graph(run: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
    """Record a function as a CUDA graph, after two runs that compile kernels and make tables.

    Raises:
        RuntimeError: something in it cannot be recorded.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    return graph.replay, out


def copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy tensors pairwise, those of one dtype in one launch."""
    for dtype in {t.dtype for t in targets}:
        pairs = [(t, s) for t, s in zip(targets, sources, strict=True) if t.dtype == dtype]
        torch._foreach_copy_([t for t, _ in pairs], [s for _, s in pairs])


class Recording:
    """A pure function of tensors, for arguments of one shape: buffers, a replay, fresh results."""

    def __init__(self, program: Callable[..., Any], args: tuple[Any, ...], record: Record) -> None:
        """Record `program` on copies of `args`, which are nested as `alloy.structure` has it."""
        leaves: list[Tensor] = []
        structure = flatten(args, leaves)
        self._inputs = [torch.empty_like(x).copy_(x) for x in leaves]
        static = unflatten(structure, iter(self._inputs))
        self._replay, out = record(lambda: program(*static))
        self._outputs: list[Tensor] = []
        self._structure = flatten(out, self._outputs)

    def __call__(self, leaves: list[Tensor]) -> Any:
        """The function's results for arguments with these tensors."""
        copy_all(self._inputs, leaves)
        self._replay()
        fresh = [torch.empty_like(x) for x in self._outputs]
        copy_all(fresh, self._outputs)
        return unflatten(self._structure, iter(fresh))


class TritonEngine:
    """Kernels for every stage of a step, and one CUDA graph for each function and world count.

    What cannot be recorded runs as plain launches, which is said once; under torch.compile, and
    where a gradient is asked for, the reference runs, since kernels have no derivatives. After a
    step only the state, solver_niter and what was to be kept of Data are there: views compute the
    rest.
    """

    name = "triton"

    def __init__(self, nominal: Model, reason: str, record: Record = cuda_graph) -> None:
        """An engine for models that differ from `nominal` in per-world fields only."""
        self._nominal, self._reason, self._record = nominal, reason, record
        self._recordings: dict[Any, Recording | None] = {}
        self._programs: dict[Any, Callable[..., Any]] = {}
        self._reports: dict[str, dict[str, Any]] = {}
        self._refused: list[str] = []

    def step(
        self, m: Model, d: Data, guard: Guard, substeps: int, keep: tuple[str, ...] = ()
    ) -> tuple[Data, Guard]:
        """One control step, as `guarded_step` defines it."""
        if torch.compiler.is_compiling() or wants_gradient(m, d):
            return guarded_step(m, d, guard, substeps, keep=keep)
        varied = varied_fields(m, self._nominal)
        which = (substeps, varied, keep)
        if which not in self._programs:
            self._programs[which] = control_step(self._nominal, *which)
        held = tuple(getattr(d, name) for name in HELD)
        fields = tuple(getattr(m, name) for name in varied)
        args = (held, tuple(guard), fields)
        values, after = self._run(f"{substeps} substeps", self._programs[which], args)
        new = dict(zip(written(keep), values, strict=True))
        return Data(**{name: getattr(d, name) for name in HELD} | new), Guard(*after)

    def fuse(
        self, program: Callable[..., Any], example: tuple[Any, ...], owner: Any = None
    ) -> Callable[..., Any]:
        """A whole environment step as one recorded function.

        Args:
            program: pure function of tensors nested in dataclasses, worlds first.
            example: arguments of the right shapes; recorded with the first call.
            owner: what `program` closes over.
        """
        del example, owner

        def step(*args: Any) -> Any:
            return self._run("environment step", program, args)

        return step

    def _run(self, what: str, program: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Replay the recording for these shapes, made with the first call."""
        leaves: list[Tensor] = []
        flatten(args, leaves)
        which = (program, tuple(x.shape for x in leaves))
        with torch.no_grad():
            if which not in self._recordings:
                self._recordings[which] = self._recorded(
                    f"{what} of {leaves[0].shape[0]} worlds", program, args
                )
            recording = self._recordings[which]
            return program(*args) if recording is None else recording(leaves)

    def _recorded(
        self, name: str, program: Callable[..., Any], args: tuple[Any, ...]
    ) -> Recording | None:
        from alloy.ops.triton import lane  # imports Triton, which only this engine needs

        with lane.watch() as launched:
            try:
                recording = Recording(program, args, self._record)
            except RuntimeError as error:
                said = str(error).splitlines()[0]
                self._refused.append(f"the {name} runs as plain launches: {said}")
                log.warning("alloy: the %s runs as plain launches: %s", name, said)
                recording = None
        self._reports[name] = launch_report(launched, self._record is cuda_graph)
        return recording

    def report(self) -> dict[str, Any]:
        """What runs, why, what each recorded function launches, and what was not recorded."""
        said = {"engine": self.name, "reason": self._reason, "programs": dict(self._reports)}
        return said | ({"not recorded": list(self._refused)} if self._refused else {})


def launch_report(launched: list[Any], thrice: bool) -> dict[str, Any]:
    """Launches, bytes moved per world and, by kernel, its launches, registers and spills.

    Args:
        launched: what `lane.watch` noted.
        thrice: whether that was of three runs, two of them before the recording.
    """
    runs = 3 if thrice else 1
    counts = Counter(x.kernel for x in launched)
    kernels = {
        x.kernel: {
            "launches": counts[x.kernel] // runs, "registers": x.registers, "spills": x.spills,
        }
        for x in launched
    }  # fmt: skip
    return {
        "launches": len(launched) // runs,
        "bytes moved per world": sum(x.bytes for x in launched) // runs,
        "kernels": kernels,
    }
