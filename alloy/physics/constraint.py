"""Constraint rows: their constants, and the stages that make them. Base form, see layout.py.

Source: MuJoCo manual, Computation, Constraint model (sections Parameters, Friction cones).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from alloy import math, ops
from alloy.physics.model import Data, Model

MINIMP, MAXIMP = 1e-4, 0.9999  # mjMINIMP, mjMAXIMP
# Friction whose pyramid is not stiffer than float32 can tell: its R, 2 mu^2 of a normal's, is 2e-5
# of that. A stiffer one, of condition 1e7 and more, would change forces by less than 1e-5.
LEAST_FLOAT32 = 3e-3


# ------------------------------------------------------------------ constants of a model


def _stiffness_damping(m: Model, solref: Tensor, dmax: Tensor) -> tuple[Tensor, Tensor]:
    """K and B of solref (..., 2): time constant and damping ratio, or negative: direct."""
    time, ratio = solref.unbind(-1)
    if "refsafe" not in m.opt.disable:
        time = torch.where(time > 0, time.clamp(min=2 * m.opt.timestep), time)
    standard = time > 0
    safe_t, safe_r = (torch.where(standard, x, 1.0) for x in (time, ratio))
    k = 1 / (dmax * dmax * safe_t * safe_t * safe_r * safe_r).clamp(min=math.MINVAL)
    b = 2 / (dmax * safe_t).clamp(min=math.MINVAL)
    k = torch.where(standard, k, -time / (dmax * dmax).clamp(min=math.MINVAL))
    b = torch.where(ratio > 0, b, -ratio / dmax.clamp(min=math.MINVAL))
    return k, b


def _unit_diag(m: Model) -> Tensor:
    """Approximate inverse inertia of every unit, (1|W, nunit); welds: of the translation."""
    w = m.body_invweight0
    parts = []
    for eq in m.efc.equalities:
        if eq.kind in ("joint", "tendon"):
            weight = m.dof_invweight0 if eq.kind == "joint" else m.tendon_invweight0
            parts.append(weight @ (eq.move1 + eq.move2).T)
        else:
            parts.append(w[:, eq.obj1, 0] + w[:, eq.obj2, 0])
    if m.efc.nf:
        parts.append(m.dof_invweight0[:, m.efc.friction_dofs])
    if m.efc.n_tendon_losses:
        parts.append(m.tendon_invweight0[:, m.efc.loss_tendons])
    if m.efc.nl:
        parts.append(m.dof_invweight0[:, m.derived["limit_dof"]])
    if m.efc.n_tendon_limits:
        parts.append(m.tendon_invweight0[:, m.efc.limit_tendons])
    if m.ncon:
        con = m.derived["contact"]
        parts.append(w[:, con.body1, 0] + w[:, con.body2, 0])
    return torch.cat(_same_worlds(parts), -1) if parts else m.qpos0[:, :0]


def _same_worlds(parts: list[Tensor]) -> list[Tensor]:
    worlds = max(p.shape[0] for p in parts)
    return [p.expand(worlds, *p.shape[1:]) for p in parts]


def _row_scale(m: Model, unit_diag: Tensor) -> Tensor:
    """Inverse inertia of every row such that R = (1 - imp) / imp * scale, (1|W, nefc)."""
    parts, unit = [], 0
    for eq in m.efc.equalities:
        tran = unit_diag[:, unit : unit + eq.n, None].expand(-1, -1, min(eq.dim, 3))
        unit += eq.n
        if eq.kind == "weld":
            rot = m.body_invweight0[:, eq.obj1, 1] + m.body_invweight0[:, eq.obj2, 1]
            tran = torch.cat(_same_worlds([tran, rot.unsqueeze(-1).expand(-1, -1, 3)]), -1)
        parts.append(tran.flatten(1))
    parts.append(unit_diag[:, unit : unit + m.efc.nf + m.efc.nl])
    con_diag = unit_diag[:, unit + m.efc.nf + m.efc.nl :]
    if m.efc.n1:
        parts.append(con_diag[:, m.efc.frictionless])
    for cone in m.efc.cones:
        slots = slice(None) if cone.slots is None else cone.slots
        friction = m.con_friction[:, slots, : cone.dim - 1]
        normal = con_diag[:, slots, None]
        least = LEAST_FLOAT32 if friction.dtype == torch.float32 else 0.0
        mu2 = friction[..., :1].clamp(min=least) ** 2 / max(m.opt.impratio, math.MINVAL)
        if m.efc.pyramidal:
            normal = normal * (1 + friction[..., :1] ** 2)
            scale = (2 * mu2 * normal).expand(-1, -1, cone.dim)
        else:
            first = normal / max(m.opt.impratio, math.MINVAL)
            rest = first * friction[..., :1] ** 2 / friction**2
            scale = torch.cat(_same_worlds([normal, rest]), -1)
        parts.append(scale.flatten(1))
    return torch.cat(_same_worlds(parts), -1)


def constants(m: Model) -> Model:
    """Recompute what the rows need from solref, solimp, friction and invweight0.

    Called once when a model is built and again when one of those fields is randomised.
    """
    friction_dofs, limit_joints = m.efc.friction_dofs, m.efc.limit_joints
    solref, solimp = [], []
    for eq in m.efc.equalities:
        solref.append(m.eq_solref[:, eq.ids])
        solimp.append(m.eq_solimp[:, eq.ids])
    if m.efc.nf:
        solref.append(m.dof_solref[:, friction_dofs])
        solimp.append(m.dof_solimp[:, friction_dofs])
    if m.efc.n_tendon_losses:
        solref.append(m.tendon_solref_fri[:, m.efc.loss_tendons])
        solimp.append(m.tendon_solimp_fri[:, m.efc.loss_tendons])
    if limit_joints is not None:
        solref.append(m.jnt_solref[:, limit_joints])
        solimp.append(m.jnt_solimp[:, limit_joints])
    if m.efc.n_tendon_limits:
        solref.append(m.tendon_solref_lim[:, m.efc.limit_tendons])
        solimp.append(m.tendon_solimp_lim[:, m.efc.limit_tendons])
    if m.ncon:
        solref.append(m.con_solref)
        solimp.append(m.con_solimp)
    if not solref:
        return m
    imp = torch.cat(_same_worlds(solimp), 1)
    dmin, dmax, width, mid, power = imp.unbind(-1)
    dmin, dmax, mid = (x.clamp(MINIMP, MAXIMP) for x in (dmin, dmax, mid))
    k, b = _stiffness_damping(m, torch.cat(_same_worlds(solref), 1), dmax)
    width, flat = width.clamp(min=math.MINVAL), width <= math.MINVAL
    mean = 0.5 * (dmin + dmax)
    dmin, dmax = torch.where(flat, mean, dmin), torch.where(flat, mean, dmax)
    power = power.clamp(min=1)
    rise, fall = (dmax - dmin) / mid ** (power - 1), (dmax - dmin) / (1 - mid) ** (power - 1)
    imp = torch.stack([dmin, dmax, 1 / width, mid, rise, fall, power], -1)
    diag = _row_scale(m, _unit_diag(m))
    unit = m.efc.row_unit
    row_k, row_b = (k, b) if unit is None else (k[:, unit], b[:, unit])
    if m.efc.row_normal is not None:
        row_k = row_k * m.efc.row_normal
    no_margin = torch.zeros_like(imp[:, : m.nunit - m.efc.nl - m.ncon, 0])
    margin = [no_margin]
    if limit_joints is not None:
        margin.append(m.jnt_margin[:, limit_joints])
    if m.efc.n_tendon_limits:
        margin.append(m.tendon_margin[:, m.efc.limit_tendons])
    margin = torch.cat(_same_worlds([*margin, m.con_margin]), 1)
    bounds = m.jnt_range[:, limit_joints[: m.nlimit]] if m.nlimit else m.jnt_range[:, :0]
    m = replace(
        m, efc_k=row_k, efc_b=row_b, efc_diag=diag, efc_imp=imp, efc_margin=margin, efc_range=bounds
    )
    return _friction_reference(m) if m.efc.has_solreffriction else m


def _friction_reference(m: Model) -> Model:
    """Elliptic friction rows take their damping from solreffriction where it is given."""
    _, dmax, *_ = m.con_solimp.unbind(-1)
    _, b = _stiffness_damping(m, m.con_solreffriction, dmax.clamp(MINIMP, MAXIMP))
    given = (m.con_solreffriction != 0).any(-1)
    contact = (m.efc.row_unit - (m.nunit - m.ncon)).clamp(min=0)
    is_friction = (1 - m.efc.row_normal).bool() & given[:, contact]
    return replace(m, efc_b=torch.where(is_friction, b[:, contact], m.efc_b))


# ------------------------------------------------------------------ stages


def rows(m: Model, d: Data) -> Data:
    """Jacobian, distance, impedance and inverse mass of every base row (mj_makeConstraint)."""
    return ops.rows(m, d)


def reference(m: Model, d: Data) -> Data:
    """Reference acceleration of every row (mj_referenceConstraint), zero where not active."""
    return ops.reference_acceleration(m, d)
