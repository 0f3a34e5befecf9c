"""Hot loops of a step: one public function each, with its contract and its dispatch.

Every op takes tensors with the world axis first, never writes into its arguments and returns new
tensors. The implementation is chosen by one plain branch on the tensor's device; where only the
reference exists it runs on every device, since it is plain PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from alloy.ops.reference import collide as reference_collide
from alloy.ops.reference import inertia as reference_inertia
from alloy.ops.reference import kinematics as reference_kinematics
from alloy.ops.reference import linear as reference_linear
from alloy.ops.reference import pose as reference_pose
from alloy.ops.reference import solver as reference_solver

if TYPE_CHECKING:
    from alloy.physics.layout import ConstraintLayout
    from alloy.physics.tree import Tree


def kinematics(
    qpos: Tensor,
    qpos0: Tensor,
    mocap_pos: Tensor,
    mocap_quat: Tensor,
    body_pos: Tensor,
    body_quat: Tensor,
    jnt_pos: Tensor,
    jnt_axis: Tensor,
    tree: Tree,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """World pose of every body and joint (mj_kinematics).

    Args:
        qpos: (W, nq) positions [m, rad]; quaternions of any length, used normalised.
        qpos0: (1|W, nq) joint references.
        mocap_pos: (W, nmocap, 3) [m].
        mocap_quat: (W, nmocap, 4), used normalised.
        body_pos: (1|W, nbody, 3) [m] in the parent.
        body_quat: (1|W, nbody, 4) in the parent.
        jnt_pos: (1|W, njnt, 3) anchor in the body [m].
        jnt_axis: (1|W, njnt, 3) unit axis in the body.
        tree: the topology.

    Returns:
        xpos (W, nbody, 3), xquat (W, nbody, 4), xmat (W, nbody, 3, 3), xanchor (W, njnt, 3) and
        xaxis (W, njnt, 3). The axis of a ball or free joint is given after its rotation.
    """
    return reference_kinematics.kinematics(
        qpos, qpos0, mocap_pos, mocap_quat, body_pos, body_quat, jnt_pos, jnt_axis, tree
    )


def com(
    xpos: Tensor,
    xmat: Tensor,
    xanchor: Tensor,
    xaxis: Tensor,
    body_ipos: Tensor,
    body_imat: Tensor,
    body_mass: Tensor,
    body_subtreemass: Tensor,
    body_inertia: Tensor,
    tree: Tree,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Inertial frames, centres of mass, spatial inertias and motion axes (mj_comPos).

    Args:
        xpos: (W, nbody, 3) body positions [m].
        xmat: (W, nbody, 3, 3) body rotations.
        xanchor: (W, njnt, 3) joint anchors [m].
        xaxis: (W, njnt, 3) joint axes.
        body_ipos: (1|W, nbody, 3) inertial frame in the body [m].
        body_imat: (1|W, nbody, 3, 3) its rotation.
        body_mass: (1|W, nbody) [kg].
        body_subtreemass: (1|W, nbody) [kg].
        body_inertia: (1|W, nbody, 3) principal moments [kg m^2].
        tree: the topology.

    Returns:
        xipos (W, nbody, 3), ximat (W, nbody, 3, 3), subtree_com (W, nbody, 3), cinert
        (W, nbody, 10) about the tree's centre of mass, and cdof (W, nv, 6), rotation first.
    """
    return reference_inertia.com(
        xpos, xmat, xanchor, xaxis, body_ipos, body_imat, body_mass, body_subtreemass,
        body_inertia, tree,
    )  # fmt: skip


def mass_matrix(cinert: Tensor, cdof: Tensor, dof_armature: Tensor, tree: Tree) -> Tensor:
    """Joint-space inertia M (W, nv, nv), composite rigid bodies, armature on the diagonal.

    Args:
        cinert: (W, nbody, 10).
        cdof: (W, nv, 6).
        dof_armature: (1|W, nv) [kg m^2 or kg].
        tree: the topology.
    """
    return reference_inertia.mass_matrix(cinert, cdof, dof_armature, tree)


def velocity(cdof: Tensor, qvel: Tensor, tree: Tree) -> tuple[Tensor, Tensor]:
    """Spatial velocities cvel (W, nbody, 6) and cdof_dot (W, nv, 6) (mj_comVel).

    Args:
        cdof: (W, nv, 6).
        qvel: (W, nv) [m/s, rad/s].
        tree: the topology.
    """
    return reference_inertia.velocity(cdof, qvel, tree)


