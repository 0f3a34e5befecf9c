"""The colliders' kernels against the float64 reference, slot by slot; as sets where it is tied."""

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch

from alloy.math import quat_normalize, quat_to_mat
from alloy.ops.reference import contacts as reference_contacts
from alloy.ops.reference.collide import COLLIDERS as REFERENCE
from alloy.ops.reference.collide_cylinder import _touching
from alloy.ops.reference.collide_shared import FAR, tolerance
from alloy.ops.triton import lane
from alloy.ops.triton.collide import SHAPES, TOLERANCE
from alloy.ops.triton.contacts import contacts, has_kernel
from alloy.ops.triton.lane import field
from alloy.physics.layout import PairGroup
from alloy.physics.model import Data
from scripts.kernels import cast
from tests.ops.oracle import (
    BOX,
    CAPSULE,
    CYLINDER,
    ELLIPSOID,
    MARGIN,
    SPHERE,
    UP,
    Config,
    arguments,
    kind_id,
    same_set,
    times,
    turn,
)

KINDS = list(SHAPES)
QUARTER = np.pi / 2


class Order(NamedTuple):
    """As much of the tables of contacts as the stage looks at; None: as the colliders leave it."""

    order: torch.Tensor | None = None


def stage_of(pairs, pos, mat, size, order=None):
    """Model and Data, as much as the stage of a step looks at.

    Args:
        pairs: of each kind the first geoms, the second geoms, and margins (1|W, P).
        pos: (W, ngeom, 3).
        mat: (W, ngeom, 3, 3).
        size: (1|W, ngeom, 3).
        order: of the slots.
    """
    groups, start = [], 0
    for kind, (geom1, geom2, _) in pairs.items():
        groups.append(PairGroup(kind, geom1, geom2, SHAPES[kind][1], start))
        start += len(geom1) * SHAPES[kind][1]
    margins = {kind: margin for kind, (_, _, margin) in pairs.items()}
    derived = {"contact": Order(order), "pair_margin": margins, "noslip": None}
    m = SimpleNamespace(pairs=tuple(groups), ncon=start, geom_size=size, derived=derived)
    return m, Data(qpos=pos[:, 0], geom_xpos=pos, geom_xmat=mat)


def picked(kind, pos, mat, size, geom1, geom2, margin):
    """Contacts of pairs of geoms by the stage of a step: dist (W, P, K), pos, frame."""
    d = contacts(*stage_of({kind: (geom1, geom2, margin)}, pos, mat, size))
    found = (d.contact_dist, d.contact_pos, d.contact_frame)
    return tuple(x.unflatten(1, (len(geom1), SHAPES[kind][1])) for x in found)


def collide(kind, pos1, mat1, size1, pos2, mat2, size2, margin):
    """The same with the pairs' geoms given in order, as colliders of the reference take them."""
    geoms = torch.arange(2 * pos1.shape[1])
    both = (torch.cat(x, 1) for x in ((pos1, pos2), (mat1, mat2), (size1, size2)))
    return picked(kind, *both, *geoms.chunk(2), margin)


