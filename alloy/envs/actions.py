"""From actions to actuator targets: what each component of the action space drives, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from alloy.envs.actions_spec import ActionTerm
from alloy.names import UnknownName

if TYPE_CHECKING:
    from alloy.sim import Simulator


class MissingActuator(UnknownName):
    """An action drives an actuator that the scene does not have."""

    def __init__(self, action: str, actuator: str, known: Sequence[str]) -> None:
        super().__init__("actuator", actuator, known)
        self.action = action

    def __str__(self) -> str:
        advice = "Add <actuator> to the MJCF or drop it from actions."
        return f"action {self.action!r}: {super().__str__()} {advice}"


UNLIMITED = (-1.0, 1.0)  # bounds of a raw action whose actuator has no ctrlrange


@dataclass(frozen=True)
class Actions:
    """The action space and its map to ctrl; tables by control, built once per environment."""

    names: tuple[str, ...]
    low: np.ndarray  # (A,) float32
    high: np.ndarray
    term: Tensor  # (nu,) int64: the action that drives the control
    driven: Tensor  # (nu,) bool
    delta: Tensor  # (nu,) bool: the action moves the last target instead of setting it
    centre: Tensor  # (nu,) target of an action of 0
    gain: Tensor  # (nu,) change of the target for an action of 1
    bounds: Tensor  # (2, nu) lowest and highest target
    clip: Tensor  # (2, A) low and high as tensors

    def ctrl(self, action: Tensor, ctrl: Tensor) -> Tensor:
        """Controls [W, nu] for a clipped action [W, A]; `ctrl` are those of the step before."""
        if not self.names:
            return ctrl
        change = action.index_select(-1, self.term) * self.gain
        moved = torch.clamp(ctrl + change, self.bounds[0], self.bounds[1])
        target = torch.where(self.delta, moved, self.centre + change)
        return torch.where(self.driven, target, ctrl)


def _span(term: ActionTerm, actuator: str, ctrlrange: tuple[float, float] | None) -> list[float]:
    """Lowest and highest target of an actuator under a term."""
    given = (term.low, term.high)
    if ctrlrange is None and None in given:
        raise ValueError(
            f"action {term.name!r} drives actuator {actuator!r}, which has no ctrlrange: give the "
            f"action low= and high=, or the actuator a ctrlrange"
        )
    low, high = (g if g is not None else r for g, r in zip(given, ctrlrange or given, strict=True))
    if not low < high:  # type: ignore[operator]
        raise ValueError(
            f"action {term.name!r}: low {low} is not below high {high} for actuator {actuator!r}"
        )
    return [low, high]  # type: ignore[list-item]


def _index(sim: Simulator, actuator: str, term: ActionTerm) -> int:
    """Which control is meant by the name of an actuator that has one, or by that of a control."""
    names = sim.names()
    if actuator in names["controls"]:
        return names["controls"].index(actuator)
    if actuator not in names["actuators"]:
        raise MissingActuator(term.name, actuator, names["actuators"])
    own = [name for name in names["controls"] if name.startswith(f"{actuator}/")]
    raise ValueError(
        f"action {term.name!r} drives actuator {actuator!r}, which has {len(own)} controls; "
        + (f"name one of {own}" if own else "drop it from actions")
    )


def _term(given: ActionTerm | str) -> ActionTerm:
    """An action term; the name of an actuator stands for its target within its ctrlrange."""
    if isinstance(given, str):
        return ActionTerm(given, (given,))
    if not isinstance(given, ActionTerm):
        raise TypeError(
            f"actions must be ActionTerms or names of actuators, not {type(given).__name__} "
            f"{given!r}; alloy.envs.robots has helpers that make them"
        )
    return given


def bind_actions(given: Sequence[ActionTerm | str] | None, sim: Simulator) -> Actions:
    """The action space of a task.

    Args:
        given: one per component, each a number in [-1, 1]; the name of an actuator is its target,
            "actuator/input" that of one of its controls (see `sim.names()["controls"]`). None for
            the controls themselves, in their own units and within their ctrlrange ([-1, 1] where
            one has none).
        sim: the simulator whose actuators are driven.

    Raises:
        UnknownName: a term drives an actuator that is not there; the message has near matches.
        ValueError: two terms of one name or on one actuator, or a target without bounds.
        TypeError: something that is no term.
    """
    nu, mj = sim.mj_model.nu, sim.mj_model
    ranges = [
        tuple(mj.actuator_ctrlrange[i]) if mj.actuator_ctrllimited[i] else None for i in range(nu)
    ]
    if given is None:
        return _raw(sim, [r if r is not None else UNLIMITED for r in ranges])
    terms = [_term(t) for t in given]
    names = [t.name for t in terms]
    table: dict[int, tuple[int, bool, list[float], float]] = {}
    for k, term in enumerate(terms):
        if names.index(term.name) != k:
            raise ValueError(f"two actions are called {term.name!r}; names must differ")
        for actuator in term.actuators:
            i = _index(sim, actuator, term)
            if i in table:
                raise ValueError(
                    f"actuator {actuator!r} is driven by two actions, {names[table[i][0]]!r} and "
                    f"{term.name!r}; drop one"
                )
            span = _span(term, actuator, ranges[i])
            table[i] = (k, term.mode == "delta", span, term.scale)
    return _tables(sim, names, table)


def _raw(sim: Simulator, ranges: Sequence[tuple[float, float]]) -> Actions:
    nu, named = sim.mj_model.nu, sim.names()["controls"]
    low, high = np.asarray(ranges, np.float32).reshape(-1, 2).T.copy()
    like = {"dtype": sim.dtype, "device": sim.device}
    ones = torch.ones(nu, **like)
    return Actions(
        names=tuple(named),
        low=low,
        high=high,
        term=torch.arange(nu, device=sim.device),
        driven=ones.bool(),
        delta=torch.zeros_like(ones).bool(),
        centre=torch.zeros_like(ones),
        gain=ones,
        bounds=torch.tensor(np.stack([low, high]), **like),
        clip=torch.tensor(np.stack([low, high]), **like),
    )


def _tables(
    sim: Simulator, names: list[str], table: dict[int, tuple[int, bool, list[float], float]]
) -> Actions:
    nu = sim.mj_model.nu
    term, delta = [0] * nu, [False] * nu
    centre, gain, bounds = [0.0] * nu, [0.0] * nu, [[0.0] * nu, [0.0] * nu]
    for i, (k, is_delta, (low, high), scale) in table.items():
        term[i], delta[i] = k, is_delta
        centre[i] = 0.5 * (low + high)
        gain[i] = scale if is_delta else 0.5 * (high - low)
        bounds[0][i], bounds[1][i] = low, high
    like = {"dtype": sim.dtype, "device": sim.device}
    one = np.ones(len(names), np.float32)
    return Actions(
        names=tuple(names),
        low=-one,
        high=one,
        term=torch.tensor(term, dtype=torch.int64, device=sim.device),
        driven=torch.tensor([i in table for i in range(nu)], dtype=torch.bool, device=sim.device),
        delta=torch.tensor(delta, dtype=torch.bool, device=sim.device),
        centre=torch.tensor(centre, **like),
        gain=torch.tensor(gain, **like),
        bounds=torch.tensor(bounds, **like),
        clip=torch.tensor(np.stack([-one, one]), **like),
    )
