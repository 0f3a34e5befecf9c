"""The solver's kernel against the float64 reference: every kind of row, both friction cones."""

import pytest
import torch

from alloy.ops.reference import solver as reference_solver
from alloy.ops.triton import solver
from scripts.kernels import cast, worst
from tests.ops.triton.calls import assert_twin, calls_of
from tests.physics.models import EQUALITIES, LIMITS


def rest(cone: str, impratio: float, dims: tuple[int, int], iterations: int = 2) -> str:
    """A ball on a plane, and one on a slide with friction loss that leans on both.

    Kernel and reference take the same steps, so two iterations say as much as convergence. Only
    far from the minimum of elliptic cones do steps amplify rounding.
    """
    return f"""
<mujoco><option cone="{cone}" impratio="{impratio}" iterations="{iterations}"
  ls_iterations="6"/>
<default><geom friction=".8 .02 .01"/></default>
<worldbody><geom type="plane" size="5 5 1" condim="1"/>
  <body pos="0 0 -.3"><freejoint/><geom size=".4" condim="{dims[0]}"/></body>
  <body pos=".3 0 -.3"><joint type="slide" axis="1 0 0" frictionloss=".3"/>
    <joint type="ball" frictionloss=".01"/><geom size=".4" condim="{dims[1]}"/></body>
</worldbody></mujoco>"""


MODELS = {
    "limits and friction loss": LIMITS,
    "equalities": EQUALITIES,
    "frictionless": rest("pyramidal", 1, (1, 1)),
    "pyramids": rest("pyramidal", 3, (3, 6)),
    "elliptic": rest("elliptic", 10, (3, 4), 4),
    "elliptic 6": rest("elliptic", 1, (6, 1)),
}


@pytest.mark.parametrize("name", MODELS)
def test_solver_equals_reference(name):
    source = MODELS[name]
    call = calls_of(source, 3, False)["solve"]
    assert (call.args[4] > 0).any(0).float().mean() > 0.3, "too few rows are active to tell"
    assert_twin(solver.solve, call, torch.float64, 1e-8)


def test_a_world_does_not_depend_on_its_neighbours():
    source = LIMITS
    call = calls_of(source, 3, False)["solve"]
    alone = [x[1:2] if isinstance(x, torch.Tensor) and len(x) == 3 else x for x in call.args]
    together, single = solver.solve(*call.args), solver.solve(*alone)
    assert all(torch.equal(a[1:2], b) for a, b in zip(together, single, strict=True))


@pytest.mark.parametrize("name", ["pyramids", "limits and friction loss"])
def test_solver_meets_the_reference_in_float32(name):
    """Relative to the largest entry: both stop where a step gains no more than rounding."""
    source = MODELS[name]
    call = calls_of(source, 3, False)["solve"]
    actual = solver.solve(*cast(call.args, torch.float32))
    assert worst(actual[:3], call.result[:3]) <= 2e-3


def test_where_the_hessian_is_indefinite_each_dof_goes_by_itself():
    """M has a negative eigenvalue in world 1. No row is active and the start is zero, so that the
    step there is qfrc_smooth times the minimiser along it; elsewhere M is the identity.
    """
    args = list(calls_of(LIMITS, 3, False)["solve"].args)
    mass, smooth = torch.zeros_like(args[0]) + torch.eye(args[0].shape[-1]), args[1]
    mass[1, 0, 1] = mass[1, 1, 0] = 1.5 * smooth[1, 0].sign() * smooth[1, 1].sign()
    args[0], args[4], args[7] = mass, torch.zeros_like(args[4]), torch.zeros_like(smooth)
    args[11] = (0.0, 0.01, 1, 4)  # one iteration
    expected, f = smooth.clone(), smooth[1]
    expected[1] = f * (f @ f) / (f @ mass[1] @ f)
    assert worst(solver.solve(*args)[0], (expected,)) <= 1e-12


def test_gradient_that_is_no_number_reaches_qacc_of_its_own_world():
    args = list(calls_of(LIMITS, 3, False)["solve"].args)
    args[11] = (*args[11][:2], 1, 4)  # one iteration
    clean = solver.solve(*args)
    args[1] = args[1].clone()
    args[1][1, 2] = float("nan")
    spoilt, expected = solver.solve(*args), reference_solver.solve(*args[:-1])
    assert spoilt[0][1].isnan().all() and expected[0][1].isnan().all()
    assert all(torch.equal(a[0::2], b[0::2]) for a, b in zip(clean, spoilt, strict=True))
