"""What becomes of every element of an mjModel: honoured, refused or ignored, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import mujoco

from alloy.physics import io_layout, io_refuse
from alloy.physics.io_elements import name_of, spelled

STATUSES = ("refused", "ignored", "honoured")


class Element(NamedTuple):
    """One element of a model, and what becomes of it."""

    kind: str  # "option", "joint", "geom pair", "equality", "tendon", "actuator", "sensor", ...
    name: str  # as messages name it: "joint 'knee'", "sensor 3"
    status: str  # one of STATUSES
    reason: str  # what was found, and what to do about it where it is refused


def elements(mj: mujoco.MjModel) -> list[Element]:
    """Every element whose kind some model may have refused, and all that has no part in physics."""
    refused: dict[tuple[str, int], list[str]] = defaultdict(list)
    for refusal in io_refuse.unsupported(mj):
        refused[refusal.kind, refusal.index].append(refusal.text)
    out = []
    for key in (("option", -1), ("model", -1)):
        for text in refused.pop(key, ()):
            name, _, reason = text.partition(": ")
            out.append(Element(key[0], name, "refused", reason))
    for kind, index, name, what in _honoured(mj):
        texts = refused.pop((kind, index), None)
        if texts is None:
            out.append(Element(kind, name, "honoured", what))
        for text in texts or ():
            out.append(Element(kind, name, "refused", text.removeprefix(name).lstrip(" :")))
    for (kind, index), texts in refused.items():  # others have no entries of their own
        name = name_of(mj, kind, index)
        reasons = (text.removeprefix(name).lstrip(" :") for text in texts)
        out += [Element(kind, name, "refused", reason) for reason in reasons]
    return [*out, *(Element(kind, kind, "ignored", why) for kind, why in _ignored(mj))]


def _honoured(mj: mujoco.MjModel) -> Iterator[tuple[str, int, str, str]]:
    """Kind, index, name and description of the elements, as if all of them were honoured."""
    for name, value in _options(mj).items():
        yield "option", -2, f"option {name}", value
    for kind, count, enum, field in (
        ("joint", mj.njnt, mujoco.mjtJoint, mj.jnt_type),
        ("equality", mj.neq, mujoco.mjtEq, mj.eq_type),
        ("tendon", mj.ntendon, None, None),
        ("actuator", mj.nactuator, mujoco.mjtTrn, mj.actuator_trntype),
        ("sensor", mj.nsensor, mujoco.mjtSensor, mj.sensor_type),
    ):
        for i in range(count):
            what = _tendon_kind(mj, i) if enum is None else spelled(enum, int(field[i]))
            yield kind, i, name_of(mj, kind, i), f"on {what}" if kind == "actuator" else what
    for k, pair in enumerate(io_layout.enabled_pairs(mj)):
        one, two = name_of(mj, "geom", pair.geom1), name_of(mj, "geom", pair.geom2)
        shapes = (spelled(mujoco.mjtGeom, int(mj.geom_type[g])) for g in (pair.geom1, pair.geom2))
        yield "geom pair", k, f"contact of {one} with {two}", "-".join(shapes)


def _tendon_kind(mj: mujoco.MjModel, tendon: int) -> str:
    first = mj.wrap_type[mj.tendon_adr[tendon]]
    return "fixed" if first == mujoco.mjtWrap.mjWRAP_JOINT else "spatial"


def _options(mj: mujoco.MjModel) -> dict[str, str]:
    """What was chosen where Alloy has a choice, or takes part in another way."""
    opt = mj.opt
    chosen = {
        "timestep": f"{opt.timestep:g} s",
        "integrator": spelled(mujoco.mjtIntegrator, opt.integrator),
        "cone": spelled(mujoco.mjtCone, opt.cone),
    }
    if opt.noslip_iterations:
        chosen["noslip_iterations"] = f"{opt.noslip_iterations}, which end together for all islands"
    return chosen


def _ignored(mj: mujoco.MjModel) -> Iterator[tuple[str, str]]:
    """What has no part in the physics, or none here, and why that is right."""
    solver = spelled(mujoco.mjtSolver, mj.opt.solver)
    if solver != "newton":
        yield (
            "option solver",
            f"{solver!r}: Newton's method takes its place and finds the minimum that {solver} "
            "seeks; iterations and tolerance are its own",
        )
    if mj.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP:
        yield (
            "option flag sleep",
            "every tree of every world is computed at every step; what MuJoCo would put to sleep "
            "moves on, slower than sleep_tolerance",
        )
    counts: dict[str, tuple[Any, str]] = {
        "user data": (
            mj.nuserdata or any(getattr(mj, f"nuser_{k}") for k in _USER),
            "MuJoCo does nothing with it either",
        ),
        "custom": (mj.nnumeric or mj.ntext or mj.ntuple, "numbers, texts and tuples for programs"),
        "sensor noise": (
            (mj.sensor_noise > 0).any(),
            "MuJoCo stores it and never applies it; in an observation "
            "alloy.envs.observations.sensor(name, noise=1.0) does",
        ),
        "camera": (mj.ncam, "only pictures and the sensors that name it need it"),
        "light": (mj.nlight, "only pictures need it"),
        "skin": (mj.nskin, "only pictures need it"),
        "material": (mj.nmat, "only pictures need it"),
        "texture": (mj.ntex, "only pictures need it"),
    }
    yield from ((name, why) for name, (there, why) in counts.items() if there)


_USER = ("body", "jnt", "geom", "site", "cam", "tendon", "actuator", "sensor")