def bias(
    cinert: Tensor,
    cdof: Tensor,
    cdof_dot: Tensor,
    cvel: Tensor,
    qvel: Tensor,
    gravity: Tensor,
    tree: Tree,
) -> Tensor:
    """Coriolis, centrifugal and gravity force (W, nv) (mj_rne without acceleration).

    Args:
        cinert: (W, nbody, 10).
        cdof: (W, nv, 6).
        cdof_dot: (W, nv, 6).
        cvel: (W, nbody, 6).
        qvel: (W, nv).
        gravity: (1|W, 3) [m/s^2].
        tree: the topology.
    """
    return reference_inertia.bias(cinert, cdof, cdof_dot, cvel, qvel, gravity, tree)


COLLIDER_KINDS = tuple(reference_collide.COLLIDERS)  # (mjtGeom of geom 1, of geom 2)


def collider_slots(kind: tuple[int, int]) -> int:
    """Number of contact slots that each pair of a kind has."""
    return reference_collide.COLLIDERS[kind].slots


def collide(
    kind: tuple[int, int],
    pos1: Tensor,
    mat1: Tensor,
    size1: Tensor,
    pos2: Tensor,
    mat2: Tensor,
    size2: Tensor,
    margin: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Contacts of P pairs of geoms of one kind, K = `collider_slots(kind)` slots for each.

    Args:
        kind: one of COLLIDER_KINDS.
        pos1: (W, P, 3) centres of geom 1 [m].
        mat1: (W, P, 3, 3) its rotations.
        size1: (1|W, P, 3) its sizes as in mjModel [m].
        pos2: (W, P, 3), of geom 2 as of geom 1.
        mat2: (W, P, 3, 3).
        size2: (1|W, P, 3).
        margin: (1|W, P) distance at which contacts begin [m]; looked at only where it decides
            which contacts there are: the caller drops those with dist > margin.

    Returns:
        dist (W, P, K), negative in penetration and 1e10 in slots without a contact, pos
        (W, P, K, 3) midway between the surfaces, and frame (W, P, K, 3, 3) with the normal from
        geom 1 to geom 2 in its first row. Source: MuJoCo's primitive colliders.
    """
    return reference_collide.COLLIDERS[kind].fn(pos1, mat1, size1, pos2, mat2, size2, margin)


def factor(a: Tensor) -> Tensor:
    """Factor of symmetric positive definite matrices (W, n, n), from the leaves to the root."""
    return reference_linear.factor(a)


def factor_solve(chol: Tensor, b: Tensor) -> Tensor:
    """Solution (W, n) of A x = b with `factor(A)`."""
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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Constrained acceleration: the minimum of MuJoCo's primal cost, by Newton's method.

    Args:
        mass: (W, nv, nv).
        qfrc_smooth: (W, nv) forces without constraints.
        jac: (W, nefc, nv) base rows.
        aref: (W, nefc) reference acceleration.
        d: (W, nefc) inverse regularisation, zero where not active.
        frictionloss: (1|W, nv).
        con_friction: (1|W, ncon, 5).
        warmstart: (W, nv) where to start, the last acceleration.
        layout: what each row is.
        impratio: ratio of frictional to normal impedance.
        scale: 1 / (meaninertia * nv), makes tolerances dimensionless.
        opt: tolerance, line search tolerance, iterations, line search iterations.

    Returns:
        qacc (W, nv), qfrc_constraint (W, nv), base-row forces (W, nefc) and iterations (W,).
        Differentiable by the implicit function theorem.
    """
    return reference_solver.solve(
        mass, qfrc_smooth, jac, aref, d, frictionloss, con_friction, warmstart,
        layout, impratio, scale, opt,
    )  # fmt: skip


def integrate_quat(quat: Tensor, omega: Tensor, dt: float) -> Tensor:
    """Quaternions (W, n, 4) turned for dt [s] by body-frame angular velocity (W, n, 3) [rad/s]."""
    return reference_pose.integrate_quat(quat, omega, dt)


def integrate_pos(
    qpos: Tensor,
    qvel: Tensor,
    dt: float,
    linear_qpos: Tensor | None,
    linear_dof: Tensor | None,
    quat_qpos: Tensor | None,
    quat_dof: Tensor | None,
    order: Tensor | None,
) -> Tensor:
    """Positions (W, nq) after moving with qvel (W, nv) for dt [s] (mj_integratePos).

    Args:
        qpos: (W, nq).
        qvel: (W, nv).
        dt: time [s].
        linear_qpos: addresses that move linearly, and linear_dof their dofs; None: none.
        linear_dof: see linear_qpos.
        quat_qpos: (n, 4) addresses of quaternions, and quat_dof (n, 3); None: all is linear.
        quat_dof: see quat_qpos.
        order: puts [linear, quaternions] back into the order of qpos.
    """
    return reference_pose.integrate_pos(
        qpos, qvel, dt, linear_qpos, linear_dof, quat_qpos, quat_dof, order
    )
