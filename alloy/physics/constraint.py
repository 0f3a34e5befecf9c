"""Constraint rows: Jacobian, impedance, reference acceleration. Base form, see layout.py.

Source: MuJoCo manual, Computation, Constraint model (sections Parameters, Friction cones).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from alloy import math
from alloy.physics.layout import EqualityGroup
from alloy.physics.model import Data, Model

MINIMP, MAXIMP = 1e-4, 0.9999  # mjMINIMP, mjMAXIMP


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
        if eq.kind == "joint":
            parts.append(m.dof_invweight0 @ (eq.move1 + eq.move2).T)
        else:
            parts.append(w[:, eq.obj1, 0] + w[:, eq.obj2, 0])
    if m.efc.nf:
        parts.append(m.dof_invweight0[:, m.efc.friction_dofs])
    if m.efc.nl:
        parts.append(m.dof_invweight0[:, m.derived["limit_dof"]])
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
        mu2 = friction[..., :1] ** 2 / max(m.opt.impratio, math.MINVAL)
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
    if m.efc.nl:
        solref.append(m.jnt_solref[:, limit_joints])
        solimp.append(m.jnt_solimp[:, limit_joints])
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
    margin = [no_margin, m.jnt_margin[:, limit_joints] if m.efc.nl else no_margin[:, :0]]
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


# ------------------------------------------------------------------ position stage


def point_jacobian(m: Model, d: Data, point: Tensor, move: Tensor) -> Tensor:
    """Jacobian (W, n, nv, 3) of the velocity of points (W, n, 3) moved by dofs move (n, nv)."""
    arm = point.unsqueeze(2) - d.subtree_com[:, m.tree.dof_root].unsqueeze(1)
    turn, shift = d.cdof[:, None, :, :3], d.cdof[:, None, :, 3:]
    return (shift + torch.linalg.cross(turn, arm, dim=-1)) * move.unsqueeze(-1)


def _equality_connect(m: Model, d: Data, eq: EqualityGroup) -> tuple[Tensor, Tensor]:
    data = m.eq_data[:, eq.ids]
    p1 = d.xpos[:, eq.obj1] + math.rotate(d.xmat[:, eq.obj1], data[..., 0:3])
    p2 = d.xpos[:, eq.obj2] + math.rotate(d.xmat[:, eq.obj2], data[..., 3:6])
    jac = point_jacobian(m, d, p1, eq.move1) - point_jacobian(m, d, p2, eq.move2)
    return jac.transpose(-1, -2), p1 - p2


def _equality_weld(m: Model, d: Data, eq: EqualityGroup) -> tuple[Tensor, Tensor]:
    """Rows of a weld: translation as a connect, rotation by the vector part of the quaternion.

    Its derivative: half of q1 * relquat * (w1 - w2) * q2^-1, MuJoCo manual, Equality, weld.
    """
    data = m.eq_data[:, eq.ids]
    scale = data[..., 10:11]
    p1 = d.xpos[:, eq.obj1] + math.rotate(d.xmat[:, eq.obj1], data[..., 3:6])
    p2 = d.xpos[:, eq.obj2] + math.rotate(d.xmat[:, eq.obj2], data[..., 0:3])
    lin = point_jacobian(m, d, p1, eq.move1) - point_jacobian(m, d, p2, eq.move2)
    quat = math.quat_mul(d.xquat[:, eq.obj1], data[..., 6:10])
    back = math.quat_conj(d.xquat[:, eq.obj2])
    error = math.quat_mul(back, quat)[..., 1:] * scale
    turn = d.cdof[:, None, :, :3] * (eq.move1 - eq.move2).unsqueeze(-1)  # (W, n, nv, 3)
    turn = torch.cat([torch.zeros_like(turn[..., :1]), turn], -1)
    rate = math.quat_mul(math.quat_mul(back.unsqueeze(2), turn), quat.unsqueeze(2))[..., 1:]
    jac = torch.cat([lin, 0.5 * rate * scale.unsqueeze(2)], -1)
    return jac.transpose(-1, -2), torch.cat([p1 - p2, error], -1)


def _equality_joint(m: Model, d: Data, eq: EqualityGroup) -> tuple[Tensor, Tensor]:
    """One row: q1 - q1_0 = polynomial of (q2 - q2_0); alone, q1 - q1_0 = constant."""
    data = m.eq_data[:, eq.ids]
    moved = d.qpos - m.qpos0
    alone = eq.move2.sum(-1) == 0
    x = torch.where(alone, 0.0, moved[:, eq.obj2])
    c0, c1, c2, c3, c4 = data[..., :5].unbind(-1)
    poly = c0 + x * (c1 + x * (c2 + x * (c3 + x * c4)))
    slope = c1 + x * (2 * c2 + x * (3 * c3 + x * 4 * c4))
    jac = eq.move1 - slope.unsqueeze(-1) * eq.move2
    return jac.unsqueeze(-2), (moved[:, eq.obj1] - poly).unsqueeze(-1)


_EQUALITY = {"connect": _equality_connect, "weld": _equality_weld, "joint": _equality_joint}


def _limits(m: Model, d: Data) -> tuple[Tensor, Tensor]:
    """Jacobian (W, nl, nv) and distance (W, nl) of the joint limits."""
    lay = m.efc
    jacs, dists = [], []
    if m.nlimit:
        q = d.qpos[:, lay.limit_qpos]
        low, high = m.efc_range.unbind(-1)
        below, above = q - low, high - q
        is_low = below < above
        if lay.limit_side is not None:
            is_low = (lay.limit_side > 0) | ((lay.limit_side == 0) & is_low)
        jacs.append(torch.where(is_low.unsqueeze(-1), lay.limit_dofs, lay.limit_dofs_high))
        dists.append(torch.where(is_low, below, above))
    if lay.n_ball_limits:
        q = math.quat_normalize(d.qpos[:, lay.ball_qpos])
        axis, norm = math.normalize(q[..., 1:])
        angle = 2 * torch.atan2(norm.squeeze(-1), q[..., 0])
        wrapped = torch.where(angle > torch.pi, angle - 2 * torch.pi, angle)
        axis = axis * torch.where(wrapped < 0, -1.0, 1.0).unsqueeze(-1)
        jacs.append(-(axis.unsqueeze(-2) @ lay.ball_dofs).squeeze(-2))
        dists.append(m.jnt_range[:, lay.limit_joints[m.nlimit :]].amax(-1) - wrapped.abs())
    return _joined(jacs), _joined(dists)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _contact_jacobian(m: Model, d: Data) -> Tensor:
    """Base Jacobians (W, rows, nv) of the contacts in row order.

    A row is a unit wrench at the contact, about the centre of mass of a moving side's tree, times
    the motion axes of the dofs.
    """
    frame, jac = d.contact_frame, None
    for side in m.efc.sides:
        arm = d.contact_pos - d.subtree_com[:, side.root]
        wrench = torch.cat([torch.linalg.cross(arm.unsqueeze(-2), frame, dim=-1), frame], -1)
        if m.efc.wrenches == 6:
            wrench = torch.cat([wrench, torch.nn.functional.pad(frame, (0, 3))], -2)
        wrench = wrench.flatten(1, 2)
        if m.efc.wrench_row is not None:
            wrench = wrench[:, m.efc.wrench_row]
        part = torch.bmm(wrench, d.cdof.mT) * side.move
        jac = part if jac is None else jac + part
    assert jac is not None
    return jac


def _impedance(m: Model, unit_pos: Tensor) -> Tensor:
    """Impedance of every unit (W, nunit) at distance unit_pos, MuJoCo manual, solimp.

    It rises from dmin as rise * x^power up to mid, and then to dmax as fall * (1 - x)^power.
    """
    dmin, dmax, per_width, mid, rise, fall, power = m.efc_imp.unbind(-1)
    x = (unit_pos.abs() * per_width).clamp(max=1.0)
    rest = 1 - x
    if m.efc.quadratic_imp:
        risen, falling = x * x, rest * rest
    else:
        risen, falling = x**power, rest**power
    return torch.where(x <= mid, torch.addcmul(dmin, rise, risen), dmax - fall * falling)


def rows(m: Model, d: Data) -> Data:
    """Jacobian, distance, impedance and inverse mass of every base row (mj_makeConstraint)."""
    if not m.nefc:
        empty = d.qpos[:, :0]
        none = torch.zeros_like(empty, dtype=torch.bool)
        return replace(
            d, efc_J=empty.unsqueeze(-1).expand(-1, -1, m.nv), efc_pos=empty, efc_kip=empty,
            efc_D=empty, efc_active=none,
        )  # fmt: skip
    lay, zero = m.efc, math.constant_like(0.0, d.qpos)
    jac, unit_pos, always, eq_pos = [], [], [], []
    for eq in lay.equalities:
        j, error = _EQUALITY[eq.kind](m, d, eq)
        jac.append(j.flatten(1, 2))
        unit_pos.append(error.abs().squeeze(-1) if eq.dim == 1 else math.safe_norm(error))
        always.append(d.eq_active[:, eq.ids])
        eq_pos.append(error.flatten(1))
    if lay.nf:
        jac.append(m.derived["friction_rows"].expand(d.qpos.shape[0], -1, -1))
        unit_pos.append(torch.zeros_like(jac[-1][..., 0]))
        always.append(m.dof_frictionloss[:, lay.friction_dofs].expand_as(unit_pos[-1]) > 0)
    if lay.nl:
        j, dist = _limits(m, d)
        jac.append(j)
        unit_pos.append(dist)
    if m.ncon:
        jac.append(_contact_jacobian(m, d))
        unit_pos.append(d.contact_dist)
    pos = _joined(unit_pos) - m.efc_margin
    if always:
        active = torch.cat([*always, pos[:, m.nunit - lay.nl - m.ncon :] < 0], 1)
    else:
        active = pos < 0
    imp = _impedance(m, pos)
    if lay.row_unit is not None:
        pos, active, imp = (x[:, lay.row_unit] for x in (pos, active, imp))
    if lay.row_normal is not None:
        pos = pos * lay.row_normal
    if lay.ne:
        pos = torch.cat([*eq_pos, pos[:, lay.ne :]], 1)
    resist = ((1 - imp) / imp * m.efc_diag).clamp(min=math.MINVAL)
    return replace(
        d,
        efc_J=torch.where(active.unsqueeze(-1), _joined(jac), zero),
        efc_pos=pos,
        efc_kip=m.efc_k * imp * pos,
        efc_D=torch.where(active, 1 / resist, zero),
        efc_active=active,
    )


def _drift_connect(d: Data, body: Tensor, point: Tensor, com: Tensor, cacc: Tensor) -> Tensor:
    """Acceleration (W, n, 3) at qacc = 0 of points fixed to bodies."""
    arm = point - com
    vel, acc = d.cvel[:, body], cacc[:, body]
    turn = vel[..., :3]
    speed = vel[..., 3:] + math.cross(turn, arm)
    return acc[..., 3:] + math.cross(acc[..., :3], arm) + math.cross(turn, speed)


def _equality_drift(m: Model, d: Data, eq: EqualityGroup, cacc: Tensor) -> Tensor:
    """Jdot * qvel of connect and weld rows, (W, n, dim): their acceleration at qacc = 0."""
    data = m.eq_data[:, eq.ids]
    anchors = (data[..., 0:3], data[..., 3:6])
    local = anchors if eq.kind == "connect" else anchors[::-1]
    drift = []
    for body, anchor in zip((eq.obj1, eq.obj2), local, strict=True):
        point = d.xpos[:, body] + math.rotate(d.xmat[:, body], anchor)
        com = d.subtree_com[:, m.tree.body_root[body]]
        drift.append(_drift_connect(d, body, point, com, cacc))
    lin = drift[0] - drift[1]
    if eq.kind == "connect":
        return lin

    def pure(x: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(x[..., :1]), x], -1)

    w1, w2 = (pure(d.cvel[:, body, :3]) for body in (eq.obj1, eq.obj2))
    alpha = pure(cacc[:, eq.obj1, :3] - cacc[:, eq.obj2, :3])
    w = w1 - w2
    # derivative of back * w * quat, with back' = -1/2 back w2 and quat' = 1/2 w1 quat
    inner = alpha + 0.5 * (math.quat_mul(w, w1) - math.quat_mul(w2, w))
    quat = math.quat_mul(d.xquat[:, eq.obj1], data[..., 6:10])
    back = math.quat_conj(d.xquat[:, eq.obj2])
    rot = 0.5 * data[..., 10:11] * math.quat_mul(math.quat_mul(back, inner), quat)[..., 1:]
    return torch.cat([lin, rot], -1)


def reference(m: Model, d: Data) -> Data:
    """Reference acceleration of every row (mj_referenceConstraint), zero where not active."""
    if not m.nefc:
        return replace(d, efc_aref=d.efc_D)
    vel = torch.bmm(d.efc_J, d.qvel.unsqueeze(-1)).squeeze(-1)
    aref = -torch.addcmul(d.efc_kip, m.efc_b, vel)
    if any(eq.kind != "joint" for eq in m.efc.equalities):
        cacc = m.tree.moves @ (d.cdof_dot * d.qvel.unsqueeze(-1))
        drifts = [
            torch.zeros_like(aref[:, : eq.n])
            if eq.kind == "joint"
            else _equality_drift(m, d, eq, cacc).flatten(1)
            for eq in m.efc.equalities
        ]
        aref = torch.cat([aref[:, : m.efc.ne] - torch.cat(drifts, 1), aref[:, m.efc.ne :]], 1)
    return replace(d, efc_aref=torch.where(d.efc_active, aref, math.constant_like(0.0, aref)))
