"""A step whose hot loops run as Triton kernels, and a note of what such a step would launch.

Shared by the scripts and the tests of the kernels. Needs neither a GPU nor mujoco.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from alloy import ops
from alloy.ops.reference import collide as reference_collide
from alloy.ops.triton import collide, inertia, kinematics, lane, linear, pose, solver
from alloy.ops.triton.plan import Plan, row_support, sparse_plan
from alloy.physics.model import Model

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
    colliders = dict(reference_collide.COLLIDERS)
    try:
        for name, twin in twins.items():
            setattr(ops, name, twin)
        reference_collide.COLLIDERS.update(collide.COLLIDERS)
        yield
    finally:
        for name, original in originals.items():
            setattr(ops, name, original)
        reference_collide.COLLIDERS.update(colliders)


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
