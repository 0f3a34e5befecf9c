"""One model beside MuJoCo C in float64, stage by stage, from random states."""

from __future__ import annotations

import collections
import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import mujoco
import numpy as np
import torch

from alloy.physics import forward, io, io_refuse
from alloy.physics.model import Data, Model, make_data
from tests.physics.fixture import oracle_cost, random_state
from tests.physics.fixture import tighten as tighten_solver

STATES = 20
EDGE = 1e-9  # m, of a contact's margin
STATE = ("qpos", "qvel", "act")
INPUTS = (*STATE, "ctrl", "qfrc_applied", "xfrc_applied")
SMOOTH = (
    "xpos", "xmat", "xipos", "subtree_com", "cinert", "cvel", "ten_length", "ten_velocity",
    "qfrc_bias", "qfrc_passive", "actuator_length", "actuator_velocity", "actuator_force",
    "qfrc_actuator", "act_dot", "qfrc_smooth",
)  # fmt: skip
BOUNDS = {
    "smooth": 1e-9, "contacts": 1e-6, "qacc": 1e-5, "sensors": 1e-5, "cost": 1e-6, "step": 1e-5,
}  # fmt: skip
_GEOM = {int(v): k.removeprefix("mjGEOM_").lower() for k, v in mujoco.mjtGeom.__members__.items()}


@dataclass(frozen=True)
class Result:
    """What came of one model."""

    corpus: str
    name: str
    verdict: str  # equal, differs, refused, failed, too slow, or no model
    errors: dict[str, float]
    note: str = ""


