"""A step whose hot loops run as Triton kernels, and a note of what such a step would launch.

Shared by the scripts and the tests of the kernels. Needs neither a GPU nor mujoco.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from alloy import ops
from alloy.ops.reference import collide as reference_collide
from alloy.ops.triton import collide, inertia, kinematics, lane, linear, pose, solver
from alloy.ops.triton.plan import Plan, row_support, sparse_plan
from alloy.physics.model import Model


def collide_or_reference(kind: tuple[int, int], *args: Tensor) -> tuple[Tensor, ...]:
    """Contacts of a kind by its kernel, if it has one."""
    if kind in collide.SHAPES:
        return collide.collide(kind, *args)
    return reference_collide.COLLIDERS[kind].fn(*args)


TWINS: dict[str, Callable[..., Any]] = {
    "kinematics": kinematics.kinematics,
    "com": inertia.com,
    "mass_matrix": inertia.mass_matrix,
    "velocity": inertia.velocity,
    "bias": inertia.bias,
    "factor": linear.factor,
    "factor_solve": linear.solve,
    "solve": solver.solve,
    "integrate_quat": pose.integrate_quat,
    "integrate_pos": pose.integrate_pos,
    "collide": collide_or_reference,
}


def plan_of(m: Model) -> Plan:
    """The solver's loops, with the sparsity of a model's rows and tree."""
    move = m.derived["contact"].move if m.ncon else None
    return sparse_plan(m.efc, row_support(m.efc, m.nv, move), m.tree.m_lower)


@contextmanager
def kernels(m: Model) -> Iterator[None]:
    """Steps of this model run their hot loops as kernels within the context."""
    twins = TWINS | {"solve": partial(solver.solve, plan=plan_of(m))}
    originals = {name: getattr(ops, name) for name in twins}
    try:
        for name, twin in twins.items():
            setattr(ops, name, twin)
        yield
    finally:
        for name, original in originals.items():
            setattr(ops, name, original)


@dataclass
class Launch:
    """A kernel that would have been started, with its arguments."""

    kernel: Any
    grid: tuple[int, int]
    args: tuple[Any, ...]
    constants: dict[str, Any]

    @property
    def name(self) -> str:
        """The kernel's name without underscores."""
        return self.kernel.__name__.strip("_").removesuffix("_kernel")


@contextmanager
def noted_launches() -> Iterator[list[Launch]]:
    """Launches are noted and not carried out: outputs keep whatever was in memory."""
    launches: list[Launch] = []
    original = lane.run
    lane.run = lambda *parts: launches.append(Launch(*parts))
    try:
        yield launches
    finally:
        lane.run = original


@dataclass
class Call:
    """One call of an op: its arguments, and what the reference answered."""

    args: tuple[Any, ...]
    result: tuple[Tensor, ...]


def note_calls(run: Callable[[], Any]) -> dict[str, Call]:
    """The last call of every op, and of every kind of collider, during `run`."""
    calls: dict[str, Call] = {}
    originals = {name: getattr(ops, name) for name in TWINS}

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def op(*args: Any) -> Any:
            result = function(*args)
            key = f"collide {collide.SHAPES.get(args[0])}" if name == "collide" else name
            calls[key] = Call(args, result if isinstance(result, tuple) else (result,))
            return result

        return op

    try:
        for name, original in originals.items():
            setattr(ops, name, noting(name, original))
        run()
    finally:
        for name, original in originals.items():
            setattr(ops, name, original)
    return calls


def twin_of(m: Model, call: str) -> Callable[..., Any]:
    """The kernel's launcher for a call of `note_calls`."""
    return partial(solver.solve, plan=plan_of(m)) if call == "solve" else TWINS[call.split()[0]]


def cast(x: Any, dtype: torch.dtype, device: torch.device | str | None = None) -> Any:
    """The same with floating tensors of dtype, on a device; through tuples, dicts, dataclasses."""
    if isinstance(x, Tensor):
        return x.to(device=device, dtype=dtype if x.is_floating_point() else None)
    if isinstance(x, dict):
        return {key: cast(value, dtype, device) for key, value in x.items()}
    if isinstance(x, tuple):
        values = [cast(value, dtype, device) for value in x]
        return type(x)(*values) if hasattr(x, "_fields") else tuple(values)
    if is_dataclass(x) and not isinstance(x, type):
        values = {f.name: cast(getattr(x, f.name), dtype, device) for f in fields(x)}
        return replace(x, **values)
    return x


def worst(actual: Any, expected: tuple[Tensor, ...]) -> float:
    """The largest error of a result, relative to 1 and the largest entry of its tensor."""
    actual = actual if isinstance(actual, tuple) else (actual,)
    error = 0.0
    for a, e in zip(actual, expected, strict=True):
        if e.numel():
            gap = (a.double() - e.double()).abs().amax() / (1 + e.double().abs().amax())
            error = max(error, float("inf") if gap.isnan() else float(gap))
    return error


def fast_interpreter() -> None:
    """Speed up Triton's interpreter, in use when TRITON_INTERPRET was set before this import.

    A kernel's launch patches triton.language. The interpreter does so again in each function that
    the kernel calls, which takes longer than all arithmetic together.
    """
    from triton.runtime import interpreter

    def call(self: Any, *args: Any) -> Any:
        return self.rewrite()(*args)

    interpreter.InterpretedFunction.__call__ = call
    # lanes beyond the last world compute with zeros, and are never stored
    np.seterr(all="ignore")
