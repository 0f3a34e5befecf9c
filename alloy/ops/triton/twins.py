"""Every op that has kernels, by the name it has in `alloy.ops`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alloy.ops.triton import inertia, kinematics, solver

TWINS: dict[str, Callable[..., Any]] = {
    "kinematics": kinematics.kinematics,
    "com": inertia.com,
    "mass_matrix": inertia.mass_matrix,
    "velocity": inertia.velocity,
    "bias": inertia.bias,
    "solve": solver.solve,
}