class TooSlow(Exception):
    """A model took longer than it may."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise TooSlow when the block takes longer."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def examine(corpus: str, name: str, source: str | Path, seconds: float = 300) -> Result:
    """Read, refuse or compare one model, in at most so many seconds."""
    try:
        if isinstance(source, Path):
            mj = mujoco.MjModel.from_xml_path(str(source))
        else:
            mj = mujoco.MjModel.from_xml_string(source)
    except ValueError as error:
        folder = f"{source.parent}/" if isinstance(source, Path) else ""
        message = str(error).strip().splitlines()[0].replace(folder, "")
        return Result(corpus, name, "no model", {}, f"MuJoCo: {message}")
    if not mj.nv:
        return Result(corpus, name, "no model", {}, "nothing in it moves")
    try:
        with at_most(seconds):
            refused = io_refuse.unsupported(mj)
            if refused:
                more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
                return Result(corpus, name, "refused", {}, refused[0].text.split("; ")[0] + more)
            tighten(mj)
            errors, note = compare(mj, io.put_model(mj, dtype=torch.float64))
    except TooSlow:
        note = f"more than {seconds:.0f} s for {mj.nv} dofs, {mj.ngeom} geoms"
        return Result(corpus, name, "too slow", {}, note)
    except Exception as error:  # a model that breaks us is a finding, and the others go on
        note = f"{type(error).__name__}: {str(error).strip()[:150]}".splitlines()[0]
        return Result(corpus, name, "failed", {}, note)
    beyond = [what for what, error in errors.items() if not error <= BOUNDS[what]]
    note = "; ".join(x for x in (", ".join(beyond), note) if x)
    return Result(corpus, name, "differs" if beyond else "equal", errors, note)


def tighten(mj: mujoco.MjModel) -> None:
    """Let MuJoCo go to the end: its solver, and its search for the contacts of convex shapes.

    By default that search ends within 1e-6 m of the contact, more than contacts may differ here.
    """
    tighten_solver(mj)
    mj.opt.ccd_tolerance = 1e-12
    mj.opt.ccd_iterations = 1000


def compare(mj: mujoco.MjModel, m: Model) -> tuple[dict[str, float], str]:
    """Largest error of each kind over the random states, and which contacts differ how often."""
    worlds, rng = [], np.random.default_rng(0)
    for _ in range(STATES):
        worlds.append(mujoco.MjData(mj))
        random_state(mj, worlds[-1], rng)
    state = {
        name: torch.tensor(np.stack([getattr(mjd, name) for mjd in worlds])) for name in INPUTS
    }
    start = replace(make_data(m, STATES), **state)
    d, after = forward.forward(m, start), forward.step(m, start)
    errors, strange = dict.fromkeys(BOUNDS, 0.0), collections.Counter()
    for w, mjd in enumerate(worlds):
        mujoco.mj_forward(mj, mjd)
        found = one_world(mj, mjd, m, d, w)
        if "qacc" in found:
            mujoco.mj_step(mj, mjd)
            found["step"] = largest(after, mjd, STATE, w)
        else:
            strange.update(differing_pairs(mj, mjd, m, d, w))
        for what, error in found.items():
            errors[what] = float(np.fmax(errors[what], error)) if error == error else np.nan
    return errors, ", ".join(f"{pair} in {n}" for pair, n in strange.most_common(4))


def one_world(
    mj: mujoco.MjModel, mjd: mujoco.MjData, m: Model, d: Data, w: int
) -> dict[str, float]:
    """Errors of one world; differing contacts excuse what follows from them."""
    mass = np.zeros((mj.nv, mj.nv))
    mujoco.mj_fullM(mj, mjd, mass)
    out = {"smooth": max(largest(d, mjd, SMOOTH, w), relative(d.M[w], mass))}
    out["contacts"] = contact_error(mjd, m, d, w)
    if out["contacts"] <= BOUNDS["contacts"]:
        out["qacc"] = relative(d.qacc[w], mjd.qacc)
        out["sensors"] = relative(d.sensordata[w], mjd.sensordata)
        theirs = oracle_cost(mj, mjd, mjd.qacc)
        ours = oracle_cost(mj, mjd, d.qacc[w].numpy())
        out["cost"] = max(0.0, ours - theirs) / max(1.0, abs(theirs))
    return out


def largest(d: Data, mjd: mujoco.MjData, names: tuple[str, ...], w: int) -> float:
    """Largest relative difference of some fields in one world."""
    return max(relative(getattr(d, name)[w], getattr(mjd, name)) for name in names)


def relative(ours: torch.Tensor, theirs: np.ndarray) -> float:
    """Largest difference over one more than the largest entry."""
    expected = np.asarray(theirs, float).ravel()
    error = np.abs(ours.numpy().ravel() - expected).max(initial=0)
    return float(error / (1 + np.abs(expected).max(initial=0)))


def contacts(mjd: mujoco.MjData, m: Model, d: Data, w: int) -> tuple[np.ndarray, np.ndarray]:
    """Ours and MuJoCo's contacts that push, as rows: two geoms, distance, point, normal.

    One that just touches its margin is a contact or not by rounding, and counts on neither side.
    """
    tables = m.derived["contact"]
    active = (d.contact_dist[w] < m.con_margin[0] - EDGE).numpy()
    geoms = torch.stack([tables.geom1, tables.geom2], -1).double()
    ours = torch.cat(
        [geoms, d.contact_dist[w, :, None], d.contact_pos[w], d.contact_frame[w, :, 0]], -1
    )
    theirs = [
        [*c.geom, c.dist, *c.pos, *c.frame[:3]]
        for c in mjd.contact
        if c.dist < c.includemargin - EDGE
    ]
    return ours.numpy()[active], np.array(theirs).reshape(-1, 9)


def set_error(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Largest difference of rows, nearest to nearest; inf where one is missing."""
    if len(ours) != len(theirs):
        return float("inf")
    if not len(ours):
        return 0.0
    gap = np.abs(ours[:, None] - theirs[None]).max(-1)
    return float(max(gap.min(0).max(), gap.min(1).max()))


def contact_error(mjd: mujoco.MjData, m: Model, d: Data, w: int) -> float:
    """Largest difference of the contacts as sets."""
    return set_error(*contacts(mjd, m, d, w)) if m.ncon or mjd.ncon else 0.0


def differing_pairs(
    mj: mujoco.MjModel, mjd: mujoco.MjData, m: Model, d: Data, w: int
) -> Iterator[str]:
    """Kinds of geom pairs whose contacts differ, one for each pair."""
    sides = contacts(mjd, m, d, w)
    for pair in sorted({tuple(row[:2].astype(int)) for rows in sides for row in rows}):
        ours, theirs = (rows[(rows[:, :2] == pair).all(1)] for rows in sides)
        if set_error(ours, theirs) > BOUNDS["contacts"]:
            yield "-".join(sorted(_GEOM[int(mj.geom_type[g])] for g in pair))
