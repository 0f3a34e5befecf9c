"""Polygons and segments of a plane cut off at the sides of a convex polygon."""

from __future__ import annotations

import torch
from torch import Tensor

from alloy import math
from alloy.ops.control import in_use, while_loop
from alloy.ops.reference.collide_shared import choose, make_frame
from alloy.ops.reference.convex import rows

SLOTS = 4  # corners that are kept


def flat(points: Tensor, origin: Tensor, normal: Tensor) -> Tensor:
    """Coordinates (..., n, 2) of points in the plane through `origin`."""
    return (points - origin.unsqueeze(-2)) @ make_frame(normal)[..., 1:, :].mT


def _sides(polygon: Tensor) -> tuple[Tensor, Tensor]:
    """Normals (..., E, 2) into a clockwise polygon (..., E, 2), and offsets: n . p >= offset.

    By the order of its corners: some faces of meshes are not convex, and their middle is beyond one
    of their sides.
    """
    along = polygon.roll(-1, -2) - polygon
    inward = torch.stack([along[..., 1], -along[..., 0]], -1)
    length = torch.linalg.vector_norm(inward, dim=-1, keepdim=True)
    inward = choose(length > 1e-12, inward / length.clamp(min=1e-30), 0.0)
    return inward, (inward * polygon).sum(-1)


