"""A control step as a pure function of what a simulator holds: what engines compile or record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from alloy.guard import Guard, guarded_step
from alloy.physics.model import INPUTS, STATE, Data, Model, tensor_fields

HELD = (*STATE, *INPUTS)


def varied_fields(m: Model, nominal: Model) -> tuple[str, ...]:
    """Names of the model's fields that are not the nominal model's own."""
    names = (f.name for f in tensor_fields(Model))
    return tuple(name for name in names if getattr(m, name) is not getattr(nominal, name))


def wants_gradient(m: Model, d: Data) -> bool:
    """Whether a step from `d` has to be differentiable."""
    if not torch.is_grad_enabled():
        return False
    fields = [getattr(m, f.name) for f in tensor_fields(Model)]
    tensors = (*fields, *(getattr(d, name) for name in HELD))
    return any(t is not None and t.requires_grad for t in tensors)


def written(keep: tuple[str, ...]) -> tuple[str, ...]:
    """The fields of Data that `control_step` gives back."""
    return (*STATE, "ctrl", "solver_niter", *keep)


def control_step(
    nominal: Model, substeps: int, varied: tuple[str, ...], keep: tuple[str, ...]
) -> Callable[..., Any]:
    """The step as a function of the held fields of Data, the guard and the varied model fields.

    It returns the fields named by `written` and the guard.
    """

    def program(
        held: tuple[Tensor, ...], guard: tuple[Tensor, ...], fields: tuple[Tensor, ...]
    ) -> tuple[Any, ...]:
        model = replace(nominal, **dict(zip(varied, fields, strict=True)))
        d = Data(**dict(zip(HELD, held, strict=True)))
        d, after = guarded_step(model, d, Guard(*guard), substeps, derived=False, keep=keep)
        return tuple(getattr(d, n) for n in written(keep)), tuple(after)

    return program
