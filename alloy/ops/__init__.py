"""Hot loops of a step: one public function each, with its contract and its dispatch.

Every op takes tensors with the world axis first, never writes into its arguments and returns new
tensors. The implementation is chosen by one plain branch on the tensor's device (`dispatch`): the
kernel on a GPU, else the reference, which is plain PyTorch and runs everywhere. The stages of a
step are ops too: they take Model and Data, see `stages`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from alloy.ops.dispatch import by_kernel, kernels
from alloy.ops.reference import collide as reference_collide
from alloy.ops.reference import inertia as reference_inertia
from alloy.ops.reference import linear as reference_linear
from alloy.ops.reference import pose as reference_pose
from alloy.ops.reference import solver as reference_solver
from alloy.ops.stages import (
    actuation,
    contacts,
    keep_sound,
    kinematics,
    passive,
    reference_acceleration,
    rows,
    runge_kutta_end,
    runge_kutta_stage,
    semi_implicit,
    sensor,
    tendon,
    velocity,
)

if TYPE_CHECKING:
    from alloy.physics.layout import ConstraintLayout
    from alloy.physics.tree import Tree

__all__ = [
    "COLLIDER_KINDS", "CONVEX_KINDS", "actuation", "by_kernel", "collider_slots", "contacts",
    "eliminate", "factor",
    "factor_solve", "integrate_quat", "keep_sound", "kernels", "kinematics", "mass_matrix",
    "passive", "reference_acceleration", "rows", "runge_kutta_end", "runge_kutta_stage",
    "semi_implicit", "sensor", "solve", "tendon", "velocity",
]  # fmt: skip


def mass_matrix(cinert: Tensor, cdof: Tensor, dof_armature: Tensor, tree: Tree) -> Tensor:
    """Joint-space inertia M (W, nv, nv), composite rigid bodies, armature on the diagonal.

    Args:
        cinert: (W, nbody, 10).
        cdof: (W, nv, 6).
        dof_armature: (1|W, nv) [kg m^2 or kg].
        tree: the topology.
    """
    if by_kernel(cinert, cdof, dof_armature):
        from alloy.ops.triton import inertia

        return inertia.mass_matrix(cinert, cdof, dof_armature, tree)
    return reference_inertia.mass_matrix(cinert, cdof, dof_armature, tree)


COLLIDER_KINDS = tuple(reference_collide.COLLIDERS)  # (mjtGeom of geom 1, of geom 2)
CONVEX_KINDS = reference_collide.CONVEX_KINDS


def collider_slots(kind: tuple[int, int]) -> int:
    """Number of contact slots that each pair of a kind has."""
    return reference_collide.COLLIDERS[kind].slots


def factor(a: Tensor) -> Tensor:
    """Factor of symmetric positive definite matrices (W, n, n), from the leaves to the root."""
    if by_kernel(a):
        from alloy.ops.triton import linear

        return linear.factor(a)
    return reference_linear.factor(a)


def factor_solve(chol: Tensor, b: Tensor) -> Tensor:
    """Solution (W, n) of A x = b with `factor(A)`."""
    if by_kernel(chol, b):
        from alloy.ops.triton import linear

        return linear.solve(chol, b)
    return reference_linear.solve(chol, b)


def solve(
    mass: Tensor,
    qfrc_smooth: Tensor,
    jac: Tensor,
    aref: Tensor,
    d: Tensor,
    frictionloss: Tensor,
    con_friction: Tensor,
    warmstart: Tensor,
    layout: ConstraintLayout,
    impratio: float,
    scale: float,
    opt: tuple[float, float, int, int],
    tree: Tree,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Constrained acceleration: the minimum of MuJoCo's primal cost, by Newton's method.

    Args:
        mass: (W, nv, nv).
        qfrc_smooth: (W, nv) forces without constraints.
        jac: (W, nefc, nv) base rows.
        aref: (W, nefc) reference acceleration.
        d: (W, nefc) inverse regularisation, zero where not active.
        frictionloss: (1|W, nv); (1|W, nv + ntendon) where some tendon has friction loss.
        con_friction: (1|W, ncon, 5).
        warmstart: (W, nv) where to start, the last acceleration.
        layout: what each row is.
        impratio: ratio of frictional to normal impedance.
        scale: 1 / (meaninertia * nv), makes tolerances dimensionless.
        opt: tolerance, line search tolerance, iterations, line search iterations.
        tree: the topology, which says where M is not zero.

    Returns:
        qacc (W, nv), qfrc_constraint (W, nv), base-row forces (W, nefc) and iterations (W,).
        Differentiable by the implicit function theorem.
    """
    tensors = (mass, qfrc_smooth, jac, aref, d, frictionloss, con_friction)
    if by_kernel(*tensors, warmstart) and layout.fixed and not layout.n_tendon_losses:
        from alloy.ops.triton import solver

        return solver.solve(*tensors, warmstart, layout, impratio, scale, opt, tree)
    return reference_solver.solve(*tensors, warmstart, layout, impratio, scale, opt)


def eliminate(a: Tensor, b: Tensor) -> Tensor:
    """Solution (W, n) of A x = b (W, n), A (W, n, n) not symmetric but near one that is definite.

    No pivots are sought, as in MuJoCo's mju_factorLUSparse. A singular matrix gives non-finite
    numbers in its own world, no error.
    """
    if by_kernel(a, b):
        from alloy.ops.triton import linear

        return linear.eliminate(a, b)
    return reference_linear.eliminate(a, b)


def integrate_quat(quat: Tensor, omega: Tensor, dt: float) -> Tensor:
    """Quaternions (W, n, 4) turned for dt [s] by body-frame angular velocity (W, n, 3) [rad/s]."""
    if by_kernel(quat, omega):
        from alloy.ops.triton import pose

        return pose.integrate_quat(quat, omega, dt)
    return reference_pose.integrate_quat(quat, omega, dt)