def clipped(begin: Tensor, end: Tensor, polygon: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where segments (..., n, 2) enter and leave a polygon, in [0, 1]; whether they cross it."""
    normal, offset = _sides(polygon)
    ahead = (end - begin) @ normal.mT  # (..., n, E)
    above = begin @ normal.mT - offset.unsqueeze(-2)
    runs = ahead.abs() > 1e-14
    at = -above / choose(runs, ahead, 1.0)
    beside = ~runs & (above < -1e-10)
    enter = choose(runs & (ahead > 0), at, 0.0).amax(-1).clamp(min=0)
    leave = choose(runs & (ahead < 0), at, 1.0).amin(-1).clamp(max=1)
    return enter, leave, (enter <= leave) & ~beside.any(-1)


def packed(values: Tensor, place: Tensor) -> Tensor:
    """Rows of values (..., n, 3) in their places (..., n) of as many; n: nowhere."""
    room = torch.zeros_like(torch.cat([values, values[..., :1, :]], -2))
    index = place.unsqueeze(-1).expand(*place.shape, 3)
    return room.scatter(-2, index, values)[..., :-1, :]


def _distinct(polygon: Tensor) -> tuple[Tensor, Tensor]:
    """A polygon (..., E, 3) without corners that repeat the one before, and how many it has."""
    most = polygon.shape[-2]
    fresh = (polygon - polygon.roll(1, -2)).abs().amax(-1) > 1e-12
    count = fresh.sum(-1, keepdim=True)
    place = torch.where(fresh, fresh.to(torch.int64).cumsum(-1) - 1, most)
    return packed(polygon, place)[..., : in_use(count, most), :], count


def cut_side(polygon: Tensor, count: Tensor, height: Tensor, begins: bool) -> tuple[Tensor, Tensor]:
    """What of a polygon (..., n, 3) of `count` (..., 1) corners is not below 0; corners and count.

    Every edge hands on what it has within: where it crosses the side and its end, in turn, or where
    `begins` is true its begin and where it crosses.
    """
    most = polygon.shape[-2]
    number = torch.arange(most, device=polygon.device)
    after = torch.where(number + 1 < count, number + 1, 0)
    end, end_height = rows(polygon, after), height.gather(-1, after)
    there = number < count
    within, end_within = height > -math.MINVAL, end_height > -math.MINVAL
    crosses = there & (within != end_within)
    t = height / choose(crosses, height - end_height, 1.0)
    crossing = polygon + t.clamp(0, 1).unsqueeze(-1) * (end - polygon)
    if begins:
        one, two, points = there & within, crosses, (polygon, crossing)
    else:
        one, two, points = crosses, there & end_within, (crossing, end)
    made = one.to(torch.int64) + two
    begin = made.cumsum(-1) - made
    places = (torch.where(one, begin, 2 * most), torch.where(two, begin + one, 2 * most))
    polygon = packed(torch.cat(points, -2), torch.cat(places, -1))[..., :most, :]
    return polygon, made.sum(-1, keepdim=True)


def cut(polygon: Tensor, by: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
    """A polygon (..., E, 3) cut off at the sides of another, along its normal; corners and count.

    Sutherland and Hodgman (1974, Reentrant polygon clipping): side after side.
    """
    polygon, count = _distinct(polygon.expand(*by.shape[:-2], *polygon.shape[-2:]))
    by, sides = _distinct(by)
    room = polygon.new_zeros(*by.shape[:-1], 3)
    polygon = torch.cat([polygon, room], -2)
    own = torch.arange(by.shape[-2], device=by.device)
    along = rows(by, torch.where(own + 1 < sides, own + 1, 0)) - by
    inward = math.cross(along, normal.unsqueeze(-2).expand_as(by))
    length = torch.linalg.vector_norm(inward, dim=-1, keepdim=True)
    is_side = (length.squeeze(-1) > 1e-12) & (own < sides)
    inward = inward / length.clamp(min=1e-30)
    for side in range(by.shape[-2]):
        out, plane = by[..., side : side + 1, :], inward[..., side, :].unsqueeze(-1)
        height = ((polygon - out) @ plane).squeeze(-1)
        rest, left = cut_side(polygon, count, height, begins=False)
        live = is_side[..., side : side + 1]
        polygon = torch.where(live.unsqueeze(-1), rest, polygon)
        count = torch.where(live, left, count)
    return polygon, count


def four(polygon: Tensor, count: Tensor) -> Tensor:
    """Which four corners (..., 4) of a polygon (..., n, 3) span a large area, or all.

    MuJoCo's search: the fourth corner moves on while the area grows, and after each move the third
    and the second; then the first moves on.
    """
    start = torch.arange(SLOTS, device=polygon.device).expand(*count.shape[:-1], SLOTS)
    return _spread(polygon, count, start, count)


def four_from(polygon: Tensor, count: Tensor, first: Tensor) -> Tensor:
    """The same with a first corner (..., 1) that stays; no more than there are."""
    start = first + torch.arange(SLOTS, device=polygon.device)
    return _spread(polygon, count, start % count, first + 1)


def _spread(polygon: Tensor, count: Tensor, start: Tensor, stop: Tensor) -> Tensor:
    """The search from four corners on, until the first one comes to `stop`."""
    crowd, polygon = count > SLOTS, polygon.detach()
    start = torch.minimum(start, count - 1).clamp(min=0)
    area = _area(polygon, start)
    phase = torch.zeros_like(count)

    def body(
        on: Tensor, corners: Tensor, best: Tensor, area: Tensor, phase: Tensor
    ) -> tuple[Tensor, ...]:
        turn = torch.arange(SLOTS, device=corners.device) == 3 - phase
        tried = torch.where(turn, (corners + 1) % count.clamp(min=1), corners)
        larger = _area(polygon, tried)
        grows = on & (larger > area)
        moved = torch.where(grows, tried, corners)
        best = torch.where(grows, tried, best)
        area = torch.where(grows, larger, area)
        # the fourth stays: the first moves on, and pushes the others out of its way
        ends = on & ~grows & (phase == 0)
        pushed = _pushed(moved, count)
        on = on & ~(ends & (pushed[..., :1] >= stop))
        corners = torch.where(ends & on, pushed, moved)
        phase = torch.where(grows, phase.clamp(min=1), torch.where(ends, 0, (phase + 1) % 3))
        return on, corners, best, area, phase

    return while_loop(body, (crowd, start, start, area, phase), 8 * polygon.shape[-2])[2]


def _area(polygon: Tensor, corners: Tensor) -> Tensor:
    """Twice the area (..., 1) of the quadrilateral of four corners (..., 4)."""
    a, b, c, d = rows(polygon, corners).unbind(-2)
    return torch.linalg.vector_norm(math.cross(a - c, b - d), dim=-1, keepdim=True)


def _pushed(corners: Tensor, count: Tensor) -> Tensor:
    """The first of four corners (..., 4) moved on; MuJoCo looks whether the second one is there."""
    a, b, c, d = corners.unbind(-1)
    n = count.squeeze(-1).clamp(min=1)
    push_b = b == a
    b = torch.where(push_b, (b + 1) % n, b)
    push_c = push_b & (c == b)
    c = torch.where(push_c, (c + 1) % n, c)
    d = torch.where(push_c & (d == c), (d + 1) % n, d)
    return torch.stack([a + 1, b, c, d], -1)
