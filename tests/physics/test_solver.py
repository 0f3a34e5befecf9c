"""The solver where rounding is against it: contacts almost without friction in float32."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import pytest
import torch

from alloy.ops.reference import cone
from alloy.physics import actuation, forward, io
from alloy.physics.model import Data, Model, make_data

WORLDS = 256
TOLD = ("M", "qfrc_smooth", "efc_J", "efc_aref", "efc_D", "qacc_warmstart")  # to the solver


def stack(friction: str, shape: str) -> str:
    """Two boxes on a plane, almost without friction: the Hessian's condition is 1e7 and more."""
    boxes = "".join(
        f"""<body pos="0 0 {z}"><freejoint/><geom type="box" size="{r} {r} {r}" mass="1"/></body>"""
        for z, r in ((0.2, 0.2), (0.5, 0.1))
    )
    return f"""<mujoco><option cone="{shape}"/><default><geom friction="{friction} 0 0"/></default>
      <worldbody><geom type="plane" size="9 9 1" friction="0 0 0"/>{boxes}</worldbody></mujoco>"""


def cost(m: Model, d: Data, qacc: torch.Tensor) -> torch.Tensor:
    """MuJoCo's cost (W,) of an acceleration, in double precision whatever that of the rows."""
    mass, smooth, jac, aref, scale, qacc = (
        x.double() for x in (d.M, d.qfrc_smooth, d.efc_J, d.efc_aref, d.efc_D, qacc)
    )
    fields = (m.dof_frictionloss.double(), m.con_friction.double(), m.opt.impratio)
    rows = cone.make_rows(m.efc, scale, *fields)
    x = cone.spread(rows, (jac @ qacc.unsqueeze(-1)) - aref.unsqueeze(-1))
    momentum = (mass @ qacc.unsqueeze(-1)).squeeze(-1)
    return ((0.5 * momentum - smooth) * qacc).sum(-1) + cone.cost(rows, x)


@pytest.mark.parametrize("friction", ["1e-3", "1e-5"])
@pytest.mark.parametrize("shape", ["pyramidal", "elliptic"])
def test_a_solution_in_float32_costs_as_little_as_in_float64(friction, shape):
    mj = mujoco.MjModel.from_xml_string(stack(friction, shape))
    m, exact = io.put_model(mj), io.put_model(mj, dtype=torch.float64)
    gen = torch.Generator().manual_seed(0)
    d = make_data(m, WORLDS)
    shift = torch.randn(WORLDS, m.nq, generator=gen) * 1e-5
    start = replace(
        d, qpos=d.qpos + shift, qvel=torch.randn(WORLDS, m.nv, generator=gen) * 1e-3,
        qacc_warmstart=torch.randn(WORLDS, m.nv, generator=gen) * 0.1,
    )  # fmt: skip
    for _ in range(3):
        d = actuation.actuation(m, forward.velocity(m, forward.position(m, start)))
        found = forward.solve(m, d)
        best = forward.solve(
            exact, replace(d, **{name: getattr(d, name).double() for name in TOLD})
        )
        least, ours = (cost(m, d, a) for a in (best.qacc, found.qacc))
        assert (found.solver_niter > 1).any()
        assert (ours - least <= 1e-3 * (1 + least.abs())).all(), (ours - least).max()
        start = forward.step(m, start)


@pytest.mark.parametrize("shape", ["pyramidal", "elliptic"])
def test_a_pyramid_that_float32_bounds_pushes_as_in_float64(shape):
    """Penetration and force of a box at rest: R differs, what follows from it does not."""
    mj = mujoco.MjModel.from_xml_string(stack("1e-5", shape))
    found = []
    for dtype in (torch.float32, torch.float64):
        m = io.put_model(mj, dtype=dtype)
        d = make_data(m, 1)
        for _ in range(400):
            d = forward.step(m, d)
        d = forward.forward(m, d)
        found.append((d.qpos.double(), d.qfrc_constraint.double()))  # box-box slots may differ
    (qpos, force), (exact_qpos, exact_force) = found
    assert (qpos - exact_qpos).abs().max() < 1e-5
    assert (force - exact_force).abs().max() < 1e-4 * exact_force.abs().max()
