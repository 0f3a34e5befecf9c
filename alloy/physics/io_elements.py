"""Elements of an mjModel by name, and what is said of one that the engine does not honour."""

from __future__ import annotations

from typing import NamedTuple

import mujoco


class Refusal(NamedTuple):
    """One element that is not supported, and what to do about it."""

    kind: str  # "joint", "geom pair", "option", ...
    index: int  # within its kind, -1: none
    text: str  # the message, which begins with the element's name


def name_of(mj: mujoco.MjModel, kind: str, index: int) -> str:
    """Kind and name of an element in quotes, or its number."""
    obj = getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}")
    name = mujoco.mj_id2name(mj, obj, index)
    return f"{kind} {name!r}" if name else f"{kind} {index}"


def spelled(enum: type, value: int) -> str:
    """An enum value as MJCF spells it: mjDYN_MUSCLE is 'muscle'."""
    return enum(value).name.split("_", 1)[1].lower()
