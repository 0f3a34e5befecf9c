"""Quaternions, rotations and spatial vectors over tensors of shape (..., n).

Quaternions are w x y z, spatial vectors are (rotation, translation) as in MuJoCo. Every function
broadcasts over its leading dimensions, returns a new tensor and keeps dtype and device. Bilinear
products are written as one outer product times a constant matrix: few operations for the eager
reference, and a form that folds completely when the step is traced and scalarised.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

MINVAL = 1e-15  # MuJoCo's mjMINVAL: the smallest denominator

# entry k of row i of the Hamilton product a b: _SIGN[i][k] * a[k] * b[_OTHER[i][k]]
_OTHER = ((0, 1, 2, 3), (1, 0, 3, 2), (2, 3, 0, 1), (3, 2, 1, 0))
_SIGN = ((1, -1, -1, -1), (1, 1, 1, -1), (1, -1, 1, 1), (1, 1, -1, 1))
# rotation matrix as a linear map of the products q_i q_j of _PAIRS
_PAIRS = ((0, 0), (1, 1), (2, 2), (3, 3), (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
_MAT = (
    (1, 1, -1, -1, 0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0, -2, 2, 0, 0),
    (0, 0, 0, 0, 0, 2, 0, 0, 2, 0), (0, 0, 0, 0, 0, 0, 2, 2, 0, 0),
    (1, -1, 1, -1, 0, 0, 0, 0, 0, 0), (0, 0, 0, 0, -2, 0, 0, 0, 0, 2),
    (0, 0, 0, 0, 0, -2, 0, 0, 2, 0), (0, 0, 0, 0, 2, 0, 0, 0, 0, 2),
    (1, -1, -1, 1, 0, 0, 0, 0, 0, 0),
)  # fmt: skip


@lru_cache(maxsize=64)
def constant(values: tuple, dtype: torch.dtype, device: str) -> Tensor:
    """A small constant tensor, made once for each dtype and device."""
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=dtype, device=device)


def quat_mul(a: Tensor, b: Tensor) -> Tensor:
    """Hamilton product of quaternions (..., 4); (..., 4)."""
    device = str(a.device)
    other = constant(_OTHER, torch.int64, device)
    return (a.unsqueeze(-2) * b[..., other] * constant(_SIGN, a.dtype, device)).sum(-1)


def quat_conj(q: Tensor) -> Tensor:
    """Conjugate, the inverse of a unit quaternion; (..., 4)."""
    return torch.cat([q[..., :1], -q[..., 1:]], -1)


def quat_to_mat(q: Tensor) -> Tensor:
    """Rotation matrix of a unit quaternion (..., 4); (..., 3, 3)."""
    device = str(q.device)
    left, right = (constant(tuple(pair[k] for pair in _PAIRS), torch.int64, device) for k in (0, 1))
    products = q[..., left] * q[..., right]
    return (products @ constant(_MAT, q.dtype, device).T).unflatten(-1, (3, 3))


def quat_normalize(q: Tensor) -> Tensor:
    """Unit quaternion; one shorter than MINVAL becomes the identity, as in MuJoCo."""
    norm = torch.linalg.vector_norm(q, dim=-1, keepdim=True)
    unit = q / norm.clamp(min=MINVAL)
    identity = torch.zeros_like(q[..., :4]).index_fill(-1, _zero_index(str(q.device)), 1.0)
    return torch.where(norm < MINVAL, identity, unit)


@lru_cache(maxsize=8)
def _zero_index(device: str) -> Tensor:
    return torch.zeros(1, dtype=torch.long, device=device)


def quat_from_axis_angle(axis: Tensor, angle: Tensor) -> Tensor:
    """Quaternion that turns by angle (...) [rad] about the unit axis (..., 3); (..., 4)."""
    half = 0.5 * angle.unsqueeze(-1)
    return torch.cat([torch.cos(half), torch.sin(half) * axis], -1)


def quat_to_rotvec(q: Tensor) -> Tensor:
    """Axis times angle [rad] of a unit quaternion (..., 4), the angle within -pi .. pi; (..., 3).

    The derivative at the identity is finite (MuJoCo's mju_quat2Vel over unit time).
    """
    sine = safe_norm(q[..., 1:], keepdim=True)
    tiny = sine < MINVAL
    angle = 2.0 * torch.atan2(sine, q[..., :1])
    angle = torch.where(angle > torch.pi, angle - 2.0 * torch.pi, angle)
    return q[..., 1:] * torch.where(tiny, 2.0, angle / torch.where(tiny, 1.0, sine))


def rotate(mat: Tensor, vec: Tensor) -> Tensor:
    """Matrix (..., n, 3) times vector (..., 3); (..., n)."""
    return (mat * vec.unsqueeze(-2)).sum(-1)


def rotate_inv(mat: Tensor, vec: Tensor) -> Tensor:
    """Transposed matrix (..., 3, n) times vector (..., 3); (..., n)."""
    return (mat * vec.unsqueeze(-1)).sum(-2)


def compose(a: Tensor, b: Tensor) -> Tensor:
    """Product of small matrices (..., i, k) and (..., k, j), broadcasting; (..., i, j)."""
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)


def constant_times(a: Tensor, x: Tensor) -> Tensor:
    """A constant matrix (i, k) times every world's (W, k, j); (W, i, j)."""
    return torch.bmm(a.expand(x.shape[0], -1, -1), x)


def cross(a: Tensor, b: Tensor) -> Tensor:
    """Cross product over the last dimension, broadcasting; (..., 3)."""
    return torch.linalg.cross(a, b, dim=-1)


def cross_matrix(v: Tensor) -> Tensor:
    """Matrix (..., 3, 3) that maps x to v x x."""
    rows = v.unsqueeze(-2).expand(*v.shape, 3)
    eye = torch.eye(3, dtype=v.dtype, device=v.device)
    return torch.linalg.cross(rows, eye.expand_as(rows), dim=-1).mT


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner product over the last dimension; (...)."""
    return (a * b).sum(-1)


def normalize(v: Tensor) -> tuple[Tensor, Tensor]:
    """Unit vector (..., 3) and length (..., 1); shorter than MINVAL becomes x, as in MuJoCo."""
    norm = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    x = torch.zeros_like(v).index_fill(-1, _zero_index(str(v.device)), 1.0)
    return torch.where(norm < MINVAL, x, v / norm.clamp(min=MINVAL)), norm


def safe_norm(v: Tensor, keepdim: bool = False) -> Tensor:
    """Euclidean length over the last dimension, with derivative zero (not NaN) at zero."""
    square = (v * v).sum(-1, keepdim=keepdim)
    zero = square <= 0
    return torch.where(zero, torch.zeros_like(square), torch.where(zero, 1.0, square).sqrt())


def cross_motion(vel: Tensor, motion: Tensor) -> Tensor:
    """Spatial cross product of motion vectors (Featherstone 2008, eq. 2.31); (..., 6)."""
    w, v = vel[..., :3], vel[..., 3:]
    p, q = motion[..., :3], motion[..., 3:]
    return torch.cat([cross(w, p), cross(w, q) + cross(v, p)], -1)


def cross_force(vel: Tensor, force: Tensor) -> Tensor:
    """Spatial cross product of a motion and a force (Featherstone 2008, eq. 2.32); (..., 6)."""
    w, v = vel[..., :3], vel[..., 3:]
    p, q = force[..., :3], force[..., 3:]
    return torch.cat([cross(w, p) + cross(v, q), cross(w, q)], -1)
