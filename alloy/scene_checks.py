"""Checks of what the verbs of a scene are given; each returns the value as MuJoCo wants it."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from operator import index

import numpy as np

Vector = Sequence[float] | np.ndarray

UNIT = 1e-3  # how far from 1 the length of a quaternion may be


def suggestion(name: str, known: Iterable[str]) -> str:
    """How a message about a name that is not known goes on: near matches, or just a full stop."""
    near = difflib.get_close_matches(name, [*known], n=3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else "."


def positive(what: str, value: float) -> float:
    """A finite number above zero."""
    number = numbers(what, value, (1,))[0]
    if number <= 0:
        raise ValueError(f"{what} is {value}; it must be above 0")
    return float(number)


def whole(what: str, value: int) -> int:
    """A whole number of at least 1, of any integer type."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or (number := index(value)) < 1:
        raise ValueError(f"{what} must be a whole number of at least 1, not {value!r}")
    return number


def substeps(dt: float, physics_dt: float) -> int:
    """Physics steps per control step; ValueError unless it is a whole number."""
    count = round(dt / physics_dt)
    if count < 1 or abs(count * physics_dt - dt) > 1e-9 * dt:
        below = f" dt={max(count, 1) * physics_dt:.6g} or physics_dt={dt / max(count, 1):.6g} fit."
        raise ValueError(
            f"dt={dt} is not a whole number of physics steps of physics_dt={physics_dt}:"
            f" {dt / physics_dt:.6g} of them.{below}"
        )
    return count


def numbers(what: str, value: float | Vector, lengths: Iterable[int]) -> np.ndarray:
    """A vector of finite numbers of one of the given lengths; a single number has length 1."""
    lengths = tuple(lengths)
    try:
        vector = np.asarray(value, float)
    except (TypeError, ValueError):
        raise ValueError(f"{what} is {value!r}; it must be numbers") from None
    if vector.ndim > 1 or vector.size not in lengths:
        allowed = " or ".join(map(str, lengths))
        shape = vector.shape if vector.ndim > 1 else vector.size
        raise ValueError(f"{what} is {value!r}: {shape} numbers; it must be {allowed}")
    if not np.isfinite(vector).all():
        raise ValueError(f"{what} is {value!r}; it must be finite")
    return vector.reshape(-1)


def sizes(what: str, value: float | Vector, length: int) -> np.ndarray:
    """Lengths above zero."""
    vector = numbers(what, value, (length,))
    if (vector <= 0).any():
        raise ValueError(f"{what} is {value!r}; every length must be above 0")
    return vector


def quaternion(what: str, value: Vector) -> np.ndarray:
    """A unit quaternion (w, x, y, z), normalised from at most 0.1 % off."""
    vector = numbers(what, value, (4,))
    norm = float(np.linalg.norm(vector))
    if abs(norm - 1) > UNIT:
        unit = f"; normalised it is {tuple((vector / norm).round(6).tolist())}" if norm > 0 else ""
        raise ValueError(
            f"{what} is {value!r}, of length {norm:.6g}; it must be a unit quaternion"
            f" (w, x, y, z){unit}"
        )
    return vector / norm


def friction(what: str, value: float | Vector) -> np.ndarray:
    """Sliding friction, or sliding, torsional (and rolling) friction; the rest are MuJoCo's."""
    vector = numbers(what, value, (1, 2, 3))
    if (vector < 0).any():
        raise ValueError(f"{what} is {value!r}; friction must not be negative")
    return np.concatenate([vector, [1.0, 0.005, 0.0001][vector.size :]])


def colour(what: str, value: Vector) -> np.ndarray:
    """Red, green, blue (and opacity) between 0 and 1."""
    vector = numbers(what, value, (3, 4))
    if (vector < 0).any() or (vector > 1).any():
        raise ValueError(f"{what} is {value!r}; each must be between 0 and 1")
    return np.concatenate([vector, [1.0][vector.size - 3 :]])


def weight(what: str, mass: float | None, density: float | None) -> dict[str, float]:
    """Keyword of a geom that fixes its mass; empty for MuJoCo's density of 1000 kg/m^3."""
    if mass is not None and density is not None:
        raise ValueError(f"{what} has both mass={mass} and density={density}; give one of them")
    if mass is not None:
        return {"mass": positive(f"{what}: mass", mass)}
    return {} if density is None else {"density": positive(f"{what}: density", density)}


def new_name(kind: str, name: str, taken: Iterable[str]) -> str:
    """A name that nothing in the scene has yet, neither as a name nor as a prefix."""
    if not isinstance(name, str) or not name.strip() or "/" in name or name == "world":
        raise ValueError(
            f"{kind} name {name!r}: it must be a text that is not empty, without '/' (which parts"
            " a robot's name from the names inside it), and not 'world'"
        )
    entities = sorted({t.split("/")[0] for t in taken if t and t != "world"})
    if name in entities:
        raise ValueError(
            f"{kind} name {name!r} is taken; the scene has {', '.join(map(repr, entities))}."
            " Choose another"
        )
    return name


def camera_axes(what: str, pos: np.ndarray, lookat: Vector) -> np.ndarray:
    """The camera's x and y axes, upright, looking from one point at another; (6,)."""
    view = numbers(f"{what}: lookat", lookat, (3,)) - pos
    if not np.linalg.norm(view) > 0:
        raise ValueError(f"{what}: lookat {lookat!r} is where the camera is")
    back = -view / np.linalg.norm(view)
    side = np.cross((0.0, 0.0, 1.0), back)
    if math.hypot(*side) < 1e-6:  # straight up or down: y of the picture is y of the world
        side = np.array((1.0, 0.0, 0.0))
    side /= np.linalg.norm(side)
    return np.concatenate([side, np.cross(back, side)])
