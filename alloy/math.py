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
from torch.utils._python_dispatch import _disable_current_modes

MINVAL = 1e-15  # MuJoCo's mjMINVAL: the smallest denominator
EYE3 = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))

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
_MAT_T = tuple(zip(*_MAT, strict=True))
_LEFT, _RIGHT = zip(*_PAIRS, strict=True)


def _link_map() -> tuple[tuple[tuple[float, ...], ...], tuple[float, ...]]:
    """Constants of `link_factors`: by feature [products, quaternion, position], and offset."""
    linear = [[0.0] * 64 for _ in range(len(_PAIRS) + 7)]
    offset = [0.0] * 64
    for k in range(4):
        for c in range(4):
            for r in range(3):
                place = 16 * r + 4 * k + c
                if k == 3:
                    offset[place] = float(c == 3)
                elif c == 3:
                    linear[len(_PAIRS) + 4 + k][place] = 1.0
                else:
                    for f, weight in enumerate(_MAT[3 * k + c]):
                        linear[f][place] = float(weight)
            linear[len(_PAIRS) + _OTHER[c][k]][48 + 4 * k + c] = float(_SIGN[c][k])
    return tuple(tuple(row) for row in linear), tuple(offset)


_LINK_MAP, _LINK_OFFSET = _link_map()


