"""Colliders that search for the direction of least overlap, against MuJoCo's contacts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from alloy.ops.reference import convex_depth, convex_gjk
from alloy.ops.reference.collide import COLLIDERS, CONVEX_KINDS
from alloy.ops.reference.convex import Convex, difference
from alloy.ops.reference.convex_gjk import separate
from tests.ops.oracle import (
    BOX,
    CYLINDER,
    ELLIPSOID,
    MESH,
    UP,
    Config,
    collide,
    kind_id,
    random_quat,
    times,
    turn,
    unequal,
)
from tests.ops.test_collide import gradient_errors, random_configs, spread_out

KINDS = [kind for kind in CONVEX_KINDS if MESH not in kind]
SMOOTH = [kind for kind in KINDS if ELLIPSOID in kind]
# MuJoCo's search ends within 1e-12 m of the contact's distance, 1e-6 of its direction
SEARCHED = 1e-5


def overlap_along(kind, config, normal):
    """How far the second geom must move along a direction to leave the first."""
    sets = []
    for k, (pos, quat) in enumerate((config.pose1, config.pose2)):
        pos, mat, size = (
            torch.tensor(np.array(x), dtype=torch.float64)
            for x in (pos, quat_mat(quat), config.sizes[k])
        )
        sets.append(Convex(kind[k], pos, mat, size))
    normal = torch.as_tensor(np.array(normal))
    return float(difference(sets[0], sets[1], normal)[0] @ normal)


@pytest.mark.parametrize("kind", SMOOTH, ids=kind_id)
def test_ellipsoids_in_random_poses(kind):
    configs = random_configs(np.random.default_rng(1), 300)
    ours, theirs = collide(kind, configs, worlds=6)
    assert not unequal(ours, theirs, SEARCHED)
    assert {len(c[0]) for c in theirs} == {0, 1}


@pytest.mark.parametrize("kind", [(CYLINDER, CYLINDER), (CYLINDER, BOX)], ids=kind_id)
@pytest.mark.parametrize("level", [False, True])
def test_cylinders_lying_standing_and_in_random_poses(kind, level):
    configs = tilted(np.random.default_rng(3), 400) if level else random_configs(
        np.random.default_rng(1), 300)  # fmt: skip
    ours, theirs = collide(kind, configs, worlds=5)
    wrong = unequal(ours, theirs, SEARCHED)
    assert len(wrong) <= 0.03 * len(configs)
    assert {1, 2, *([4] if level else [])} <= {len(c[0]) for c in theirs}
    for k in wrong:
        (_, _, frame), (_, _, frame0) = ours[k], theirs[k]
        if len(ours[k][0]) == len(theirs[k][0]) == 4:
            # of a regular polygon several quadrilaterals are equally large
            assert np.allclose(frame[0, 0], frame0[0, 0], atol=SEARCHED)
            assert abs(area(ours[k][1]) - area(theirs[k][1])) < 0.05 * area(ours[k][1])
        else:
            # from a corner on a cap MuJoCo sometimes goes on to a face that does not touch
            assert overlap_along(kind, configs[k], frame[0, 0]) < overlap_along(
                kind, configs[k], frame0[0, 0]
            )


def tilted(rng, n):
    """Cylinders that stand, lie and lean, up to 7 degrees off."""
    turns = [UP, turn([1, 0, 0], np.pi / 2), turn([1, 0, 0], np.pi / 4), turn([1, 1, 0], 0.6)]
    configs = []
    for k in range(n):
        quat = times(turn(rng.normal(size=3), rng.uniform(0, 0.12)), turns[k % 4])
        configs.append(
            Config([0, 0, 0], quat, rng.uniform(0.03, 0.1, 3), rng.uniform(-0.1, 0.1, 3),
                   turn([0, 0, 1], rng.uniform(0, 3)), rng.uniform(0.03, 0.1, 3), 0.0)
        )  # fmt: skip
    return configs


def area(points):
    """Of the largest quadrilateral of four points."""
    pairs = (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))
    cross = (np.cross(points[a] - points[b], points[c] - points[d]) for (a, b), (c, d) in pairs)
    return max(np.linalg.norm(x) for x in cross)


def test_a_cylinder_stands_on_four_points_and_lies_on_two():
    size = [0.1, 0.2, 0]
    box = [0.5, 0.5, 0.1]
    for quat, height, count in ((UP, 0.299, 4), (turn([1, 0, 0], np.pi / 2), 0.199, 2)):
        configs = [Config([0, 0, height], quat, size, [0, 0, 0], UP, box)]
        ours, theirs = collide((CYLINDER, BOX), configs)
        assert len(ours[0][0]) == len(theirs[0][0]) == count
        assert np.allclose(ours[0][0], -0.001) and np.allclose(theirs[0][0], -0.001)


@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
def test_float32_is_close(kind):
    configs = random_configs(np.random.default_rng(10), 200)
    ours, _ = collide(kind, configs, dtype=torch.float32)
    exact, _ = collide(kind, configs)
    # rounding decides what is level and which of two equal areas is larger, rarely
    assert len(unequal(ours, exact, tol=2e-4)) <= 6
    for (dist, *_), (dist0, *_), config in zip(ours, exact, configs, strict=True):
        assert abs(min(dist, default=config.margin) - min(dist0, default=config.margin)) < 2e-3


@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
def test_distances_have_gradients(kind):
    # slots may change places; in one pose another one becomes the deepest
    errors = gradient_errors(kind, 0.1, lambda dist: dist.amin(-1))
    assert (errors > 1e-4).sum() <= 6  # positions along three axes, of two geoms


def test_traces_without_a_look_at_values():
    kind = (CYLINDER, BOX)
    args = [x.clone() for x in spread_out(kind, (0.0, 0.01, 0.15))]
    expected = COLLIDERS[kind].fn(*args)
    graph = make_fx(lambda *a: COLLIDERS[kind].fn(*a))(*args)
    for a, b in zip(graph(*args), expected, strict=True):
        assert torch.equal(a, b)


def sets_apart(n=400):
    """Ellipsoids and boxes in random poses about the origin, in pairs."""
    rng = np.random.default_rng(5)

    def tensor(x):
        return torch.tensor(np.array(x))

    mats = tensor([quat_mat(random_quat(rng)) for _ in range(2 * n)]).unflatten(0, (2, n))
    size = tensor(rng.uniform(0.05, 0.2, (2, n, 3)))
    pos = tensor(rng.normal(size=(n, 3)) * 0.2)
    one = Convex(ELLIPSOID, torch.zeros(n, 3, dtype=torch.float64), mats[0], size[0])
    return one, Convex(BOX, pos, mats[1], size[1])


def quat_mat(quat):
    w, x, y, z = quat
    return [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]


def test_no_direction_separates_or_overlaps_more_than_the_one_found():
    one, two = sets_apart()
    on, far = torch.ones(400, dtype=torch.bool), torch.full((400, 1), 10.0, dtype=torch.float64)
    shifted = two._replace(pos=two.pos + 0.4 * torch.tensor(convex_gjk.SHIFT, dtype=torch.float64))
    start = separate(one, shifted, on, far)
    assert start.inside.any() and not start.inside.all()
    depth = convex_depth.overlap(
        one, shifted, start.inside, start, torch.full((400,), 0.4).double()
    )
    normal = torch.where(start.inside.unsqueeze(-1), depth.normal, start.normal)
    found = (difference(one, two, normal)[0] * normal).sum(-1)
    assert torch.allclose(found[~start.inside], -start.gap[~start.inside, 0], atol=1e-6)
    rng = np.random.default_rng(6)
    for _ in range(2000):
        way = torch.tensor(rng.normal(size=(400, 3)))
        way = way / way.norm(dim=-1, keepdim=True)
        other = (difference(one, two, way)[0] * way).sum(-1)
        assert (other >= found - torch.where(start.inside, 1e-9, 1e-6)).all()
