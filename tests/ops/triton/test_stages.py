"""The stages of a step: each kernel against the float64 reference, on what a step gives it."""

import pytest
import torch

from tests.ops.triton.calls import assert_twin, calls_of, twin
from tests.physics.models import CONTACTS, EQUALITIES, JOINTS, LIMITS, SPINNING
from tests.physics.test_actuation import MODELS as ACTUATORS
from tests.physics.test_passive import FLUID, GRAVCOMP, SPRINGS, TENDONS

CHEETAH, RK4 = "half_cheetah.xml", SPINNING.replace("<option ", '<option integrator="RK4" ')
ACTIVATIONS = ACTUATORS["dynamics"].replace("<mujoco>", '<mujoco><option integrator="{}"/>')
# one world; worlds of their own; more than one block
ONE, OWN, MANY = (1, True), (3, False), (37, True)
DOUBLE, SINGLE = torch.float64, torch.float32
CASES = {
    # all joint types and a mocap body
    "kinematics": [(JOINTS, ONE), (JOINTS, OWN), (CHEETAH, MANY)],
    "mass_matrix": [(JOINTS, ONE), (JOINTS, OWN), (CHEETAH, MANY)],
    # colliders of four kinds, their slots in an order of their own
    "contacts": [(CONTACTS["condim3-pyramidal-1"], OWN), (CHEETAH, MANY)],
    "velocity": [(JOINTS, ONE), (JOINTS, OWN), (CHEETAH, MANY)],
    "tendon": [(TENDONS, ONE), (TENDONS, MANY)],
    "passive": [
        (SPRINGS, OWN), (TENDONS, OWN), (GRAVCOMP, OWN), (FLUID, OWN), (SPRINGS, ONE),
        (CHEETAH, MANY),
    ],
    "semi_implicit": [
        (JOINTS, OWN), (CHEETAH, MANY), (ACTIVATIONS.format("Euler"), OWN),
        (ACTIVATIONS.format("implicitfast"), ONE),
    ],
    "runge_kutta_stage": [(RK4, OWN), (RK4, MANY), (ACTIVATIONS.format("RK4"), ONE)],
    "runge_kutta_end": [(RK4, OWN), (RK4, MANY), (ACTIVATIONS.format("RK4"), OWN)],
    "keep_sound": [(CHEETAH, MANY), (ACTIVATIONS.format("RK4"), OWN)],
}  # fmt: skip
TOLERANCE = {DOUBLE: 1e-13, SINGLE: 3e-6}


@pytest.mark.parametrize(
    ("name", "source", "case"), [(name, *case) for name in CASES for case in CASES[name]]
)
def test_kernel_equals_reference(name, source, case):
    dtype = SINGLE if case == MANY else DOUBLE
    assert_twin(twin(name), calls_of(source, *case)[name], dtype, TOLERANCE[dtype])
