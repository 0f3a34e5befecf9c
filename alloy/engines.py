"""Engines: who runs the substeps of a control step.

An engine is picked once, at build; physics code never branches on it. What a control step is says
`alloy.guard.guarded_step`; every engine agrees with it.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Protocol

import torch

from alloy import lanes, ops
from alloy.engines_step import HELD, control_step, varied_fields, wants_gradient, written
from alloy.engines_triton import TritonEngine
from alloy.fingerprint import fingerprint
from alloy.guard import (
    MAXVAL,
    STAGES,
    Guard,
    advance,
    guarded_step,
    make_guard,
    usable_ctrl,
    where_worlds,
)
from alloy.physics.model import Data, Model, make_data

__all__ = [
    "ENGINES", "MAXVAL", "STAGES", "Engine", "Guard", "LanesEngine", "ReferenceEngine",
    "TritonEngine", "advance", "guarded_step", "make_engine", "make_guard", "usable_ctrl",
    "where_worlds",
]  # fmt: skip

ENGINES = ("auto", "reference", "lanes", "triton")
BUDGET = 200_000  # statements; beyond it compiling takes minutes and the code leaves every cache
_LOOKS = 3_000  # rays and taxels times the geoms that they may meet; about 70 statements each

_SHAPES = (
    "plane",
    "hfield",
    "sphere",
    "capsule",
    "ellipsoid",
    "cylinder",
    "box",
    "mesh",
)  # mjtGeom

log = logging.getLogger(__name__)


class Engine(Protocol):
    """Runs control steps; made by `make_engine`."""

    name: str

    def step(
        self, m: Model, d: Data, guard: Guard, substeps: int, keep: tuple[str, ...] = ()
    ) -> tuple[Data, Guard]:
        """One control step, as `guarded_step` defines it; the result has the fields of `keep`."""
        ...

    def report(self) -> dict[str, Any]:
        """What runs, and why."""
        ...


class ReferenceEngine:
    """Pure PyTorch on any device and dtype; differentiable, and the measure of other engines."""

    name = "reference"

    def __init__(self, reason: str) -> None:
        """Remember why this engine was picked."""
        self._reason = reason

    def step(
        self, m: Model, d: Data, guard: Guard, substeps: int, keep: tuple[str, ...] = ()
    ) -> tuple[Data, Guard]:
        """One control step, as `guarded_step` defines it; on a GPU too without kernels."""
        if torch.compiler.is_compiling() or not d.qpos.is_cuda:
            return guarded_step(m, d, guard, substeps, keep=keep)
        with ops.kernels(False):
            return guarded_step(m, d, guard, substeps, keep=keep)

    def report(self) -> dict[str, Any]:
        """What runs, and why."""
        return {"engine": self.name, "reason": self._reason}


class LanesEngine:
    """The reference step compiled for the CPU, one world per SIMD lane; float32.

    A program is compiled when it is first needed, for each number of substeps and set of per-world
    model fields, and kept on disk. What cannot be compiled runs on the reference, which is said
    once. After a step only the state, solver_niter and what was to be kept of Data are there: views
    compute the rest.
    """

    name = "lanes"

    def __init__(self, nominal: Model, reason: str, threads: int | None = None) -> None:
        """An engine for models that differ from `nominal` in per-world fields only."""
        self._nominal, self._reason, self._threads = nominal, reason, threads
        self._programs: dict[Any, Callable[..., Any] | None] = {}
        self._reports: dict[str, dict[str, Any]] = {}
        self._refused: list[str] = []

    def step(
        self, m: Model, d: Data, guard: Guard, substeps: int, keep: tuple[str, ...] = ()
    ) -> tuple[Data, Guard]:
        """One control step, as `guarded_step` defines it.

        Under torch.compile, and where a gradient is asked for, that function itself runs.
        """
        if torch.compiler.is_compiling() or wants_gradient(m, d):
            return guarded_step(m, d, guard, substeps, keep=keep)
        varied = varied_fields(m, self._nominal)
        which = (substeps, varied, keep)
        if which not in self._programs:
            self._programs[which] = self._physics(*which, m)
        run = self._programs[which]
        if run is None:
            return guarded_step(m, d, guard, substeps, keep=keep)
        held = tuple(getattr(d, name) for name in HELD)
        fields = tuple(
            f.expand(d.qpos.shape[0], *f.shape[1:]) for f in (getattr(m, n) for n in varied)
        )
        values, guard = run(held, tuple(guard), fields)
        new = dict(zip(written(keep), values, strict=True))
        return Data(**{name: getattr(d, name) for name in HELD} | new), Guard(*guard)

    def _physics(
        self, substeps: int, varied: tuple[str, ...], keep: tuple[str, ...], m: Model
    ) -> Callable[..., Any] | None:
        nominal = self._nominal
        program = control_step(nominal, substeps, varied, keep)
        start = make_data(nominal, 1)
        held = tuple(getattr(start, name) for name in HELD)
        guard = tuple(make_guard(1, start.qpos.device))
        fields = tuple(getattr(m, name)[:1] for name in varied)
        key = fingerprint("physics", nominal, substeps, varied, keep)
        return self._compile(f"{substeps} substeps", program, (held, guard, fields), key)

    def fuse(
        self, program: Callable[..., Any], example: tuple[Any, ...], owner: Any = None
    ) -> Callable[..., Any] | None:
        """A whole environment step as one compiled program, or None where that cannot be done.

        Args:
            program: pure function of tensors nested in dataclasses, worlds first.
            example: arguments of the right shapes.
            owner: what `program` closes over, to find it in the cache without tracing it again.
        """
        key = fingerprint("env", program if owner is None else owner)
        instead = "is not compiled as one program, its physics is"
        return self._compile("environment step", program, example, key, instead)

    def _compile(
        self,
        what: str,
        program: Callable[..., Any],
        example: tuple[Any, ...],
        key: str | None,
        instead: str = "runs on the reference engine",
    ) -> Callable[..., Any] | None:
        hopeless = searches(self._nominal) or too_large(self._nominal)
        if hopeless:
            if not self._refused:
                log.warning("alloy: the %s %s: %s", what, instead, hopeless)
            self._refused.append(f"the {what} {instead}: {hopeless}")
            return None
        meter = _Meter(what)
        try:
            with torch.no_grad():
                compiled = lanes.compile(
                    program, example, threads=self._threads, name=what, key=key, budget=BUDGET,
                    progress=meter,
                )  # fmt: skip
        except lanes.LanesError as error:
            self._refused.append(f"the {what} {instead}: {error}")
            log.warning("alloy: the %s %s: %s", what, instead, error)
            return None
        finally:
            meter.close()
        self._reports[what] = compiled.report()
        return compiled

    def report(self) -> dict[str, Any]:
        """What runs, why, what was compiled, and what was not."""
        said = {"engine": self.name, "reason": self._reason, "programs": dict(self._reports)}
        return said | ({"not compiled": list(self._refused)} if self._refused else {})


def searches(m: Model) -> str:
    """Why lanes cannot compile a model: contacts that are searched for, or too many rays or taxels.

    Said before it is tried, since tracing a robot with hundreds of such pairs takes minutes.
    """
    looks = sum(group.looks for group in m.derived["sensor"].groups)
    if looks > _LOOKS:
        return (
            f"lanes does not compile {looks} pairs of a ray or taxel of a sensor and a geom that "
            f"it may meet (at most {_LOOKS}). Take a coarser camera or mesh for the sensor"
        )
    if m.selection is not None:
        return f"lanes does not compile the choice of {m.selection.ncon} contacts (max_contacts)"
    found = {g.kind: len(g.geom1) for g in m.pairs if g.kind in ops.CONVEX_KINDS or g.drops}
    pairs = ", ".join(f"{n} {_SHAPES[a]}-{_SHAPES[b]}" for (a, b), n in found.items())
    return pairs and (
        f"lanes does not compile the search for contacts of convex shapes; pairs: {pairs}. "
        f"Collide spheres, capsules and boxes instead, or keep those apart by contype/conaffinity"
    )


def too_large(m: Model) -> str:
    """Why a model's contacts alone make too large a program for lanes, if they do.

    Half the square of each contact row's dofs takes 14 to 16 statements, in models from HalfCheetah
    to Humanoid; counted with 10. A program of thousands of rows would be traced for minutes first.
    """
    if not m.ncon:
        return ""
    moved = torch.stack([side.move != 0 for side in m.efc.sides]).any(0).sum(-1)
    least = 10 * int((moved * (moved + 1) // 2).sum())
    if least <= BUDGET:
        return ""
    return (
        f"{m.nefc:,} constraint rows make more than {least:,} scalar statements, over the budget "
        f"of {BUDGET:,}. Let fewer geoms collide, by contype/conaffinity or <exclude>"
    )


class _Meter:
    """A line on the terminal while something compiles for longer than a moment."""

    def __init__(self, what: str) -> None:
        self._what, self._began, self._shown = what, time.perf_counter(), False

    def __call__(self, done: int, total: int) -> None:
        if sys.stderr.isatty() and time.perf_counter() - self._began > 0.5:
            self._shown = True
            sys.stderr.write(f"\rlanes: compiling the {self._what}, {done}/{total} functions ")
            sys.stderr.flush()

    def close(self) -> None:
        if self._shown:
            sys.stderr.write(f"\r{'':70}\r")
            sys.stderr.flush()


def make_engine(name: str, m: Model) -> Engine:
    """The engine of that name for a model on its device.

    "auto" takes what the environment variable ALLOY_ENGINE names, if it is set; else lanes for
    float32 on the CPU, triton on a GPU, and the reference where there is no faster engine.

    Raises:
        ValueError: no such engine, or it does not compute in the model's dtype.
        RuntimeError: the engine does not run on the model's device, or triton is not installed.
    """
    device, dtype = m.qpos0.device, m.qpos0.dtype
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {list(ENGINES)}, not {name!r}")
    wish = os.environ.get("ALLOY_ENGINE", "auto")
    if wish not in ENGINES:
        raise ValueError(f"ALLOY_ENGINE must be one of {list(ENGINES)}, not {wish!r}")
    if name == "auto" and wish == "reference":
        return ReferenceEngine("picked by ALLOY_ENGINE")
    if name == "auto" and wish != "auto":
        return make_engine(wish, m)
    if name == "triton" and device.type != "cuda":
        have = "but CUDA is there" if torch.cuda.is_available() else "and PyTorch finds none here"
        raise RuntimeError(
            f"engine 'triton' needs the model on a CUDA device; it is on {device}, {have}. "
            f"Build with device='cuda', or use engine='reference' or 'auto'."
        )
    if name == "triton" and find_spec("triton") is None:
        raise RuntimeError(
            "engine 'triton' needs the package triton, which is not installed; "
            "pip install triton, or use engine='reference' or 'auto'."
        )
    if name == "triton":
        return TritonEngine(m, "asked for")
    if name == "lanes" and device.type != "cpu":
        raise RuntimeError(
            f"engine 'lanes' runs on the CPU and the model is on {device}; "
            f"build with device='cpu', or use engine='reference' or 'auto'."
        )
    if name == "lanes" and dtype != torch.float32:
        raise ValueError(
            f"engine 'lanes' computes in torch.float32 and the model is in {dtype}; "
            f"build with dtype=torch.float32, or use engine='reference' or 'auto'."
        )
    if name == "lanes":
        return LanesEngine(m, "asked for")
    if name == "auto" and device.type == "cpu" and dtype == torch.float32:
        return LanesEngine(m, "picked by 'auto': float32 on the CPU")
    if name == "auto" and device.type == "cuda" and find_spec("triton") is not None:
        return TritonEngine(m, "picked by 'auto': a model on a GPU")
    if name == "auto":
        return ReferenceEngine(
            f"picked by 'auto': the engine there is for {dtype} on {device.type}"
        )
    return ReferenceEngine("asked for")
