"""Quaternions that turn, factor and solve: the kernels against the float64 reference."""

import pytest
import torch

from alloy.ops.reference import linear as reference_linear
from alloy.ops.reference import pose as reference_pose
from alloy.ops.triton import linear, pose
from scripts.kernels import Call, worst
from tests.ops.triton.calls import assert_twin

DTYPES = {torch.float64: 1e-14, torch.float32: 1e-6}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("worlds", [1, 3, 37])
def test_quaternions_turn(worlds, dtype):
    generator = torch.Generator().manual_seed(worlds)
    quat, omega = (
        torch.randn(worlds, 2, n, generator=generator, dtype=torch.float64) for n in (4, 3)
    )
    quat[0, 0], omega[-1, 1] = 0, 0  # an empty quaternion is the identity; standing still
    args = (quat, omega, 0.05)
    call = Call(args, (reference_pose.integrate_quat(*args),))
    assert_twin(pose.integrate_quat, call, dtype, DTYPES[dtype])


@pytest.mark.parametrize("worlds", [1, 3, 37])
def test_factor_and_solve(worlds):
    generator = torch.Generator().manual_seed(worlds)
    half = torch.randn(worlds, 5, 5, generator=generator, dtype=torch.float64)
    a, b = half @ half.mT + torch.eye(5), half[:, 0]
    chol = reference_linear.factor(a)
    assert_twin(linear.factor, Call((a,), (chol,)), torch.float64, 1e-13)
    assert_twin(linear.factor, Call((a,), (chol,)), torch.float32, 1e-5)
    call = Call((chol, b), (reference_linear.solve(chol, b),))
    assert_twin(linear.solve, call, torch.float64, 1e-13)
    # one matrix for all worlds
    shared = Call((chol[:1], b), (reference_linear.solve(chol[:1].expand(worlds, -1, -1), b),))
    assert_twin(linear.solve, shared, torch.float64, 1e-13)


@pytest.mark.parametrize("worlds", [1, 3, 37])
def test_elimination(worlds):
    """Of matrices that are not symmetric, with a positive definite symmetric part."""
    generator = torch.Generator().manual_seed(worlds)
    half, skew = torch.randn(2, worlds, 7, 7, generator=generator, dtype=torch.float64)
    a, b = half @ half.mT + torch.eye(7) + skew - skew.mT, half[:, 0]
    call = Call((a, b), (torch.linalg.solve(a, b),))
    assert worst(reference_linear.eliminate(a, b), call.result) <= 1e-13
    assert_twin(linear.eliminate, call, torch.float64, 1e-13)
    assert_twin(linear.eliminate, call, torch.float32, 1e-5)


def test_not_positive_definite_spoils_its_own_world_only():
    a = torch.eye(3, dtype=torch.float64).repeat(2, 1, 1)
    a[0, 1, 1] = -1
    x = linear.solve(linear.factor(a), torch.ones(2, 3, dtype=torch.float64))
    assert torch.isnan(x[0]).any() and (x[1] == 1).all()


@pytest.mark.parametrize("eliminate", [linear.eliminate, reference_linear.eliminate])
def test_singular_spoils_its_own_world_only(eliminate):
    a = torch.eye(3, dtype=torch.float64).repeat(2, 1, 1)
    a[0, 1] = 0
    x = eliminate(a, torch.ones(2, 3, dtype=torch.float64))
    assert not torch.isfinite(x[0]).all() and (x[1] == 1).all()
