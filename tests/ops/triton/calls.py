"""The calls a reference step makes of each op, with their float64 results: what kernels must meet.

Running a step and noting its calls gives every kernel the arguments it will really get: contacts
and limits that are active, world-last memory, fields shared or different in every world.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from alloy import ops
from alloy.physics import forward, io
from alloy.physics.model import STATE, Data, Model, make_data, tensor_fields
from tests.physics.fixture import load, random_state

OPS = (
    "kinematics", "com", "mass_matrix", "velocity", "bias", "factor", "factor_solve", "solve",
    "integrate_quat", "integrate_pos",
)  # fmt: skip
KEPT = ("body_quat", "body_imat", "geom_quat", "geom_mat", "site_quat", "site_mat", "jnt_axis")


@dataclass
class Call:
    """One call of an op: its arguments in float64, and what the reference answers."""

    args: tuple[Any, ...]
    result: tuple[Tensor, ...]


def per_world(m: Model, worlds: int) -> Model:
    """The model with every field different in every world, unit vectors and rotations excepted."""
    generator = torch.Generator().manual_seed(0)
    values = {}
    for f in tensor_fields(Model):
        value = getattr(m, f.name)
        if f.name not in KEPT and not f.name.startswith("efc_"):
            factor = 1 + 0.05 * torch.rand(worlds, *value.shape[1:], generator=generator)
            values[f.name] = value * factor.to(value.dtype)
    return replace(m, **values)


def states(mj: mujoco.MjModel, m: Model, worlds: int) -> Data:
    """Random states, one for each world."""
    d, mjd = make_data(m, worlds), mujoco.MjData(mj)
    for w in range(worlds):
        random_state(mj, mjd, np.random.default_rng(w))
        for name in (*STATE[:3], "ctrl", "qfrc_applied", "xfrc_applied"):
            getattr(d, name)[w] = torch.as_tensor(getattr(mjd, name))
    return d


def note_calls(run: Any) -> dict[str, Call]:
    """The last call of each op while `run` runs."""
    calls: dict[str, Call] = {}
    originals = {name: getattr(ops, name) for name in OPS}

    def noting(name: str) -> Any:
        def op(*args: Any) -> Any:
            result = originals[name](*args)
            calls[name] = Call(args, result if isinstance(result, tuple) else (result,))
            return result

        return op

    try:
        for name in OPS:
            setattr(ops, name, noting(name))
        run()
    finally:
        for name, original in originals.items():
            setattr(ops, name, original)
    return calls


@lru_cache(maxsize=16)
def model_of(source: str) -> Model:
    """The float64 model of a source."""
    return io.put_model(load(source), dtype=torch.float64)


@lru_cache(maxsize=16)
def calls_of(source: str, worlds: int, shared: bool) -> dict[str, Call]:
    """Calls of one float64 step from random states."""
    m = model_of(source)
    d = states(load(source), m, worlds)
    if not shared:
        m = per_world(m, worlds)
    return note_calls(lambda: forward.step(m, d))


def cast(x: Any, dtype: torch.dtype) -> Any:
    """Floating tensors to dtype; in tuples and dataclasses too."""
    if isinstance(x, Tensor):
        return x.to(dtype) if x.is_floating_point() else x
    if isinstance(x, tuple):
        return tuple(cast(y, dtype) for y in x)
    if is_dataclass(x) and not isinstance(x, type):
        values = {f.name: cast(getattr(x, f.name), dtype) for f in fields(x)}
        return replace(x, **values)
    return x


def assert_twin(twin: Any, call: Call, dtype: torch.dtype, tolerance: float) -> None:
    """The kernel meets the reference, relative to the largest entry of each result."""
    actual = twin(*(cast(a, dtype) for a in call.args))
    actual = actual if isinstance(actual, tuple) else (actual,)
    assert len(actual) == len(call.result)
    for k, (a, e) in enumerate(zip(actual, call.result, strict=True)):
        assert a.shape == e.shape, f"result {k}: shape {tuple(a.shape)}, expected {tuple(e.shape)}"
        assert a.dtype == (dtype if e.is_floating_point() else e.dtype)
        if a.shape[0] > 1 and a.ndim > 1:
            assert a.movedim(0, -1).is_contiguous(), f"result {k} is not world-last in memory"
        error = (a.double() - e.double()).abs().amax() if e.numel() else torch.zeros(())
        scale = 1 + e.double().abs().amax() if e.numel() else 1
        assert error <= tolerance * scale, f"result {k}: relative error {error / scale:.1e}"
