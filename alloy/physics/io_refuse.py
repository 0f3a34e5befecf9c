"""What the engine does not honour, found in an mjModel and named: nothing is dropped silently."""

from __future__ import annotations

import mujoco
import numpy as np

from alloy import ops
from alloy.physics import io_layout, io_tables

_GEOM = {int(v): k.removeprefix("mjGEOM_").lower() for k, v in mujoco.mjtGeom.__members__.items()}
# enable flags that change nothing in the equations that are solved
_HARMLESS = {"ENERGY", "FWDINV"}


def name_of(mj: mujoco.MjModel, kind: str, index: int) -> str:
    """Name of an element in quotes, or its number."""
    obj = getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}")
    name = mujoco.mj_id2name(mj, obj, index)
    return f"{kind} {name!r}" if name else f"{kind} {index}"


def _options(mj: mujoco.MjModel) -> list[str]:
    out = []
    integrator = mujoco.mjtIntegrator(mj.opt.integrator).name.removeprefix("mjINT_").lower()
    if integrator not in ("euler", "rk4", "implicitfast"):
        out.append(f"option integrator={integrator!r}: use Euler, RK4 or implicitfast")
    if mj.opt.noslip_iterations:
        out.append(
            f"option noslip_iterations={mj.opt.noslip_iterations}: "
            "set it to 0, or raise impratio against slip"
        )
    for name, bit in mujoco.mjtEnableBit.__members__.items():
        flag = name.removeprefix("mjENBL_")
        if name.startswith("mjENBL_") and mj.opt.enableflags & int(bit) and flag not in _HARMLESS:
            out.append(f"option flag {flag.lower()}='enable': leave it out")
    return out


def _elements(mj: mujoco.MjModel) -> list[str]:
    out = []
    for count, what in (
        (mj.nflex, "<flex> (deformables)"),
        (mj.nplugin, "<plugin>"),
        (getattr(mj, "nplastic", 0), "springyield (plastic springs)"),
        (mj.nhistory, "delay (history buffers)"),
    ):
        if count:
            out.append(f"{what}: {count} in the model, remove them")
    for j in range(mj.njnt):
        for attribute in ("jnt_stiffnesspoly", "jnt_springyield"):
            value = np.atleast_1d(getattr(mj, attribute, np.zeros(mj.njnt))[j])
            if value.any():
                what = attribute.removeprefix("jnt_")
                out.append(f"{name_of(mj, 'joint', j)} {what}={value}: use linear stiffness only")
    for dof in np.flatnonzero(mj.dof_dampingpoly.any(1)):
        joint = name_of(mj, "joint", int(mj.dof_jntid[dof]))
        out.append(f"{joint} dampingpoly={mj.dof_dampingpoly[dof]}: use linear damping only")
    for g in range(mj.ngeom):
        for attribute in ("geom_surfacevel", "geom_adhesion"):
            if np.any(getattr(mj, attribute)[g]):
                what = attribute.removeprefix("geom_")
                out.append(f"{name_of(mj, 'geom', g)} {what}: remove it")
    for k in np.flatnonzero(mj.pair_adhesion):
        out.append(f"{name_of(mj, 'pair', int(k))} adhesion: remove it")
    return out


def _equalities(mj: mujoco.MjModel) -> list[str]:
    out = []
    for k in range(mj.neq):
        kind = mujoco.mjtEq(mj.eq_type[k]).name.removeprefix("mjEQ_").lower()
        name = name_of(mj, "equality", k)
        if kind not in ("connect", "weld", "joint"):
            out.append(f"{name} of type {kind!r}: use connect, weld or joint")
        elif kind != "joint" and mj.eq_objtype[k] != mujoco.mjtObj.mjOBJ_BODY:
            out.append(f"{name} between sites: name bodies and an anchor instead")
    return out


def _pairs(mj: mujoco.MjModel) -> list[str]:
    out = []
    for pair in io_layout.enabled_pairs(mj):
        kind = (int(mj.geom_type[pair.geom1]), int(mj.geom_type[pair.geom2]))
        if kind not in ops.COLLIDER_KINDS:
            one, two = name_of(mj, "geom", pair.geom1), name_of(mj, "geom", pair.geom2)
            out.append(
                f"contact of {one} with {two}: {_GEOM[kind[0]]}-{_GEOM[kind[1]]} collision; "
                "use other shapes, or keep the two apart by contype/conaffinity or <exclude>"
            )
    return out


def unsupported(mj: mujoco.MjModel) -> list[str]:
    """Every feature of the model that is not supported, each with what to do about it."""
    return [
        *_options(mj), *_elements(mj), *_equalities(mj), *_pairs(mj), *io_tables.refusals(mj),
    ]  # fmt: skip


def check(mj: mujoco.MjModel) -> None:
    """Refuse a model that uses what is not supported.

    Raises:
        NotImplementedError: naming every such element and attribute.
    """
    found = unsupported(mj)
    if found:
        shown = "\n  - ".join(found[:20])
        more = f"\n  ... and {len(found) - 20} more" if len(found) > 20 else ""
        raise NotImplementedError(f"the model uses what is not supported yet:\n  - {shown}{more}")