def constant(values: tuple | float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A small constant tensor, made once for each dtype and device."""
    if torch.compiler.is_compiling():
        return torch.tensor(values, dtype=dtype, device=device)
    return _constant(values, dtype, device)


def constant_like(values: tuple | float, like: Tensor) -> Tensor:
    """A small constant tensor of the dtype and device of `like`, made once."""
    return constant(values, like.dtype, like.device)


@lru_cache(maxsize=256)
def _constant(values: tuple | float, dtype: torch.dtype, device: torch.device) -> Tensor:
    # outside any transform that happens to run, so that what is kept is a plain tensor
    with torch.inference_mode(False), torch._C._DisableFuncTorch(), _disable_current_modes():
        return torch.tensor(values, dtype=dtype, device=device)


def quat_mul(a: Tensor, b: Tensor) -> Tensor:
    """Hamilton product of quaternions (..., 4); (..., 4)."""
    other = constant(_OTHER, torch.int64, a.device)
    return (a.unsqueeze(-2) * b[..., other] * constant_like(_SIGN, a)).sum(-1)


def quat_conj(q: Tensor) -> Tensor:
    """Conjugate, the inverse of a unit quaternion; (..., 4)."""
    return torch.cat([q[..., :1], -q[..., 1:]], -1)


def _quat_products(q: Tensor) -> Tensor:
    """Products q_i q_j (..., 10) of the elements of a quaternion (..., 4)."""
    left, right = (constant(pair, torch.int64, q.device) for pair in (_LEFT, _RIGHT))
    return q[..., left] * q[..., right]


def quat_to_mat(q: Tensor) -> Tensor:
    """Rotation matrix of a unit quaternion (..., 4); (..., 3, 3)."""
    return (_quat_products(q) @ constant_like(_MAT_T, q)).unflatten(-1, (3, 3))


def link_factors(pos: Tensor, quat: Tensor) -> Tensor:
    """What a parent's pose is multiplied with to give its child's; (W, n, 4, 4, 4).

    A pose is kept as four rows: the rows [R | p] of the homogeneous matrix, and the quaternion.
    Row r of the child's pose is row r of the parent's times factor r: for the first three the
    child's homogeneous matrix in the parent, for the last the matrix of its quaternion.

    Args:
        pos: (W, n, 3) of the child in the parent.
        quat: (W, n, 4) of the child in the parent, unit.
    """
    features = torch.cat([_quat_products(quat), quat, pos], -1)
    linear, offset = constant_like(_LINK_MAP, quat), constant_like(_LINK_OFFSET, quat)
    return torch.addmm(offset, features.flatten(0, 1), linear).reshape(*quat.shape[:2], 4, 4, 4)


def link_poses(factors: Tensor) -> Tensor:
    """Poses (W, n, 4, 4) of `link_factors` whose parent is the world's own frame."""
    row, column = (constant(x, torch.int64, factors.device) for x in ((0, 1, 2, 3), (0, 1, 2, 0)))
    return factors[:, :, row, column]


def moved_poses(poses: Tensor, factors: Tensor) -> Tensor:
    """Poses (W, n, 4, 4) of children from those of their parents and their `link_factors`."""
    return (poses.unsqueeze(-1) * factors).sum(-2)


def quat_normalize(q: Tensor) -> Tensor:
    """Unit quaternion; one shorter than MINVAL becomes the identity, as in MuJoCo."""
    return _unit_or(q, (1.0, 0.0, 0.0, 0.0))[0]


def _unit_or(v: Tensor, spare: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Unit vector along v (..., n), `spare` where v has no length, and v's length (..., 1).

    The derivatives are those of `spare` and zero at such a v: finite everywhere.
    """
    square = (v * v).sum(-1, keepdim=True)
    short = square < MINVAL * MINVAL
    v = torch.where(short, constant_like(spare, v), v)
    norm = torch.where(short, constant_like(1.0, v), square).sqrt()
    return v / norm, torch.where(short, constant_like(0.0, v), norm)


def quat_from_axis_angle(axis: Tensor, angle: Tensor) -> Tensor:
    """Quaternion that turns by angle (...) [rad] about the unit axis (..., 3); (..., 4)."""
    half = 0.5 * angle.unsqueeze(-1)
    return torch.cat([torch.cos(half), torch.sin(half) * axis], -1)


def quat_to_rotvec(q: Tensor) -> Tensor:
    """Axis times angle [rad] of a unit quaternion (..., 4), the angle within -pi .. pi; (..., 3).

    The derivative at the identity is finite (MuJoCo's mju_quat2Vel over unit time).
    """
    sine = safe_norm(q[..., 1:], keepdim=True)
    tiny, one = sine < MINVAL, constant_like(1.0, q)
    angle = 2.0 * torch.atan2(sine, q[..., :1])
    angle = torch.where(angle > torch.pi, angle - 2.0 * torch.pi, angle)
    ratio = torch.where(tiny, constant_like(2.0, q), angle / torch.where(tiny, one, sine))
    return q[..., 1:] * ratio


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
    eye = constant_like(EYE3, v).expand(*v.shape, 3)
    return torch.linalg.cross(v.unsqueeze(-2), eye, dim=-1).mT


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner product over the last dimension; (...)."""
    return (a * b).sum(-1)


def where_worlds(mask: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`a` in the worlds of mask [W], `b` in the others; laid out in memory like `a`."""
    return torch.where(mask.reshape(-1, *(1,) * (a.ndim - 1)), a, b)


def picked(index: Tensor, *parts: Tensor) -> Tensor:
    """Entries, by index, of parts (W, n) one after another and of a zero behind them; (W, ...)."""
    return torch.cat([*parts, parts[0].new_zeros(len(parts[0]), 1)], -1)[:, index]


def normalize(v: Tensor) -> tuple[Tensor, Tensor]:
    """Unit vector (..., 3) and length (..., 1); shorter than MINVAL becomes x, as in MuJoCo."""
    return _unit_or(v, (1.0, 0.0, 0.0))


def safe_norm(v: Tensor, keepdim: bool = False) -> Tensor:
    """Euclidean length over the last dimension, with derivative zero (not NaN) at zero."""
    square = (v * v).sum(-1, keepdim=keepdim)
    zero = square <= 0
    root = torch.where(zero, constant_like(1.0, v), square).sqrt()
    return torch.where(zero, constant_like(0.0, v), root)


def cross_motion(vel: Tensor, motion: Tensor) -> Tensor:
    """Spatial cross product of motion vectors (Featherstone 2008, eq. 2.31); (..., 6)."""
    (w, v), (p, q) = vel.split(3, -1), motion.split(3, -1)
    return torch.cat([cross(w, p), cross(w, q) + cross(v, p)], -1)


def cross_force(vel: Tensor, force: Tensor) -> Tensor:
    """Spatial cross product of a motion and a force (Featherstone 2008, eq. 2.32); (..., 6)."""
    (w, v), (p, q) = vel.split(3, -1), force.split(3, -1)
    return torch.cat([cross(w, p) + cross(v, q), cross(w, q)], -1)
