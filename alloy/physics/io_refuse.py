"""What the engine does not honour, found in an mjModel and named: nothing is dropped silently."""

from __future__ import annotations

import mujoco
import numpy as np

from alloy import ops
from alloy.physics import io_layout, io_meshes, io_tables
from alloy.physics.io_elements import Refusal, name_of, spelled

_GEOM = {int(v): k.removeprefix("mjGEOM_").lower() for k, v in mujoco.mjtGeom.__members__.items()}
# pairs that MuJoCo's convex solver collides, and those of them that have several contacts
_CONVEX = {
    ("sphere", "ellipsoid"), ("capsule", "ellipsoid"), ("ellipsoid", "box"),
    ("capsule", "cylinder"),
    *((_GEOM[a], _GEOM[b]) for a, b in ops.CONVEX_KINDS),
}  # fmt: skip
_MULTIPLE = {kind for kind in _CONVEX if not {"sphere", "ellipsoid"} & set(kind)}
# enable flags that change nothing in the equations that are solved, or are honoured
_KNOWN = {"ENERGY", "FWDINV", "OVERRIDE", "SLEEP"}


def _options(mj: mujoco.MjModel) -> list[Refusal]:
    out = []
    for name, bit in mujoco.mjtEnableBit.__members__.items():
        flag = name.removeprefix("mjENBL_")
        if name.startswith("mjENBL_") and mj.opt.enableflags & int(bit) and flag not in _KNOWN:
            out.append(f"option flag {flag.lower()}='enable': leave it out")
    return [Refusal("option", -1, text) for text in out]


def _asleep(mj: mujoco.MjModel) -> list[Refusal]:
    """Trees that begin asleep stay where they are until something wakes them: here they fall."""
    if not mj.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP:
        return []
    out = []
    for t in np.flatnonzero(mj.tree_sleep_policy == mujoco.mjtSleepPolicy.mjSLEEP_INIT).tolist():
        body = int(mj.tree_bodyadr[t])
        what = "sleep='init': nothing sleeps here; use another policy, or leave the flag out"
        out.append(Refusal("body", body, f"{name_of(mj, 'body', body)} {what}"))
    return out


def _elements(mj: mujoco.MjModel) -> list[Refusal]:
    out = []
    for count, what in (
        (mj.nflex, "<flex> (deformables)"),
        (mj.nplugin, "<plugin>"),
    ):
        if count:
            out.append(Refusal("model", -1, f"{what}: {count} in the model, remove them"))
    for g in range(mj.ngeom):
        for attribute in ("geom_surfacevel", "geom_adhesion"):
            if np.any(getattr(mj, attribute)[g]):
                what = attribute.removeprefix("geom_")
                out.append(Refusal("geom", g, f"{name_of(mj, 'geom', g)} {what}: remove it"))
    for k in np.flatnonzero(mj.pair_adhesion).tolist():
        out.append(Refusal("pair", k, f"{name_of(mj, 'pair', k)} adhesion: remove it"))
    return out


def _equalities(mj: mujoco.MjModel) -> list[Refusal]:
    out = []
    for k in range(mj.neq):
        kind = spelled(mujoco.mjtEq, mj.eq_type[k])
        name = name_of(mj, "equality", k)
        if kind not in ("connect", "weld", "joint", "tendon"):
            text = f"{name} of type {kind!r}: use connect, weld, joint or tendon"
            out.append(Refusal("equality", k, text))
    return out


def _pairs(mj: mujoco.MjModel) -> list[Refusal]:
    out = []
    off = [
        (flag, kinds)
        for flag, kinds in (("nativeccd", _CONVEX), ("multiccd", _MULTIPLE))
        if mj.opt.disableflags & int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag.upper()}", 0))
    ]
    for k, pair in enumerate(io_layout.enabled_pairs(mj)):
        kind = (int(mj.geom_type[pair.geom1]), int(mj.geom_type[pair.geom2]))
        names = (_GEOM[kind[0]], _GEOM[kind[1]])
        one, two = name_of(mj, "geom", pair.geom1), name_of(mj, "geom", pair.geom2)
        text = f"contact of {one} with {two}: {'-'.join(names)} collision"
        mend = "use other shapes, or keep the two apart by contype/conaffinity or <exclude>"
        if kind not in ops.COLLIDER_KINDS:
            out.append(Refusal("geom pair", k, f"{text}; {mend}"))
        for geom in (pair.geom1, pair.geom2):
            if _GEOM[int(mj.geom_type[geom])] == "mesh" and not io_meshes.has_hull(mj, geom):
                hull = f"{name_of(mj, 'geom', geom)}: MuJoCo has made no hull of its mesh"
                out.append(Refusal("geom pair", k, f"{text}: {hull}; {mend}"))
        if names[0] == "hfield":
            rows, columns = io_meshes.window(mj, pair.geom1, pair.geom2, _margin(mj, pair))
            if 2 * rows * columns > io_meshes.MOST_PRISMS:
                out.append(
                    Refusal(
                        "geom pair", k,
                        f"{text}: up to {2 * rows * columns} prisms are under {two}, at most "
                        f"{io_meshes.MOST_PRISMS}: take a coarser field or a smaller shape",
                    )
                )  # fmt: skip
        for flag, kinds in off:
            if names in kinds:
                without = f"{text} with flag {flag}='disable': leave it out"
                out.append(Refusal("geom pair", k, without))
    return out


def _margin(mj: mujoco.MjModel, pair: io_layout.Pair) -> float:
    """Distance (m) below which a pair's contacts are looked for."""
    params = io_layout.pair_params(mj, pair)
    return float(params["margin"] + params["gap"])


def unsupported(mj: mujoco.MjModel) -> list[Refusal]:
    """Every feature of the model that is not supported, each with what to do about it."""
    return [
        *_options(mj), *_asleep(mj), *_elements(mj), *_equalities(mj), *_pairs(mj),
        *io_tables.refusals(mj),
    ]  # fmt: skip


def check(mj: mujoco.MjModel) -> None:
    """Refuse a model that uses what is not supported.

    Raises:
        NotImplementedError: naming every such element and attribute.
    """
    found = unsupported(mj)
    if found:
        shown = "\n  - ".join(refusal.text for refusal in found[:20])
        more = f"\n  ... and {len(found) - 20} more" if len(found) > 20 else ""
        raise NotImplementedError(f"the model uses what is not supported yet:\n  - {shown}{more}")
