"""The solver's kernel against the float64 reference: every kind of row, both friction cones."""

from functools import partial

import pytest
import torch

from alloy.ops.triton import solver
from tests.ops.triton.calls import assert_twin, calls_of, model_of, plan_of
from tests.physics.models import EQUALITIES, LIMITS


def rest(cone: str, impratio: float, dims: tuple[int, int], iterations: int = 2) -> str:
    """A box on a plane, with a sphere on a slide and friction loss that leans on both.

    Kernel and reference take the same steps, so two iterations say as much as convergence. Only
    far from the minimum of elliptic cones do steps amplify rounding.
    """
    return f"""
<mujoco><option cone="{cone}" impratio="{impratio}" iterations="{iterations}"/>
<default><geom friction=".8 .02 .01"/></default>
<worldbody><geom type="plane" size="5 5 1" condim="1"/>
  <body pos="0 0 .19" euler="1 2 3"><freejoint/>
    <geom type="box" size=".2 .2 .2" condim="{dims[0]}"/></body>
  <body pos=".29 0 .39"><joint type="slide" axis="1 0 0" frictionloss=".3"/>
    <joint type="ball" frictionloss=".01"/><geom size=".1" condim="{dims[1]}"/></body>
</worldbody></mujoco>"""


MODELS = {
    "limits and friction loss": LIMITS,
    "equalities": EQUALITIES,
    "frictionless": rest("pyramidal", 1, (1, 1)),
    "pyramids": rest("pyramidal", 3, (3, 6)),
    "elliptic": rest("elliptic", 10, (3, 4), 8),
    "elliptic 6": rest("elliptic", 1, (6, 1)),
}


@pytest.mark.parametrize("name", MODELS)
def test_solver_equals_reference(name):
    source = MODELS[name]
    solve = partial(solver.solve, plan=plan_of(model_of(source)))
    assert_twin(solve, calls_of(source, 3, False)["solve"], torch.float64, 1e-8)
