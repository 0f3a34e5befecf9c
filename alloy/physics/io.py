"""From mjModel and mjData to tensors. What the engine does not honour is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import fields, replace
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from alloy import math
from alloy.physics import (
    constraint,
    io_layout,
    io_orientations,
    io_plastic,
    io_refuse,
    io_selection,
    io_tables,
)
from alloy.physics.layout import ConstraintLayout, FreeBodies
from alloy.physics.model import Data, Model, Option, make_data, tensor_fields
from alloy.physics.tree import BALL, FREE, make_tree

_INTEGRATOR = {0: "euler", 1: "rk4", 2: "implicit", 3: "implicitfast"}
_CONE = {0: "pyramidal", 1: "elliptic"}
_MATRIX_OF = {"body_imat": "body_iquat", "geom_mat": "geom_quat", "site_mat": "site_quat"}
_BY_FORCE = ("actuator_acc0", "actuator_lengthrange", "actuator_gear")
_TOPOLOGY = (
    "body_parentid", "body_rootid", "body_mocapid", "body_jntnum", "body_jntadr", "body_dofnum",
    "body_dofadr", "body_quat", "jnt_type", "jnt_qposadr", "jnt_dofadr", "jnt_bodyid", "jnt_pos",
    "dof_bodyid", "dof_jntid", "body_subtreemass",
)  # fmt: skip


def make_put(dtype: torch.dtype, device: torch.device | str) -> Callable[..., Tensor]:
    """A function that moves arrays to the device: floats to dtype, integers to int64, bools."""

    def put(array: Any, dtype: torch.dtype | None = dtype) -> Tensor:
        array = np.asarray(array)
        kind = {"f": dtype, "b": torch.bool}.get(array.dtype.kind, torch.int64)
        return torch.as_tensor(np.ascontiguousarray(array), dtype=kind, device=device)

    return put


def _option(mj: mujoco.MjModel) -> Option:
    opt = mj.opt
    flags = {
        name.removeprefix("mjDSBL_").lower(): int(flag)
        for name, flag in mujoco.mjtDisableBit.__members__.items()
        if name.startswith("mjDSBL_")
    }
    return Option(
        timestep=float(opt.timestep),
        integrator=_INTEGRATOR[int(opt.integrator)],
        cone=_CONE[int(opt.cone)],
        impratio=float(opt.impratio),
        tolerance=float(opt.tolerance),
        ls_tolerance=float(opt.ls_tolerance),
        iterations=int(opt.iterations),
        ls_iterations=int(opt.ls_iterations),
        noslip_tolerance=float(opt.noslip_tolerance),
        noslip_iterations=int(opt.noslip_iterations),
        density=float(opt.density),
        viscosity=float(opt.viscosity),
        disable=frozenset(name for name, flag in flags.items() if opt.disableflags & flag),
    )


def _integrate_tables(mj: mujoco.MjModel, put: Callable[..., Tensor]) -> tuple[Tensor | None, ...]:
    """Which parts of qpos move linearly and which are quaternions; see ops.integrate_pos."""
    lin_q, lin_v, quat_q, quat_v = [], [], [], []
    for j in range(mj.njnt):
        kind, q, v = mj.jnt_type[j], mj.jnt_qposadr[j], mj.jnt_dofadr[j]
        if kind == FREE:
            lin_q += range(q, q + 3)
            lin_v += range(v, v + 3)
            q, v = q + 3, v + 3
        if kind in (FREE, BALL):
            quat_q.append(np.arange(q, q + 4))
            quat_v.append(np.arange(v, v + 3))
        else:
            lin_q.append(q)
            lin_v.append(v)
    if not quat_q:
        return (None,) * 5
    order = np.argsort(np.concatenate([np.array(lin_q, int), *quat_q]))
    linear = (put(np.array(lin_q)), put(np.array(lin_v))) if lin_q else (None, None)
    return (*linear, put(np.array(quat_q)), put(np.array(quat_v)), put(order))


def _free_bodies(mj: mujoco.MjModel, put: Callable[..., Tensor]) -> FreeBodies | None:
    first = [
        int(mj.jnt_dofadr[j])
        for j in np.flatnonzero(mj.jnt_type == FREE)
        if mj.tree_dofnum[mj.dof_treeid[mj.jnt_dofadr[j]]] == 6
    ]
    if not first:
        return None
    place = np.array([np.eye(mj.nv)[dof : dof + 6] for dof in first])
    return FreeBodies(put(mj.dof_bodyid[first]), put(place))


def _start(mj: mujoco.MjModel, put: Callable[..., Tensor]) -> dict[str, Tensor]:
    mocap = np.flatnonzero(mj.body_mocapid >= 0)
    mocap = mocap[np.argsort(mj.body_mocapid[mocap])]
    return {
        "mocap_pos": put(mj.body_pos[mocap])[None],
        "mocap_quat": put(mj.body_quat[mocap])[None],
        "eq_active": put(mj.eq_active0.astype(bool))[None],
        "ctrl": put(io_orientations.start_ctrl(mj))[None],
        "plastic": put(io_plastic.plastic_start(mj))[None],
    }


def _with_actuators_in_targets(mj: mujoco.MjModel) -> mujoco.MjModel:
    """The model with damping and armature of actuators given to their joints and tendons.

    Times gear squared, whatever the power of the velocity. MuJoCo adds them there, also while
    actuation is disabled; its inverse weights know of both.
    """
    given = mj.actuator_damping, mj.actuator_armature, mj.actuator_dampingpoly.any(1)
    some = np.any(given, 0)
    if not some.any():
        return mj
    mj = copy(mj)
    on_tendon = mj.actuator_trntype == mujoco.mjtTrn.mjTRN_TENDON
    for which, target, adr in (
        (some & ~on_tendon, "dof", mj.jnt_dofadr), (some & on_tendon, "tendon", None),
    ):  # fmt: skip
        ids = mj.actuator_trnid[which, 0]
        ids = ids if adr is None else adr[ids]
        square = mj.actuator_gear[mj.actuator_outadr[which], :1] ** 2
        for name in ("damping", "armature", "dampingpoly"):
            value = getattr(mj, f"actuator_{name}")[which]
            field = getattr(mj, f"{target}_{name}")
            np.add.at(field, ids, square.reshape(-1, *(1,) * (value.ndim - 1)) * value)
    return mj


def _with_equalities_on_bodies(mj: mujoco.MjModel) -> mujoco.MjModel:
    """The model with connect and weld constraints between sites as constraints of their bodies.

    The frames of a weld become one relative orientation, which turns its three rows of rotation by
    the second site's: they have one weight, so the forces are the same.
    """
    between = (mj.eq_objtype == mujoco.mjtObj.mjOBJ_SITE) & np.isin(mj.eq_type, (0, 1))
    if not between.any():
        return mj
    mj = copy(mj)
    for k in np.flatnonzero(between):
        one, two = int(mj.eq_obj1id[k]), int(mj.eq_obj2id[k])
        anchors = [mj.site_pos[one], mj.site_pos[two]]
        if mj.eq_type[k] == mujoco.mjtEq.mjEQ_WELD:
            back, relative = np.zeros(4), np.zeros(4)
            mujoco.mju_negQuat(back, mj.site_quat[two])
            mujoco.mju_mulQuat(relative, mj.site_quat[one], back)
            mj.eq_data[k, 6:10] = relative
            anchors.reverse()
        mj.eq_data[k, :6] = np.concatenate(anchors)
        mj.eq_obj1id[k], mj.eq_obj2id[k] = mj.site_bodyid[one], mj.site_bodyid[two]
        mj.eq_objtype[k] = mujoco.mjtObj.mjOBJ_BODY
    return mj


def put_model(
    mj: mujoco.MjModel,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    max_contacts: int | None = None,
) -> Model:
    """Convert a compiled MuJoCo model.

    Args:
        mj: the compiled model; it is not kept.
        dtype: float32 or float64.
        device: where the tensors live.
        max_contacts: how many contacts of each condim get constraint rows, the nearest ones of each
            world; None for all.

    Raises:
        NotImplementedError: the model uses features that are not supported; the message names
            every one of them, element by element.
    """
    io_refuse.check(mj)
    mj = _with_equalities_on_bodies(_with_actuators_in_targets(mj))
    put = make_put(dtype, device)
    topo = {name: np.array(getattr(mj, name)) for name in _TOPOLOGY}
    tree = make_tree(topo, mj.nv, put)
    moves = tree.moves.cpu().double().numpy()
    contacts = io_layout.contacts(mj, put, moves)
    layout, limit_dof = io_layout.rows(mj, put, moves, contacts)
    derived = _derived(mj, put, contacts, layout) | {"limit_dof": limit_dof}
    chosen = io_selection.selection(mj, put, moves, contacts, layout, max_contacts)
    # the ladder that eager steps on the CPU pick from, see physics/occupancy.py
    climbs = chosen is None and torch.device(device).type == "cpu"
    derived["ladder"] = io_selection.ladder(mj, put, moves, contacts, layout) if climbs else ()
    delay, history = derived["actuation"].delay, derived["sensor"].history
    sizes = (
        "nq nv nu nactuator nout na nbody njnt ngeom nsite nmocap ntendon neq nsensor nsensordata "
        "nplastic"
    )
    m = Model(
        **{name: int(getattr(mj, name)) for name in sizes.split()},
        nhistory=0 if delay is None else len(delay.shift),
        nsensorhistory=0 if history is None else len(history.start),
        ncon=len(contacts.dim),
        nefc=layout.n_scalar + sum(c.n * c.dim for c in layout.cones),
        nunit=layout.n_unit,
        opt=_option(mj),
        tree=tree,
        pairs=contacts.groups,
        efc=layout,
        meaninertia=float(mj.stat.meaninertia),
        selection=chosen,
        derived=derived,
        **_values(mj, put, contacts),
    )
    return constraint.constants(m)


def _derived(
    mj: mujoco.MjModel,
    put: Callable[..., Tensor],
    contacts: io_layout.Contacts,
    layout: ConstraintLayout,
) -> dict[str, Any]:
    """The static tables of the stages."""
    derived: dict[str, Any] = {
        "start": _start(mj, put),
        "integrate": _integrate_tables(mj, put),
        "geom_bodyid": put(mj.geom_bodyid),
        "site_bodyid": put(mj.site_bodyid),
        "euler_damping": bool((mj.dof_damping > 0).any() or mj.dof_dampingpoly.any())
        and not mj.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_EULERDAMP)
        and not mj.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_DAMPER),
        "contact": contacts.tables,
        "pair_margin": {
            g.kind: put(margin)[None]
            for g, margin in zip(contacts.groups, contacts.margins, strict=True)
        },
        "free_bodies": _free_bodies(mj, put),
        **io_tables.all_tables(mj, put, layout),
    }
    if layout.nf:
        derived["friction_rows"] = put(np.eye(mj.nv)[mj.dof_frictionloss > 0])
    history = derived["sensor"].history
    if history is not None:
        derived["start"]["sensor_history"] = history.start[None]
    return derived


def _values(
    mj: mujoco.MjModel, put: Callable[..., Tensor], contacts: io_layout.Contacts
) -> dict[str, Tensor]:
    """The tensor fields of the model, all but those that `constraint.constants` makes."""
    values: dict[str, Tensor] = {
        "gravity": put(mj.opt.gravity)[None],
        "wind": put(mj.opt.wind)[None],
    }
    for f in tensor_fields(Model):
        if f.name in values or f.name.startswith(("con_", "efc_")) or f.name in _MATRIX_OF:
            continue
        value = np.array(getattr(mj, f.name))
        if f.name in _BY_FORCE:  # of an actuator with several the first, which nothing reads
            value = value[mj.actuator_outadr]
        if f.name == "eq_data":
            value = value[:, :11]
        values[f.name] = put(value.astype(float))[None]
    values |= {name: put(value)[None] for name, value in contacts.params.items()}
    values |= {name: math.quat_to_mat(values[quat]) for name, quat in _MATRIX_OF.items()}
    return values


def put_data(m: Model, mj: mujoco.MjModel, mjd: mujoco.MjData) -> Data:
    """State, inputs and those derived fields that have the same form in mjData; one world."""
    d = make_data(m, 1)
    like = m.qpos0
    values: dict[str, Tensor] = {}
    for f in fields(Data):
        source = getattr(mjd, f.name, None)
        if f.name.startswith("efc_") or not isinstance(source, np.ndarray):
            continue
        if f.name in ("M", "ten_J", "contact_dist", "contact_pos", "contact_frame"):
            continue
        array = np.array(source)
        shape = f.metadata["shape"][1:]
        if shape[-2:] == (3, 3):
            array = array.reshape(-1, 3, 3)
        old = getattr(d, f.name)
        dtype = old.dtype if old is not None else like.dtype
        values[f.name] = torch.as_tensor(array, dtype=dtype, device=like.device)[None]
    dense = np.zeros((mj.nv, mj.nv))
    mujoco.mj_fullM(mj, mjd, dense)
    values["M"] = torch.as_tensor(dense, dtype=like.dtype, device=like.device)[None]
    return replace(d, **values)
