"""A step whose hot loops run as Triton kernels, and a note of what such a step would launch.

Shared by the scripts and the tests of the kernels. Needs neither a GPU nor mujoco.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from alloy import ops
from alloy.ops.reference.collide_shared import FAR
from alloy.ops.triton import lane
from alloy.physics.model import Data, tensor_fields

OPS = (
    "kinematics", "tendon", "mass_matrix", "contacts", "rows", "velocity", "passive",
    "reference_acceleration", "actuation", "solve", "sensor", "factor", "factor_solve",
    "eliminate", "integrate_quat", "semi_implicit", "runge_kutta_stage", "runge_kutta_end",
    "keep_sound",
)  # fmt: skip


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


def outputs(result: Any, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """What an op has made, as tensors: of a Data the new fields, empty ones left out."""
    if isinstance(result, tuple):
        return tuple(x for part in result for x in outputs(part, args))
    if not isinstance(result, Data):
        return (result,)
    before = next(a for a in reversed(args) if isinstance(a, Data))
    names = (f.name for f in tensor_fields(Data))
    pairs = ((getattr(result, name), getattr(before, name)) for name in names)
    return tuple(new for new, old in pairs if new is not old and new.numel())


def note_calls(run: Callable[[], Any]) -> dict[str, Call]:
    """The last call of every op while `run` takes the reference."""
    calls: dict[str, Call] = {}
    originals = {name: getattr(ops, name) for name in OPS}

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def op(*args: Any) -> Any:
            result = function(*args)
            calls[name] = Call(args, outputs(result, args))
            return result

        return op

    try:
        for name, original in originals.items():
            setattr(ops, name, noting(name, original))
        with ops.kernels(False):
            run()
    finally:
        for name, original in originals.items():
            setattr(ops, name, original)
    return calls


def twin_of(call: str) -> Callable[..., tuple[Tensor, ...]]:
    """The kernel behind a call of `note_calls`."""
    op = getattr(ops, call)

    def twin(*args: Any) -> tuple[Tensor, ...]:
        with ops.kernels(True):
            return outputs(op(*args), args)

    return twin


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
    """The largest error of a result, relative to 1 and the largest entry of its tensor.

    Empty contact slots, whose distance is FAR, hold no entries, nor do they in the results behind
    the distances. They have to be the same in float64, while in float32 rounding may decide which
    of two equal contacts there is.
    """
    actual = actual if isinstance(actual, tuple) else (actual,)
    error, slots = 0.0, None
    for a, e in zip(actual, expected, strict=True):
        empty = [x.double() == FAR for x in (a, e)]
        if a.dtype == torch.float64 and not torch.equal(*empty):
            return float("inf")
        either = empty[0] | empty[1]
        if a.ndim == 2 and either.any():
            slots = either
        elif slots is not None and a.shape[:2] == slots.shape:
            either = slots.reshape(*slots.shape, *(1,) * (a.ndim - 2))
        a, e = (x.double().masked_fill(either, 0.0) for x in (a, e))
        if e.numel():
            gap = (a - e).abs().amax() / (1 + e.abs().amax())
            error = max(error, float("inf") if gap.isnan() else float(gap))
    return error


def fast_interpreter() -> None:
    """Speed up Triton's interpreter, in use when TRITON_INTERPRET was set before this import.

    A kernel's launch patches triton.language. The interpreter does so again in each function that
    the kernel calls, which takes longer than all arithmetic together. And it computes what a check
    of integers for overflow would need, which kernels are compiled without.
    """
    from triton.runtime import interpreter

    def call(self: Any, *args: Any) -> Any:
        return self.rewrite()(*args)

    interpreter.InterpretedFunction.__call__ = call
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)
    # lanes beyond the last world compute with zeros, and are never stored
    np.seterr(all="ignore")