def poses(worlds: int, n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random poses close together, turned alike in pair 1 and centred alike in pair 2."""
    generator = torch.Generator().manual_seed(worlds)
    pos = 0.2 * torch.randn(worlds, n, 3, generator=generator, dtype=torch.float64)
    quat = quat_normalize(torch.randn(worlds, n, 4, generator=generator, dtype=torch.float64))
    quat[:, 3] = quat[:, 1]
    pos[:, 4] = pos[:, 5]
    size = 0.05 + 0.1 * torch.rand(worlds, n, 3, generator=generator).double()
    return pos, quat_to_mat(quat), size


def random_arguments(worlds: int, shared: bool) -> tuple[torch.Tensor, ...]:
    pos, mat, size = poses(worlds, 6)
    margin = torch.linspace(0, 0.03, 3 * worlds, dtype=torch.float64).reshape(worlds, 3)
    size, margin = (x[:1] if shared else x for x in (size, margin))
    first, second = (slice(k, None, 2) for k in (0, 1))
    return (pos[:, first], mat[:, first], size[:, first],
            pos[:, second], mat[:, second], size[:, second], margin)  # fmt: skip


def assert_close(
    actual: tuple[torch.Tensor, ...], expected: tuple, tolerance: float, direction: float = 0.0
) -> None:
    """The same slots are in use and hold the same, and all others are finite.

    Points and frames may differ by `direction`, if that is more.
    """
    empty = expected[0] == FAR
    assert torch.equal(actual[0] == FAR, empty), "other slots are in use"
    assert not empty.all(), "no slot is in use: nothing is compared"
    bounds = (tolerance, *(max(tolerance, direction),) * 2)
    for a, e, bound in zip(actual, expected, bounds, strict=True):
        assert a.shape == e.shape and torch.isfinite(a).all()
        assert field(a, len(a))[0].data_ptr() == a.data_ptr(), "not world-last in memory"
        gap = (a.double() - e).abs()[~empty]
        assert gap.max() <= bound, f"off by {gap.max():.1e}"


@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
@pytest.mark.parametrize(("worlds", "shared"), [(1, True), (3, False), (37, True)])
def test_kernel_equals_reference(kind, worlds, shared):
    args = random_arguments(worlds, shared)
    expected = REFERENCE[kind].fn(*args)
    assert SHAPES[kind] == (kind_id(kind), REFERENCE[kind].slots)
    assert_close(collide(kind, *args), expected, 1e-12)


# which of nearly parallel ones are parallel depends on the precision, as does how far from an
# ellipsoid's plane of symmetry a point counts as on it
PRECISE = ((CAPSULE, CAPSULE), (BOX, BOX), (SPHERE, ELLIPSOID), (ELLIPSOID, BOX))


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in PRECISE], ids=kind_id)
def test_float32_kernel_is_near_the_float64_reference(kind):
    args = random_arguments(3, False)
    assert_close(collide(kind, *cast(args, torch.float32)), REFERENCE[kind].fn(*args), 3e-5)


@pytest.mark.parametrize("kind", PRECISE, ids=kind_id)
def test_float32_kernel_is_near_the_float32_reference(kind):
    args = cast(random_arguments(3, False), torch.float32)
    # the overlap of an ellipsoid is least in a direction around which it is flat: that is known to
    # the root of its precision, sqrt(6e-8), and rounding differs from one processor to the next
    direction = 5e-4 if ELLIPSOID in kind else 0.0
    assert_close(collide(kind, *args), REFERENCE[kind].fn(*args), 3e-5, direction)


def test_pairs_are_picked_from_all_geoms():
    pos, mat, size = poses(3, 6)
    size = size[:1]
    geom1, geom2 = torch.tensor([5, 0, 0, 2]), torch.tensor([1, 4, 3, 1])
    margin = torch.tensor([[0.5, 0.0, 0.1, 0.0]], dtype=torch.float64)
    for kind in (KINDS[0], (SPHERE, BOX), (BOX, BOX)):
        of_pairs = [x[:, g] for g in (geom1, geom2) for x in (pos, mat, size)]
        expected = REFERENCE[kind].fn(*of_pairs, margin)
        assert_close(picked(kind, pos, mat, size, geom1, geom2, margin), expected, 1e-12)


def test_several_long_kinds_have_launches_of_their_own():
    pos, mat, size = poses(3, 6)
    margins = torch.tensor([[0.5, 0.0]], dtype=torch.float64), torch.zeros(3, 1).double()
    pairs = {
        (CAPSULE, BOX): (torch.tensor([0, 1]), torch.tensor([2, 3]), margins[0]),
        (SPHERE, BOX): (torch.tensor([4]), torch.tensor([5]), margins[1]),
        (BOX, BOX): (torch.tensor([2, 3]), torch.tensor([5, 0]), margins[0] + margins[1]),
    }
    of_pairs = torch.arange(2 * 2 + 1 + 2 * 8).split([2, 2, 1, 8, 8])
    order = torch.cat([of_pairs[k] for k in (3, 0, 2, 4, 1)])
    m, d = stage_of(pairs, pos, mat, size, order)
    expected = reference_contacts.contacts(m, d)
    with lane.watch() as launched:
        actual = contacts(m, d)
    assert len(launched) == 2  # capsules and spheres together
    assert_close(*((x.contact_dist, x.contact_pos, x.contact_frame) for x in (actual, expected)),
                 1e-12)  # fmt: skip


def test_kinds_and_slots_that_no_kernel_knows():
    def model(kind, slots):
        return SimpleNamespace(pairs=(PairGroup(kind, *torch.zeros(2, 1), slots, 0),))

    assert has_kernel(model((BOX, BOX), 8))
    assert not has_kernel(model((BOX, BOX), 4)) and not has_kernel(model((BOX, 7), 8))


def test_decisions_are_the_references():
    for dtype, numbers in TOLERANCE.items():
        like = torch.zeros((), dtype=dtype)
        assert numbers[:-2] == tolerance(like)
        assert numbers[-2:] == (4 * torch.finfo(dtype).eps, _touching(like))


# ------------------------------------------------------------------ poses in which choices are tied

BOXES = [
    # parallel faces: stacked, shifted, touching, within the margin, beyond it, deep, inside
    ([0, 0, 0.2], UP), ([0.05, 0.03, 0.19], UP), ([0, 0, 0.2 + MARGIN / 2], UP),
    ([0, 0, 0.3], UP), ([0, 0, 0.01], UP), ([0, 0, 0], UP), ([0.2, 0.2, 0.2], UP),
    # turned in the plane of the faces: an octagon, quarter turns
    ([0, 0, 0.19], turn([0, 0, 1], QUARTER / 2)), ([0.02, 0, 0.19], turn([0, 0, 1], 0.3)),
    ([0, 0, 0.19], turn([1, 0, 0], QUARTER)), ([0.19, 0, 0], turn([0, 1, 0], 2 * QUARTER)),
    # an edge and a corner on a face; nearly parallel faces
    ([0, 0, 0.23], turn([1, 0, 0], QUARTER / 2)), ([0.01, 0.02, 0.26], turn([1, 1, 0], 0.955)),
    ([0, 0, 0.19], turn([1, 0, 0], 1e-7)),
    # edge on edge: crossing, parallel, touching, separated
    ([0.135, 0, 0.13], times(turn([0, 0, 1], 0.8), turn([1, 0, 0], 0.7))),
    ([0.14, 0, 0.14], turn([0, 1, 0], QUARTER / 2)), ([0.17, 0.01, 0.17], turn([1, 0, 1], 0.8)),
    ([0.18, 0, 0.18], times(turn([0, 0, 1], QUARTER / 2), turn([1, 0, 0], QUARTER / 2))),
]  # fmt: skip
CAPSULES = [
    # along a face, on it, beyond its ends, standing on it, deep, inside
    ([0, 0, 0.13], turn([1, 0, 0], QUARTER)), ([0.1, 0, 0.13], turn([0, 1, 0], QUARTER)),
    ([0, 0, 0.19], UP), ([0.02, 0.01, 0.05], UP), ([0, 0, 0], turn([1, 2, 0], 0.4)),
    # along an edge, across it, at a corner, away from it
    ([0.12, 0, 0.12], turn([1, 0, 0], QUARTER)), ([0.12, 0.01, 0.12], turn([0, 1, 0], QUARTER / 2)),
    ([0.13, 0.13, 0.13], turn([1, -1, 0], 0.955)), ([0.17, 0.17, 0.17], turn([1, -1, 0], -0.6)),
    ([0.12, 0.01, 0.1], turn([1, 0.2, 0.1], 1.4)), ([0.5, 0, 0], UP),
]  # fmt: skip
CYLINDERS = [
    # above a cap, beside the side, at the rim, on the axis, inside near the cap and near the side
    ([0.02, 0, 0.13], UP), ([0.13, 0.01, 0.02], UP), ([0.12, 0, 0.12], UP), ([0, 0, 0.13], UP),
    ([0, 0, 0], UP), ([0.01, 0, 0.08], UP), ([0, 0.08, 0.01], UP), ([0.5, 0, 0.1], UP),
]  # fmt: skip
ON_CYLINDER = [
    # along a cap, shifted, beyond its edge, in it, tilted within and beyond 5 degrees
    ([0, 0, 0.13], turn([1, 0, 0], QUARTER)), ([0.05, 0.01, 0.13], turn([1, 0, 0], QUARTER)),
    ([0.11, 0, 0.13], turn([0, 1, 0], QUARTER)), ([0.02, 0.03, 0.05], turn([0, 1, 0], QUARTER)),
    ([0, 0, 0.13], turn([1, 0, 0], QUARTER - 0.07)), ([0, 0, 0.13], turn([1, 0, 0], QUARTER - 0.1)),
    # standing on it, along and across the side, at the rim, in it across the rim, away
    ([0.02, 0, 0.22], UP), ([0.13, 0, 0.01], UP), ([0.13, 0.01, 0], turn([1, 0, 0], QUARTER)),
    ([0.1, 0.01, 0.12], turn([0, 1, 0], QUARTER / 2)), ([0.07, 0, 0.07], turn([1, 1, 0], 0.8)),
    ([0.5, 0, 0], UP),
]  # fmt: skip
TIED = {
    (CAPSULE, CYLINDER): (ON_CYLINDER, [0.04, 0.1, 0], [0.1, 0.1, 0]),
    (BOX, BOX): (BOXES, [0.1, 0.1, 0.1], [0.1, 0.1, 0.1]),
    (CAPSULE, BOX): (CAPSULES, [0.04, 0.1, 0], [0.1, 0.1, 0.1]),
    (SPHERE, CYLINDER): (CYLINDERS, [0.05, 0, 0], [0.1, 0.1, 0]),
}


def tied_arguments(kind, placed: bool) -> tuple[torch.Tensor, ...]:
    """The poses of the first geom beside the second, there or, placed, anywhere; a world each."""
    rng = np.random.default_rng(0)
    where, size1, size2 = TIED[kind]
    configs = [Config(pos, quat, size1, [0, 0, 0], UP, size2) for pos, quat in where]
    if placed:
        configs = [c.placed(rng) for c in configs]
    mats = [[quat_to_mat(torch.tensor(q)).numpy() for _, q in (c.pose1, c.pose2)] for c in configs]
    mats = mats if placed else np.round(mats, 12)  # quarter turns are exact
    poses = [((c.pose1[0], c.pose2[0]), mat) for c, mat in zip(configs, mats, strict=True)]
    return arguments(poses, configs, len(configs), torch.float64)


@pytest.mark.parametrize("kind", TIED, ids=kind_id)
def test_aligned_poses(kind):
    """Slot by slot: where a choice is tied, both compute exactly and take the first."""
    args = tied_arguments(kind, False)
    assert_close(collide(kind, *args), REFERENCE[kind].fn(*args), 1e-12)


@pytest.mark.parametrize("kind", TIED, ids=kind_id)
def test_aligned_poses_anywhere(kind):
    """As sets: rounding may turn a tie, and with it the order of the slots."""
    args = tied_arguments(kind, True)
    results = []
    for dist, pos, frame in (collide(kind, *args), REFERENCE[kind].fn(*args)):
        keep = dist[:, 0] <= MARGIN
        worlds = range(len(keep))
        results.append(
            [tuple(x[w, 0, keep[w]].numpy() for x in (dist, pos, frame)) for w in worlds]
        )
    wrong = [w for w, (a, b) in enumerate(zip(*results, strict=True)) if not same_set(a, b, 1e-9)]
    assert not wrong, [TIED[kind][0][w] for w in wrong]
    assert {len(r[0]) for r in results[1]} >= {0, 1}
