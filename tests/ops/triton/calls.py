"""The calls a reference step makes of each op, with their float64 results: what kernels must meet.

Running a step and noting its calls gives every kernel the arguments it will really get: contacts
and limits that are active, world-last memory, fields shared or different in every world.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import mujoco
import numpy as np
import torch

from alloy.guard import guarded_step, make_guard
from alloy.physics import io
from alloy.physics.model import STATE, Data, Model, make_data, tensor_fields
from scripts.kernels import Call, cast, note_calls, worst
from tests.physics.fixture import load, random_state

KEPT = ("body_quat", "body_imat", "geom_quat", "geom_mat", "site_quat", "site_mat", "jnt_axis")


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


@lru_cache(maxsize=16)
def calls_of(source: str, worlds: int, shared: bool) -> dict[str, Call]:
    """Calls of one float64 step from random states."""
    m = io.put_model(load(source), dtype=torch.float64)
    d = states(load(source), m, worlds)
    if not shared:
        m = per_world(m, worlds)
    return note_calls(lambda: guarded_step(m, d, make_guard(worlds, "cpu"), 1))


def assert_twin(twin: Any, call: Call, dtype: torch.dtype, tolerance: float) -> None:
    """The kernel meets the reference, relative to the largest entry of each result."""
    args = tuple(cast(a, dtype) for a in call.args)
    given = {x.data_ptr() for a in args if isinstance(a, Data) for x in vars(a).values()
             if isinstance(x, torch.Tensor)}  # fmt: skip
    actual = twin(*args)
    actual = actual if isinstance(actual, tuple) else (actual,)
    assert len(actual) == len(call.result)
    for k, (a, e) in enumerate(zip(actual, call.result, strict=True)):
        assert a.shape == e.shape, f"result {k}: shape {tuple(a.shape)}, expected {tuple(e.shape)}"
        assert a.dtype == (dtype if e.is_floating_point() else e.dtype)
        if a.shape[0] > 1 and a.ndim > 1 and a.stride(0) and a.data_ptr() not in given:
            assert a.movedim(0, -1).is_contiguous(), f"result {k} is not world-last in memory"
        error = worst(a, (e,))
        assert error <= tolerance, f"result {k}: relative error {error:.1e}"
