"""The stages of a step: each kernel against the float64 reference, on what a step gives it."""

import pytest
import torch

from scripts.kernels import twin_of
from tests.ops.triton.calls import assert_twin, calls_of
from tests.ops.triton.test_solver import rest
from tests.physics.models import CONTACTS, EQUALITIES, JOINTS, LIMITS, SPINNING
from tests.physics.test_actuation import MODELS as ACTUATORS
from tests.physics.test_passive import FLUID, GRAVCOMP, SPRINGS, TENDONS
from tests.physics.test_sensor import SCENE

CHEETAH, RK4 = "half_cheetah.xml", SPINNING.replace("<option ", '<option integrator="RK4" ')
FAST = SPINNING.replace("<option ", '<option integrator="implicitfast" ')
ACTIVATIONS = ACTUATORS["dynamics"].replace("<mujoco>", '<mujoco><option integrator="{}"/>')
# one world; worlds of their own; more than one block
ONE, OWN, MANY = (1, True), (3, False), (37, True)
DOUBLE, SINGLE = torch.float64, torch.float32
# sensors that have a kernel, on objects of every kind, some with a cutoff
FRAME_SENSORS = "".join(
    f'<{kind} objtype="{objtype}" objname="{name}" cutoff="{cutoff}"/>'
    for kind in ("framepos", "framelinvel", "frameangvel")
    for objtype, name, cutoff in (
        ("body", "a", 0), ("site", "sf", 1), ("geom", "gc", 0), ("xbody", "c", 0.5))
) + """<framequat objtype="body" objname="b"/><gyro site="sb" cutoff=".3"/>
<framequat objtype="geom" objname="ga"/><velocimeter site="sf"/><accelerometer site="sa"/>
<accelerometer site="w"/><framequat objtype="site" objname="se"/>"""  # fmt: skip
# two trees that touch, torques in the cone; elliptic and frictionless contacts
ROWS = (rest("pyramidal", 3, (3, 6)), rest("elliptic", 10, (4, 1)))
CASES = {
    # all joint types and a mocap body
    "kinematics": [(JOINTS, ONE), (JOINTS, OWN), (CHEETAH, MANY)],
    "mass_matrix": [(JOINTS, ONE), (JOINTS, OWN), (CHEETAH, MANY)],
    # colliders of four kinds, their slots in an order of their own
    "contacts": [(CONTACTS["condim3-pyramidal-1"], ONE), (ROWS[0], MANY)],
    "rows": [(EQUALITIES, OWN), (LIMITS, OWN), (ROWS[0], ONE), (ROWS[1], MANY)],
    "reference_acceleration": [(EQUALITIES, OWN), (ROWS[1], MANY), (LIMITS, ONE)],
    "velocity": [(JOINTS, ONE), (JOINTS, OWN), (CHEETAH, MANY)],
    "tendon": [(TENDONS, ONE), (TENDONS, MANY)],
    "passive": [
        (SPRINGS, OWN), (TENDONS, ONE), (GRAVCOMP, OWN), (FLUID, OWN), (CHEETAH, MANY),
    ],
    "actuation": [
        *((ACTUATORS[name], OWN) for name in (
            "affine", "dynamics", "tendon limit", "turns", "gravcomp limit")),
        (ACTUATORS["limits"], ONE), (CHEETAH, MANY),
    ],
    "eliminate": [(FAST, OWN), (FAST, MANY)],  # lone free bodies that spin
    "sensor": [(SCENE % FRAME_SENSORS, OWN), (SCENE % FRAME_SENSORS, ONE)],
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
    assert_twin(twin_of(name), calls_of(source, *case)[name], dtype, TOLERANCE[dtype])
