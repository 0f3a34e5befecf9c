"""An action term: its name, the actuators it drives, and how [-1, 1] becomes their targets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ActionTerm:
    """One component of the action space: a number in [-1, 1] that drives one or more actuators.

    Every actuator of a term gets the same number, mapped by `mode`:

    * `"target"`: -1 becomes `low` and 1 becomes `high`, linearly between them.
    * `"delta"`: `scale` times the number is added to the actuator's last target, and the sum is
      kept within `low` and `high`. At reset the last target is the actuator's control at reset.

    Attributes:
        name: the action's name, `entity/action`.
        actuators: full names of the actuators driven.
        mode: `"target"` or `"delta"`.
        low: lowest target, in the actuator's units; None for the lower end of its ctrlrange.
        high: highest target, in the actuator's units; None for the upper end of its ctrlrange.
        scale: target change for an action of 1 per control step, in the actuator's units; unused
            by `"target"`.
    """

    name: str
    actuators: tuple[str, ...]
    mode: Literal["target", "delta"] = "target"
    low: float | None = None
    high: float | None = None
    scale: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a term that could not drive anything."""
        where = f"action {self.name!r}"
        if not self.actuators:
            raise ValueError(f"{where} drives no actuator: name at least one in actuators=")
        if self.mode not in ("target", "delta"):
            raise ValueError(f"{where}: mode is {self.mode!r}; it is 'target' or 'delta'")
        for label, value in (("low", self.low), ("high", self.high), ("scale", self.scale)):
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{where}: {label} is {value}; it must be finite")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"{where}: low {self.low} is not below high {self.high}")
