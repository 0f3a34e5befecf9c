"""Kinematics, inertia, velocities and bias: the kernels against the float64 reference."""

import pytest
import torch

from alloy.ops.triton import inertia, kinematics
from tests.ops.triton.calls import assert_twin, calls_of
from tests.physics.models import JOINTS

TWINS = {
    "kinematics": kinematics.kinematics,
    "com": inertia.com,
    "mass_matrix": inertia.mass_matrix,
    "velocity": inertia.velocity,
    "bias": inertia.bias,
}
# all joint types and a mocap body; one world; worlds of their own; more than one block
CASES = [
    (JOINTS, 1, True, torch.float64),
    (JOINTS, 3, False, torch.float64),
    ("half_cheetah.xml", 37, True, torch.float32),
]
TOLERANCE = {torch.float64: 1e-13, torch.float32: 3e-6}


@pytest.mark.parametrize(("source", "worlds", "shared", "dtype"), CASES)
@pytest.mark.parametrize("name", TWINS)
def test_kernel_equals_reference(name, source, worlds, shared, dtype):
    assert_twin(TWINS[name], calls_of(source, worlds, shared)[name], dtype, TOLERANCE[dtype])
