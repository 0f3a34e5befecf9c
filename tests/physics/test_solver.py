"""What holds of the solver whatever the rounding: it never ends above where it began."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import pytest
import torch

from alloy.ops.reference import cone
from alloy.physics import actuation, forward, io
from alloy.physics.model import Data, Model, make_data

WORLDS = 256


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
def test_a_solution_in_float32_costs_no_more_than_its_start(friction, shape):
    m = io.put_model(mujoco.MjModel.from_xml_string(stack(friction, shape)))
    gen = torch.Generator().manual_seed(0)
    d = make_data(m, WORLDS)
    shift = torch.randn(WORLDS, m.nq, generator=gen) * 1e-5
    start = replace(
        d, qpos=d.qpos + shift, qvel=torch.randn(WORLDS, m.nv, generator=gen) * 1e-3,
        qacc_warmstart=torch.randn(WORLDS, m.nv, generator=gen) * 0.1,
    )  # fmt: skip
    for _ in range(5):
        d = actuation.actuation(m, forward.velocity(m, forward.position(m, start)))
        found = forward.solve(m, d)
        before, after = (cost(m, d, a) for a in (start.qacc_warmstart, found.qacc))
        assert (found.solver_niter > 0).any()
        assert (after <= before + 1e-4 * before.abs()).all(), (after - before).max()
        start = forward.step(m, start)
