"""What the colliders share: the empty slot, tolerances by precision, contact frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from alloy import math
from alloy.ops.control import repeat

PLANE, HFIELD, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX, MESH = range(8)  # mjtGeom
FAR = 1e10  # dist of an empty slot: finite, beyond every margin
# an edge and a face count as parallel below this sine: about 5.1 degrees
EDGE_ALIGNED = 0.0888  # MuJoCo's mjEDGE_TOL
STEPS = 16  # of a search in one dimension

Contacts = tuple[Tensor, Tensor, Tensor]  # dist (W, P, K), pos (W, P, K, 3), frame (W, P, K, 3, 3)


class Collider(NamedTuple):
    """A narrowphase function and the number of contact slots it fills for a pair."""

    fn: Callable[..., Contacts]
    slots: int


class Tolerance(NamedTuple):
    """Where a direction or a decision drowns in rounding; in float64 MuJoCo's own limits."""

    aligned: float  # sine of the angle below which a tangent is not taken from an axis
    parallel: float  # sine squared of the angle below which capsules count as parallel
    box_edge: float  # the same between a capsule and an edge of a box, beyond MINVAL
    cross: float  # the same between two edges of boxes
    separation: float  # slack of the box separation tests, times the summed half sizes
    noise: float  # separations of boxes are equal up to this, times the summed half sizes
    duplicate: float  # squared distance of equal points, relative to the face
    slope: float  # rise per length below which a side runs along a clip line
    clip: float  # slack of the clip tests, relative to the face


_TOLERANCE = {
    torch.float64: Tolerance(1e-12, 1e-8, 0.0, 1e-16, 1e-13, 1e-15, 1e-14, 1e-12, 1e-12),
    torch.float32: Tolerance(1e-4, 1e-6, 1e-6, 1e-7, 1e-6, 1e-7, 1e-8, 1e-5, 1e-5),
}


def tolerance(like: Tensor) -> Tolerance:
    """The limits of a tensor's precision; those of float32 for anything below float64."""
    return _TOLERANCE.get(like.dtype, _TOLERANCE[torch.float32])


table = math.constant_like  # a constant as a tensor of another's dtype and device, made once

# vectors (..., 3) of a frame `mat` (..., 3, 3) in the world, and world vectors in that frame
to_world, to_local = math.rotate, math.rotate_inv


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner product over the last dimension, kept; (..., 1)."""
    return (a * b).sum(-1, keepdim=True)


def choose(mask: Tensor, yes: Tensor | float, no: Tensor | float) -> Tensor:
    """As torch.where, numbers taken in the dtype of the other choice and made tensors only once."""
    if isinstance(yes, Tensor):
        return torch.where(mask, yes, no if isinstance(no, Tensor) else table(no, yes))
    if isinstance(no, Tensor):
        return torch.where(mask, table(yes, no), no)
    return torch.where(mask, *(math.constant(x, torch.float32, mask.device) for x in (yes, no)))


def sign(mask: Tensor, like: Tensor) -> Tensor:
    """1 where the mask is true and -1 elsewhere."""
    return torch.where(mask, table(1.0, like), table(-1.0, like))


def clip(x: Tensor, limit: Tensor | float) -> Tensor:
    """The values x limited to [-limit, limit]."""
    if isinstance(limit, Tensor):
        return torch.maximum(torch.minimum(x, limit), -limit)
    return x.clamp(-limit, limit)


def first(mask: Tensor) -> Tensor:
    """The first true element along the last dimension as a mask with at most one true; (..., n)."""
    n = mask.shape[-1]
    rank = math.constant(tuple(float(n - k) for k in range(n)), torch.float32, mask.device)
    score = torch.where(mask, rank, math.constant(0.0, torch.float32, mask.device))
    return (score == score.amax(-1, keepdim=True)) & mask


def unit_or(vec: Tensor, spare: Tensor) -> tuple[Tensor, Tensor]:
    """Unit vector (..., 3) along vec, or spare if vec has no length, or else x; length of vec."""
    length = torch.linalg.vector_norm(vec, dim=-1, keepdim=True)
    vec = torch.where(length > math.MINVAL, vec, spare)
    norm = torch.linalg.vector_norm(vec, dim=-1, keepdim=True)
    long = norm > math.MINVAL
    unit = torch.where(long, vec, table((1.0, 0.0, 0.0), vec)) / choose(long, norm, 1.0)
    return unit, length


def make_frame(normal: Tensor) -> Tensor:
    """Rows normal, tangent, tangent of unit normals (..., 3); (..., 3, 3). MuJoCo's choice."""
    near_y = normal[..., 1:2].abs() < 0.5
    hint = torch.where(near_y, table((0.0, 1.0, 0.0), normal), table((0.0, 0.0, 1.0), normal))
    tangent = hint - normal * dot(normal, hint)
    tangent = tangent / torch.linalg.vector_norm(tangent, dim=-1, keepdim=True)
    return torch.stack([normal, tangent, math.cross(normal, tangent)], -2)


def make_frame_along(normal: Tensor, axis: Tensor, spare: Tensor) -> Tensor:
    """As make_frame, its tangent along `axis`, or along the tangent `spare` if axis is normal."""
    tangent = axis - normal * dot(normal, axis)
    length = torch.linalg.vector_norm(tangent, dim=-1, keepdim=True)
    along = length > tolerance(normal).aligned
    tangent = torch.where(along, tangent, spare) / choose(along, length, 1.0)
    return torch.stack([normal, tangent, math.cross(normal, tangent)], -2)


def root(
    value_and_slope: Callable[[Tensor], tuple[Tensor, Tensor]], low: Tensor, high: Tensor,
    start: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Where a function that grows from low to high is zero: Newton's method within the bracket.

    It starts at `start`, or in the middle.
    """

    def step(
        _: Tensor | int, low: Tensor, high: Tensor, at: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        value, slope = value_and_slope(at)
        before = value < 0
        low, high = torch.where(before, at, low), torch.where(before, high, at)
        steep = slope > math.MINVAL
        newton = at - value / choose(steep, slope, 1.0)
        inside = steep & (newton >= low) & (newton <= high)
        return low, high, torch.where(inside, newton, 0.5 * (low + high))

    at = 0.5 * (low + high) if start is None else start
    return repeat(STEPS, step, (low, high, at))[2]


def repeat_slots(frame: Tensor, slots: int) -> Tensor:
    """One frame (W, P, 3, 3) for all slots of its pair; (W, P, K, 3, 3)."""
    return frame.unsqueeze(-3).expand(*frame.shape[:-2], slots, 3, 3)


def on_plane(pos1: Tensor, mat1: Tensor, pos2: Tensor, mat2: Tensor, points: Tensor) -> Contacts:
    """Contacts of a plane with points (W, P, K, 3) of geom 2, given in the frame of geom 2."""
    normal = mat1[..., 2].unsqueeze(-2)
    center = pos2.unsqueeze(-2) + points @ mat2.mT
    dist = dot(center - pos1.unsqueeze(-2), normal)
    pos = center - 0.5 * dist * normal
    return dist.squeeze(-1), pos, repeat_slots(make_frame(mat1[..., 2]), points.shape[-2])
