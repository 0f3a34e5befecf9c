"""The colliders' kernels against the float64 reference, slot by slot."""

import pytest
import torch

from alloy.math import quat_normalize, quat_to_mat
from alloy.ops.reference.collide import COLLIDERS as REFERENCE
from alloy.ops.reference.collide_shared import tolerance
from alloy.ops.triton.collide import SHAPES, TOLERANCE, collide, collide_pairs
from scripts.kernels import Call
from tests.ops.oracle import kind_id
from tests.ops.triton.calls import assert_twin

KINDS = list(SHAPES)


def poses(worlds: int, n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random poses close together, turned alike in pair 1 and centred alike in pair 2."""
    generator = torch.Generator().manual_seed(worlds)
    pos = 0.2 * torch.randn(worlds, n, 3, generator=generator, dtype=torch.float64)
    quat = quat_normalize(torch.randn(worlds, n, 4, generator=generator, dtype=torch.float64))
    quat[:, 3] = quat[:, 1]
    pos[:, 4] = pos[:, 5]
    return pos, quat_to_mat(quat), 0.05 + 0.1 * torch.rand(worlds, n, 3, generator=generator)


def arguments(worlds: int, shared: bool) -> tuple[torch.Tensor, ...]:
    pos, mat, size = poses(worlds, 6)
    size = (size[:1] if shared else size).double()
    first, second = (slice(k, None, 2) for k in (0, 1))
    margin = torch.zeros(1, 3, dtype=torch.float64)
    return (pos[:, first], mat[:, first], size[:, first],
            pos[:, second], mat[:, second], size[:, second], margin)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
@pytest.mark.parametrize(("worlds", "shared"), [(1, True), (3, False), (37, True)])
def test_kernel_equals_reference(kind, worlds, shared):
    args = arguments(worlds, shared)
    call = Call((kind, *args), REFERENCE[kind].fn(*args))
    assert SHAPES[kind] == (kind_id(kind), REFERENCE[kind].slots)
    assert_twin(collide, call, torch.float64, 1e-12)
    if worlds == 3 and kind_id(kind) != "capsule-capsule":  # float32 may find others parallel
        assert_twin(collide, call, torch.float32, 3e-5)


def test_pairs_are_picked_from_all_geoms():
    pos, mat, size = poses(3, 6)
    size = size[:1].double()
    geom1, geom2 = torch.tensor([5, 0, 0, 2]), torch.tensor([1, 4, 3, 1])
    for kind in KINDS[:3]:
        picked = [x[:, g] for g in (geom1, geom2) for x in (pos, mat, size)]
        expected = REFERENCE[kind].fn(*picked, torch.zeros(1, 4))
        actual = collide_pairs(pos, mat, size, geom1, geom2, kind)
        for a, e in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, e, rtol=0, atol=1e-12)


def test_decisions_are_the_references():
    for dtype, numbers in TOLERANCE.items():
        theirs = tolerance(torch.zeros((), dtype=dtype))
        assert numbers == (theirs.aligned, theirs.parallel)
