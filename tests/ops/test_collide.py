"""The colliders against MuJoCo's contacts, compared as sets, and their own promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from alloy import lanes, math
from alloy.ops.reference.collide import COLLIDERS, CONVEX_KINDS, FAR
from tests.count_calls import CountCalls
from tests.ops.oracle import (
    BOX,
    CAPSULE,
    CYLINDER,
    ELLIPSOID,
    MARGIN,
    NAMES,
    PLANE,
    SPHERE,
    UP,
    Config,
    Oracle,
    arguments,
    check_promises,
    collide,
    kind_id,
    random_quat,
    times,
    turn,
    unequal,
)


def has_tables(kind):
    """Whether a collider takes hulls or a height field."""
    return bool({1, 7} & set(kind))


BARE = [kind for kind in COLLIDERS if not has_tables(kind)]
KINDS = [kind for kind in BARE if kind not in CONVEX_KINDS]  # those are in test_convex.py


# MuJoCo searches for these and is told to go on to 1e-12, which leaves 3e-4 of direction. The line
# on a cap that is deep inside it takes from a point that its search came by, up to 1e-3 off.
SEARCHED = dict.fromkeys(
    ((SPHERE, ELLIPSOID), (CAPSULE, ELLIPSOID), (ELLIPSOID, BOX), (CAPSULE, CYLINDER)), 1e-3
)


def random_size(rng):
    return rng.uniform(0.02, 0.15, 3)


def random_configs(rng, n):
    """Separated, within the margin, touching and deep."""
    configs = []
    for _ in range(n):
        pos = rng.uniform(-1, 1, 3)
        pos2 = pos + 0.14 * rng.uniform() * rng.normal(size=3)
        margin = 0.03 * rng.integers(0, 2)
        size1, size2 = random_size(rng), random_size(rng)
        configs.append(Config(pos, random_quat(rng), size1, pos2, random_quat(rng), size2, margin))
    return configs


def assert_equal(kind, configs, **kw):
    ours, theirs = collide(kind, configs, **kw)
    wrong = unequal(ours, theirs, SEARCHED.get(kind, 1e-9))
    detail = [(k, ours[k][:2], theirs[k][:2]) for k in wrong[:1]]
    assert not wrong, f"{len(wrong)} of {len(configs)} differ, the first: {detail}"
    return theirs


def test_every_kind_has_its_slots():
    slots = {kind_id(k): COLLIDERS[k].slots for k in KINDS}
    assert slots == {
        "plane-sphere": 1, "plane-capsule": 2, "plane-ellipsoid": 1, "plane-cylinder": 4,
        "plane-box": 4, "sphere-sphere": 1, "sphere-capsule": 1, "sphere-ellipsoid": 1,
        "sphere-cylinder": 1, "sphere-box": 1, "capsule-capsule": 2, "capsule-ellipsoid": 1,
        "capsule-cylinder": 2, "capsule-box": 2, "ellipsoid-box": 1, "box-box": 8,
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
def test_random_poses(kind):
    configs = random_configs(np.random.default_rng(1), 1200 if kind == (BOX, BOX) else 300)
    theirs = assert_equal(kind, configs, worlds=6)  # sizes and margins differ by world
    counts = {len(c[0]) for c in theirs}
    assert {0, 1} <= counts


@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
def test_shared_sizes_and_margins_broadcast(kind):
    configs = random_configs(np.random.default_rng(2), 6)
    oracle = Oracle(kind)
    args = list(arguments([oracle.run(c) for c in configs], configs, 3, torch.float64))
    shared = [x[:1] if k in (2, 5, 6) else x for k, x in enumerate(args)]
    spread = [x[:1].expand_as(x) if k in (2, 5, 6) else x for k, x in enumerate(args)]
    for a, b in zip(COLLIDERS[kind].fn(*shared), COLLIDERS[kind].fn(*spread), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", [k for k in KINDS if k[0] == PLANE], ids=kind_id)
def test_standing_and_lying_on_a_level_plane(kind):
    rng = np.random.default_rng(3)
    poses = [UP, turn([1, 0, 0], np.pi / 2), turn([0, 1, 0], np.pi / 2), turn([0, 0, 1], 0.3),
             turn([1, 0, 0], np.pi), turn([1, 0, 0], np.pi / 4)]  # fmt: skip
    configs = [
        Config([0, 0, 0], UP, [0, 0, 0], [*rng.uniform(-1, 1, 2), height], quat, random_size(rng))
        for quat in poses
        for height in (0.05, 0.1, 0.12, 0.15)
    ]
    assert_equal(kind, configs)


def test_standing_capsule_on_a_tilted_plane_has_a_frame():
    # MuJoCo gives the tangent (1, 0, 0) here, which is not normal to the plane's normal
    rng = np.random.default_rng(4)
    standing = Config([0, 0, 0], UP, [0, 0, 0], [0, 0, 0.14], UP, [0.05, 0.1, 0])
    ours, theirs = collide((PLANE, CAPSULE), [standing.placed(rng) for _ in range(20)])
    assert not unequal(
        [(d, p, f[:, :1]) for d, p, f in ours], [(d, p, f[:, :1]) for d, p, f in theirs]
    )


@pytest.mark.parametrize("other", [SPHERE, CAPSULE, CYLINDER, BOX], ids=NAMES.get)
def test_sphere_centre_on_or_in_the_other(other):
    rng = np.random.default_rng(5)
    configs = []
    for _ in range(10):
        r, h = size2 = rng.uniform(0.05, 0.15, 2)
        size2 = np.array([r, h, rng.uniform(0.05, 0.15)])
        places = [(0, 0, 0), (0, 0, 0.01), (0, 0.01, 0), (0.02, 0.02, 0), (r, 0, 0), (r, 0, h),
                  (0, 0, h), (0, 0, h - 1e-3), (0, 1e-3 - r, 0), tuple(size2)]  # fmt: skip
        configs += [
            Config(place, quat, [0.07, 0, 0], [0, 0, 0], UP, size2)
            for place in places
            for quat in (UP, random_quat(rng))
        ]
    assert_equal((SPHERE, other), configs)


def capsule_pairs(rng, n):
    """Parallel beside and behind each other, opposite, crossing, and nearly parallel."""
    configs = []
    for k in range(n):
        sizes = [[rng.uniform(0.02, 0.06), rng.uniform(0.05, 0.3), 0] for _ in (0, 1)]
        pos, angle = [rng.uniform(0.02, 0.12), 0, rng.uniform(-0.5, 0.5)], 0.0
        if k % 5 == 0:
            pos = [0, 0, pos[2]]
        elif k % 5 == 1:
            pos, angle = [0, 0, 0], np.pi / 2
        elif k % 5 == 2:
            angle = np.pi
        elif k % 5 == 3:
            angle = rng.choice([2e-2, 1e-3, 2e-4, 9e-5, 1e-6])
        configs.append(Config([0, 0, 0], UP, sizes[0], pos, turn([1, 0, 0], angle), sizes[1]))
    return configs


def test_parallel_and_crossing_capsules():
    rng = np.random.default_rng(6)
    configs = capsule_pairs(rng, 300)
    theirs = assert_equal((CAPSULE, CAPSULE), configs)
    assert {len(c[0]) for c in theirs} == {0, 1, 2}
    assert_equal((CAPSULE, CAPSULE), [c.placed(rng) for c in configs])


def capsules_on_boxes(rng, n):
    """Lying on a face, along an axis, standing, across an edge, inside; some tilted a little."""
    configs = []
    for k in range(n):
        radius, half = rng.uniform(0.02, 0.06), rng.uniform(0.05, 0.3)
        box = rng.uniform(0.05, 0.15, 3)
        height = box[2] + radius - rng.choice([0, 1e-3, 0.01, -0.02])
        on_top = [*rng.uniform(-1.2, 1.2, 2) * box[:2], height]
        flat = turn([0, 1, 0], np.pi / 2)
        if k % 5 == 0:
            pos, quat = on_top, times(turn([0, 0, 1], rng.uniform(0, 7)), flat)
        elif k % 5 == 1:
            pos, quat = on_top, flat if rng.random() < 0.5 else turn([1, 0, 0], np.pi / 2)
        elif k % 5 == 2:
            pos, quat = [on_top[0], on_top[1], on_top[2] + half], UP
        elif k % 5 == 3:
            pos = [0.01, box[1], box[2] + radius * rng.uniform(0.6, 1.2)]
            quat = turn([1, 0, 0], rng.choice([0.25, 0.5, 0.75]) * np.pi)
        else:
            pos, quat = rng.uniform(-0.5, 0.5, 3) * box, random_quat(rng)
        if k % 3 == 0:
            quat = times(turn(rng.normal(size=3), rng.choice([1e-2, 1e-4, 1e-6])), quat)
        configs.append(Config(pos, quat, [radius, half, 0], [0, 0, 0], UP, box))
    return configs


def test_capsules_on_and_in_boxes():
    rng = np.random.default_rng(7)
    configs = capsules_on_boxes(rng, 500)
    theirs = assert_equal((CAPSULE, BOX), configs)
    assert {len(c[0]) for c in theirs} == {0, 1, 2}
    assert_equal((CAPSULE, BOX), [c.placed(rng) for c in configs])


def capsules_at_cylinders(rng, n):
    """Lying on a cap, beside it, across the rim, along and across the side, standing, inside."""
    configs = []
    for k in range(n):
        radius, half, r2, h2 = rng.uniform(0.03, 0.15, 4)
        depth = rng.choice([0, 1e-3, 0.01, -5e-3, radius + 5e-3])
        lying = times(turn([0, 0, 1], rng.uniform(0, 7)), turn([0, 1, 0], np.pi / 2))
        tilt = turn(rng.normal(size=3), rng.choice([1e-3, 1e-2, 0.08, 0.1]))
        if k % 4 == 0:
            pos = [*rng.uniform(-1.1, 1.1, 2) * r2, h2 + radius - depth]
            quat = times(tilt, lying)
        elif k % 4 == 1:
            pos = [r2 + radius - depth, 0.01, rng.uniform(-1, 1) * h2]
            quat = times(tilt, turn([1, 0, 0], rng.choice([0.3, np.pi / 2])))
        elif k % 4 == 2:
            pos = [*rng.uniform(-1, 1, 2) * r2, h2 + half + radius - depth]
            quat = turn(rng.normal(size=3), rng.choice([0.1, 0.5, 1.0]))
        else:
            pos, quat = rng.uniform(-0.5, 0.5, 3) * [r2, r2, h2], random_quat(rng)
        configs.append(Config(pos, quat, [radius, half, 0], [0, 0, 0], UP, [r2, h2, 0]))
    return configs


def test_capsules_on_and_in_cylinders():
    rng = np.random.default_rng(14)
    configs = capsules_at_cylinders(rng, 400)
    theirs = assert_equal((CAPSULE, CYLINDER), configs)
    assert {len(c[0]) for c in theirs} == {0, 1, 2}
    assert_equal((CAPSULE, CYLINDER), [c.placed(rng) for c in configs])


@pytest.mark.parametrize("across", [0.0, 0.02])
def test_capsule_beside_a_cylinder_touches_in_the_middle_of_their_overlap(across):
    args = list(spread_out((CAPSULE, CYLINDER), (0.19, across, 0.1)))
    dist, pos, frame = COLLIDERS[CAPSULE, CYLINDER].fn(*args)
    depth = 0.2 - np.hypot(0.19, across)
    assert dist[0, 0, 0].item() == pytest.approx(-depth) and dist[0, 0, 1] == FAR
    assert pos[0, 0, 0, 2].item() == pytest.approx(0.05, abs=1e-6)
    assert frame[0, 0, 0, 0, 2].item() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("one", [SPHERE, CAPSULE], ids=NAMES.get)
def test_deep_in_flat_and_long_ellipsoids(one):
    # where the nearest place of the surface lies across the flat, or beside a segment inside
    rng = np.random.default_rng(15)
    configs = []
    for _ in range(300):
        size2 = rng.permutation([0.02, 0.1, 0.15]) * rng.uniform(0.8, 1.2, 3)
        pos = rng.uniform(-0.7, 0.7, 3) * size2
        size1 = [rng.uniform(0.02, 0.1), rng.uniform(0.01, 0.2), 0]
        configs.append(Config(pos, random_quat(rng), size1, [0, 0, 0], UP, size2))
    theirs = assert_equal((one, ELLIPSOID), [c.placed(rng) for c in configs])
    assert {len(c[0]) for c in theirs} == {1}


def stacked_boxes(rng, n, quat):
    """One box on another of another size, faces together: touching, in the margin, a bit inside."""
    configs = []
    for _ in range(n):
        size1, size2 = random_size(rng), random_size(rng)
        gap = rng.choice([0, -1e-5, -1e-3, 0.005])
        pos = [*rng.uniform(-1, 1, 2) * size1[:2], size1[2] + size2[2] + gap]
        configs.append(Config([0, 0, 0], UP, size1, pos, quat(rng), size2))
    return configs


TURNS = {
    "aligned": lambda rng: UP,
    "turned in plane": lambda rng: turn([0, 0, 1], rng.uniform(0, 2 * np.pi)),
    "quarter turns": lambda rng: turn([0, 0, 1], rng.integers(0, 4) * np.pi / 2),
    "upside down": lambda rng: turn([1, 0, 0], np.pi),
    "edge on": lambda rng: turn([1, rng.integers(0, 2), 0], 0.8),  # at pi/4 rounding picks the face
    "corner on": lambda rng: times(turn([0, 0, 1], rng.uniform(0, 6)), turn([1, 1, 0], 0.9553)),
    "nearly flat": lambda rng: turn(rng.normal(size=3), rng.choice([1e-2, 1e-4, 1e-6])),
}


@pytest.mark.parametrize("quat", TURNS.values(), ids=list(TURNS))
def test_boxes_on_boxes(quat):
    rng = np.random.default_rng(8)
    configs = stacked_boxes(rng, 150, quat)
    assert_equal((BOX, BOX), configs, worlds=3)
    assert_equal((BOX, BOX), [c.placed(rng) for c in configs])


def test_equal_boxes_stacked():
    # aligned as MuJoCo; elsewhere rounding gives MuJoCo more points, on the sides of the same face
    rng = np.random.default_rng(9)
    sizes = [random_size(rng) for _ in range(100)]
    configs = [Config([0, 0, 0], UP, s, [0, 0, 2 * s[2] - 1e-3], UP, s) for s in sizes]
    theirs = assert_equal((BOX, BOX), configs)
    assert {len(c[0]) for c in theirs} == {4}
    ours, theirs = collide((BOX, BOX), [c.placed(rng) for c in configs])
    for (dist, pos, frame), (dist0, pos0, frame0) in zip(ours, theirs, strict=True):
        assert len(dist) == 4
        assert np.allclose(dist, -1e-3, atol=1e-9) and np.allclose(dist0, -1e-3, atol=1e-9)
        assert np.allclose(frame, frame0[:1], atol=1e-9)
        gaps = np.linalg.norm(pos[:, None] - pos0[None], axis=-1)
        assert gaps.min(1).max() < 1e-9  # ours are the corners among theirs


@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
def test_float32_is_close(kind):
    rng = np.random.default_rng(10)
    configs = random_configs(rng, 300)
    ours, theirs = collide(kind, configs, dtype=torch.float32)
    # a searched line on a cap is MuJoCo's to 1e-3, as in float64
    # rounding decides which axis of two nearly equal ones wins, rarely; depth then still agrees
    assert len(unequal(ours, theirs, tol=2e-4)) <= 3
    for (dist, *_), (dist0, *_), config in zip(ours, theirs, configs, strict=True):
        deepest, deepest0 = min(dist, default=config.margin), min(dist0, default=config.margin)
        assert abs(deepest - deepest0) < (1e-3 if kind == (CAPSULE, CYLINDER) else 1e-5)


def test_float32_degenerate_is_close():
    rng = np.random.default_rng(11)
    cases = {
        (CAPSULE, CAPSULE): capsule_pairs(rng, 200),
        (CAPSULE, BOX): capsules_on_boxes(rng, 200),
        (BOX, BOX): [c for quat in TURNS.values() for c in stacked_boxes(rng, 50, quat)],
    }
    for kind, configs in cases.items():
        ours, theirs = collide(kind, [c.placed(rng) for c in configs], dtype=torch.float32)
        for (dist, *_), (dist0, *_) in zip(ours, theirs, strict=True):
            assert abs(min(dist, default=MARGIN) - min(dist0, default=MARGIN)) < 1e-4


def spread_out(kind, place, dtype=torch.float64):
    """Arguments at one configuration, sizes ordinary."""
    sizes = torch.tensor([[[0.1, 0.12, 0.08]]], dtype=dtype)
    eye = torch.eye(3, dtype=dtype).reshape(1, 1, 3, 3)
    origin = torch.zeros(1, 1, 3, dtype=dtype)
    pos = torch.tensor(place, dtype=dtype).reshape(1, 1, 3)
    return origin, eye, sizes, pos, eye, sizes, torch.zeros(1, 1, dtype=dtype)


@pytest.mark.parametrize("kind", BARE, ids=kind_id)
@pytest.mark.parametrize("place", [(0, 0, 0), (0, 0, 0.1), (0.2, 0.24, 0.16), (1e6, 0, -1e6)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_where_shapes_coincide_or_are_far(kind, place, dtype):
    args = [x.requires_grad_() for x in spread_out(kind, place, dtype)]
    out = COLLIDERS[kind].fn(*args)
    check_promises(kind, args, [x.detach() for x in out])
    total = torch.stack([torch.where(x.detach().abs() < FAR, x, 0.0).sum() for x in out]).sum()
    grads = torch.autograd.grad(total, args, allow_unused=True)
    assert all(g is None or torch.isfinite(g).all() for g in grads)


def gradient_errors(kind, margin, of_pair):
    """Gradients of distances (geoms, axes, P pairs) less finite differences, in random poses."""
    configs = random_configs(np.random.default_rng(12), 24)
    oracle = Oracle(kind)
    args = arguments([oracle.run(c) for c in configs], configs, 1, torch.float64)
    margin = torch.full_like(args[6], margin)

    def dist(pos1, pos2):
        d = COLLIDERS[kind].fn(pos1, args[1], args[2], pos2, args[4], args[5], margin)[0]
        return of_pair(torch.where(d < FAR, d, 0.0))[0]

    pos = [args[0].clone().requires_grad_(), args[3].clone().requires_grad_()]
    grads = torch.autograd.grad(dist(*pos).sum(), pos)
    errors = torch.zeros(2, 3, len(configs), dtype=torch.float64)
    for k, grad in enumerate(grads):
        for axis in range(3):
            step = torch.zeros(3, dtype=torch.float64)
            step[axis] = 1e-6
            up, down = list(args[:4:3]), list(args[:4:3])
            up[k], down[k] = up[k] + step, down[k] - step
            slope = (dist(*up) - dist(*down)) / 2e-6
            errors[k, axis] = (slope - grad[0, :, axis]).abs()
    return errors


@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
def test_gradients_agree_with_finite_differences(kind):
    assert gradient_errors(kind, 0.5, lambda dist: dist.sum(-1)).max() < 1e-5


def test_far_slots_are_marked():
    dist = COLLIDERS[BOX, BOX].fn(*spread_out((BOX, BOX), (1.0, 0, 0)))[0]
    assert (dist == FAR).all()
    dist = COLLIDERS[CAPSULE, CAPSULE].fn(*capsules_crossed())[0]
    assert dist[..., 0].item() < 0 and dist[..., 1].item() == FAR


def capsules_crossed():
    args = list(spread_out((CAPSULE, CAPSULE), (0.05, 0, 0)))
    args[4] = args[4][..., [2, 0, 1]]  # z axis along y
    return args


@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
def test_traces_and_is_lean(kind):
    args = spread_out(kind, (0.0, 0.01, 0.2))
    expected = COLLIDERS[kind].fn(*args)
    graph = make_fx(COLLIDERS[kind].fn)(*args)  # fails on anything that looks at values
    for a, b in zip(graph(*args), expected, strict=True):
        assert torch.equal(a, b)
    with CountCalls() as count:
        COLLIDERS[kind].fn(*args)
    limits = {
        (PLANE, CAPSULE): 40, (CAPSULE, BOX): 330, (BOX, BOX): 420,
        # searches in one dimension
        (SPHERE, ELLIPSOID): 600, (CAPSULE, ELLIPSOID): 1500, (ELLIPSOID, BOX): 2100,
        (CAPSULE, CYLINDER): 2700,
    }  # fmt: skip
    limit = limits.get(kind, 110)
    assert count.calls <= limit


@pytest.mark.parametrize("kind", list(SEARCHED), ids=kind_id)
def test_searches_compile_to_lanes(kind):
    configs = random_configs(np.random.default_rng(16), 20)
    oracle = Oracle(kind)
    args = arguments([oracle.run(c) for c in configs], configs, 20, torch.float32)
    expected = COLLIDERS[kind].fn(*args)
    actual = lanes.compile(COLLIDERS[kind].fn, args)(*args)
    used = expected[0] < FAR
    assert torch.equal(actual[0] < FAR, used)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a[used], b[used], atol=1e-4, rtol=0)


def test_constants_made_inside_a_transform_stay_plain():
    args = spread_out((PLANE, CAPSULE), (0.01, 0.02, 0.03))
    math._constant.cache_clear()
    make_fx(torch.func.functionalize(COLLIDERS[PLANE, CAPSULE].fn))(*args)
    traced = COLLIDERS[PLANE, CAPSULE].fn(*args)
    with torch.inference_mode():
        math._constant.cache_clear()
        COLLIDERS[PLANE, CAPSULE].fn(*args)
    for a, b in zip(traced, COLLIDERS[PLANE, CAPSULE].fn(*args), strict=True):
        assert torch.equal(a, b) and not torch._is_functional_tensor(a)
