"""One model beside MuJoCo C in float64, stage by stage, from random states."""

from __future__ import annotations

import collections
import contextlib
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from unittest import mock

import mujoco
import numpy as np
import torch

from alloy.ops.reference import collide_hfield
from alloy.physics import forward, io, io_refuse
from alloy.physics.model import Data, Model, make_data
from tests.physics.fixture import oracle_cost, random_state
from tests.physics.fixture import tighten as tighten_solver

STATES = 20
BLOCK = 4  # states at once: the meshes of a body of hundreds of pairs take gigabytes
EDGE = 1e-9  # m, of a contact's margin
NORMAL = 0.1  # of its error counts: a depth known to 1e-12 leaves its normal known to about 1e-6
STIFFNESS = 300  # by which the acceleration follows from where MuJoCo's search leaves a contact
SHAKE, SHAKES = 1e-7, 16  # m or rad: a tenth of the tolerance of MuJoCo's search; how often
JUMP = 1e-4  # m, of contacts so shaken
WIDER = 1e-6  # m of margin: with it MuJoCo's search on a height field does not end early
STATE = ("qpos", "qvel", "act", "plastic")
INPUTS = (*STATE, "ctrl", "qfrc_applied", "xfrc_applied")
SMOOTH = (
    "xpos", "xmat", "xipos", "subtree_com", "cinert", "cvel", "ten_length", "ten_velocity",
    "qfrc_bias", "qfrc_passive", "actuator_length", "actuator_velocity", "actuator_force",
    "qfrc_actuator", "act_dot", "qfrc_smooth",
)  # fmt: skip
# of an adhering body these follow from its contacts, whose normals are its moment arms
ADHESIVE = ("actuator_velocity", "actuator_force", "qfrc_actuator", "qfrc_smooth")
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
    states: int = STATES


class TooSlow(Exception):
    """A model took longer than it may."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise TooSlow when the block takes more time of the processor."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def examine(
    corpus: str, name: str, source: str | Path, seconds: float = 300, states: int = STATES
) -> Result:
    """Read, refuse or compare one model from some states, in at most so many seconds."""
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
            errors, note = compare(mj, io.put_model(mj, dtype=torch.float64), states)
    except TooSlow:
        note = f"more than {seconds:.0f} s for {mj.nv} dofs, {mj.ngeom} geoms"
        return Result(corpus, name, "too slow", {}, note)
    except Exception as error:  # a model that breaks us is a finding, and the others go on
        note = f"{type(error).__name__}: {str(error).strip()[:150]}".splitlines()[0]
        return Result(corpus, name, "failed", {}, note)
    moved = STIFFNESS * min(errors["contacts"], BOUNDS["contacts"])
    following = ("qacc", "sensors", "step", *(("smooth",) if adheres(mj) else ()))
    bounds = BOUNDS | {what: BOUNDS[what] + moved for what in following}
    beyond = [what for what, error in errors.items() if not error <= bounds[what]]
    note = "; ".join(x for x in (", ".join(beyond), note) if x)
    return Result(corpus, name, "differs" if beyond else "equal", errors, note, states)


def tighten(mj: mujoco.MjModel) -> None:
    """Let MuJoCo go to the end: its solver, and its search for the contacts of convex shapes.

    By default that search ends within 1e-6 m of the contact, more than contacts may differ here.
    """
    tighten_solver(mj)
    mj.opt.ccd_tolerance = 1e-14
    mj.opt.ccd_iterations = 1000


def compare(mj: mujoco.MjModel, m: Model, states: int) -> tuple[dict[str, float], str]:
    """Largest error of each kind over the random states, and which contacts differ how often."""
    mj.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET  # it forgets the state
    worlds, rng = [], np.random.default_rng(0)
    for _ in range(states):
        worlds.append(mujoco.MjData(mj))
        random_state(mj, worlds[-1], rng)
    errors, strange = dict.fromkeys(BOUNDS, 0.0), collections.Counter()
    for start in range(0, states, BLOCK):
        for found in some_worlds(mj, m, worlds[start : start + BLOCK], strange):
            for what, error in found.items():
                errors[what] = float(np.fmax(errors[what], error)) if error == error else np.nan
    return errors, ", ".join(f"{pair} in {n}" for pair, n in strange.most_common(4))


def some_worlds(
    mj: mujoco.MjModel, m: Model, worlds: list[mujoco.MjData], strange: collections.Counter
) -> Iterator[dict[str, float]]:
    """Errors of each world, which MuJoCo then steps."""
    start = our_data(m, worlds)
    after = forward.step(m, start)  # its derived fields are of the start, but for Runge-Kutta's
    d = forward.forward(m, start) if m.opt.integrator == "rk4" else after
    for w, mjd in enumerate(worlds):
        mujoco.mj_forward(mj, mjd)
        found = one_world(mj, mjd, m, d, w, strange)
        if "qacc" in found:
            mujoco.mj_step(mj, mjd)
            found["step"] = largest(after, mjd, STATE, w)
        yield found


def our_data(m: Model, worlds: list[mujoco.MjData]) -> Data:
    """The state and inputs of some worlds of MuJoCo."""
    state = {
        name: torch.tensor(np.stack([getattr(mjd, name) for mjd in worlds])) for name in INPUTS
    }
    return replace(make_data(m, len(worlds)), **state)


def one_world(
    mj: mujoco.MjModel, mjd: mujoco.MjData, m: Model, d: Data, w: int, strange: collections.Counter
) -> dict[str, float]:
    """Errors of one world; differing contacts, counted in `strange`, excuse what follows."""
    pairs = pair_errors(mjd, m, d, w)
    beyond = [pair for pair, error in pairs.items() if error > BOUNDS["contacts"]]
    excused = {pair: excuse(mj, mjd, m, d, w, pair) for pair in beyond}
    for pair in beyond:
        kind = "-".join(sorted(_GEOM[int(mj.geom_type[g])] for g in pair))
        strange[kind + excused[pair]] += 1
    counted = (error for pair, error in pairs.items() if not excused.get(pair))
    out = {"contacts": max(counted, default=0.0)}
    as_many = len(our_contacts(m, d, w, 0)) == len(their_contacts(mjd, 0))  # those on the edge too
    agree = as_many and not beyond
    smooth = [name for name in SMOOTH if agree or not adheres(mj) or name not in ADHESIVE]
    mass = np.zeros((mj.nv, mj.nv))
    mujoco.mj_fullM(mj, mjd, mass)
    out["smooth"] = max(largest(d, mjd, smooth, w), relative(d.M[w], mass))
    if agree:
        out["qacc"] = relative(d.qacc[w], mjd.qacc)
        out["sensors"] = relative(d.sensordata[w], mjd.sensordata)
        theirs = oracle_cost(mj, mjd, mjd.qacc)
        ours = oracle_cost(mj, mjd, d.qacc[w].numpy())
        out["cost"] = max(0.0, ours - theirs) / max(1.0, abs(theirs))
    return out


def adheres(mj: mujoco.MjModel) -> bool:
    """Whether an actuator acts on the contacts of a body."""
    return bool((mj.actuator_trntype == mujoco.mjtTrn.mjTRN_BODY).any())


def largest(d: Data, mjd: mujoco.MjData, names: Iterable[str], w: int) -> float:
    """Largest relative difference of some fields in one world."""
    return max(relative(getattr(d, name)[w], getattr(mjd, name)) for name in names)


def relative(ours: torch.Tensor, theirs: np.ndarray) -> float:
    """Largest difference over one more than the largest entry."""
    expected = np.asarray(theirs, float).ravel()
    error = np.abs(ours.numpy().ravel() - expected).max(initial=0)
    return float(error / (1 + np.abs(expected).max(initial=0)))


def our_contacts(m: Model, d: Data, w: int, edge: float = EDGE) -> np.ndarray:
    """Our contacts that push, as rows: two geoms, distance, point, NORMAL * normal.

    One that just touches its margin is a contact or not by rounding, and counts on neither side.
    """
    if not m.ncon:
        return np.zeros((0, 9))
    tables = m.derived["contact"]
    active = (d.contact_dist[w] < m.con_margin[0] - edge).numpy()
    geoms = torch.stack([tables.geom1, tables.geom2], -1).double()
    dist, frame = d.contact_dist[w, :, None], d.contact_frame[w, :, 0]
    return torch.cat([geoms, dist, d.contact_pos[w], NORMAL * frame], -1).numpy()[active]


def their_contacts(mjd: mujoco.MjData, edge: float = EDGE) -> np.ndarray:
    """MuJoCo's, likewise."""
    pushing = (c for c in mjd.contact if c.dist < c.includemargin - edge)
    rows = [[*c.geom, c.dist, *c.pos, *(NORMAL * c.frame[:3])] for c in pushing]
    return np.array(rows).reshape(-1, 9)


def of_pair(rows: np.ndarray, pair: tuple[int, int]) -> np.ndarray:
    """The contacts of two geoms."""
    return rows[(rows[:, :2] == pair).all(1)]


def set_error(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Largest difference of rows, nearest to nearest; inf where one is missing."""
    if len(ours) != len(theirs):
        return float("inf")
    if not len(ours):
        return 0.0
    gap = distances(ours, theirs)
    return float(max(gap.min(0).max(), gap.min(1).max()))


def distances(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Largest difference of each row of one set and each of the other."""
    return np.abs(ours[:, None] - theirs[None]).max(-1)


def pair_errors(mjd: mujoco.MjData, m: Model, d: Data, w: int) -> dict[tuple[int, int], float]:
    """Largest difference of the contacts, as sets, of every pair of geoms that has some."""
    ours, theirs = our_contacts(m, d, w), their_contacts(mjd)
    pairs = {(int(row[0]), int(row[1])) for rows in (ours, theirs) for row in rows}
    return {pair: set_error(of_pair(ours, pair), of_pair(theirs, pair)) for pair in sorted(pairs)}


def excuse(
    mj: mujoco.MjModel, mjd: mujoco.MjData, m: Model, d: Data, w: int, pair: tuple[int, int]
) -> str:
    """Why contacts of a pair that differ are as good as MuJoCo's, or "" where they are not."""
    if wavers(mj, mjd, pair):
        return " (wavers)"
    ours = of_pair(our_contacts(m, d, w), pair)
    if _GEOM[int(mj.geom_type[pair[0]])] == "hfield":
        return field_excuse(mj, mjd, m, d, w, pair)
    theirs = of_pair(their_contacts(mjd), pair)
    if len(ours) != 1 or not len(theirs):
        return ""
    slack = 0.0
    if len(theirs) > 1:  # what its search found before it laid faces on each other
        theirs, slack = single_contact(mj, mjd, pair), EDGE
        if len(theirs) != 1:
            return ""
    mine, its = (overlap(mj, mjd, pair, row[6:] / NORMAL) for row in (ours[0], theirs[0]))
    close = abs(ours[0, 2] - theirs[0, 2]) < BOUNDS["contacts"]
    return " (ends early)" if close and mine < its - slack else ""


def field_excuse(
    mj: mujoco.MjModel, mjd: mujoco.MjData, m: Model, d: Data, w: int, pair: tuple[int, int]
) -> str:
    """Likewise of a height field: MuJoCo's with a margin are ours, or ours without pushing up.

    Or ours fill the slots, and are all among them.
    """
    kept = float(mj.geom_margin[pair[1]])
    mj.geom_margin[pair[1]] = kept + WIDER
    theirs = of_pair(their_contacts(at_pose(mj, mjd), EDGE + WIDER), pair)
    mj.geom_margin[pair[1]] = kept
    if set_error(of_pair(our_contacts(m, d, w), pair), theirs) <= BOUNDS["contacts"]:
        return " (ends early)"
    with mock.patch.object(collide_hfield, "below_surface", nowhere_below):
        sideways = of_pair(our_contacts(m, forward.forward(m, our_data(m, [mjd])), 0), pair)
    if set_error(sideways, theirs) <= BOUNDS["contacts"]:
        return " (sunk)"
    full = len(sideways) == collide_hfield.SLOTS < len(theirs)
    among = full and distances(sideways, theirs).min(1).max() <= BOUNDS["contacts"]
    return " (full)" if among else ""


def nowhere_below(point: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
    """In place of the rule by which a height field pushes upwards what is below its surface."""
    shape = torch.broadcast_shapes((*point.shape[:-1], 1), top.shape[:-2])
    return torch.zeros(shape, dtype=torch.bool)


def at_pose(mj: mujoco.MjModel, mjd: mujoco.MjData) -> mujoco.MjData:
    """MuJoCo's contacts and what comes before them, anew, in a state."""
    again = mujoco.MjData(mj)
    again.qpos[:], again.mocap_pos[:] = mjd.qpos, mjd.mocap_pos
    again.mocap_quat[:] = mjd.mocap_quat
    mujoco.mj_fwdPosition(mj, again)
    return again


def single_contact(mj: mujoco.MjModel, mjd: mujoco.MjData, pair: tuple[int, int]) -> np.ndarray:
    """MuJoCo's contact of a pair without its further ones, as a row like its others."""
    flags = mj.opt.disableflags
    mj.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_MULTICCD
    alone = at_pose(mj, mjd)
    mj.opt.disableflags = flags
    return of_pair(their_contacts(alone), pair)


def overlap(
    mj: mujoco.MjModel, mjd: mujoco.MjData, pair: tuple[int, int], normal: np.ndarray
) -> float:
    """How far two convex geoms overlap along a direction from the first to the second."""
    normal = normal / np.linalg.norm(normal)
    one, two = (
        reach(mj, geom, mjd.geom_xmat[geom].reshape(3, 3).T @ way)
        for geom, way in zip(pair, (normal, -normal), strict=True)
    )
    return one + two - float(normal @ (mjd.geom_xpos[pair[1]] - mjd.geom_xpos[pair[0]]))


def reach(mj: mujoco.MjModel, geom: int, way: np.ndarray) -> float:
    """How far a convex geom reaches from its centre along a direction in its frame."""
    size, kind = mj.geom_size[geom], _GEOM[int(mj.geom_type[geom])]
    if kind == "mesh":
        mesh = int(mj.geom_dataid[geom])
        begin = int(mj.mesh_vertadr[mesh])
        vertices = np.array(mj.mesh_vert[begin : begin + int(mj.mesh_vertnum[mesh])], float)
        return float((vertices @ way).max())
    flat, high = float(np.hypot(*way[:2])), abs(float(way[2]))
    reaches = {
        "sphere": size[0],
        "capsule": size[0] + size[1] * high,
        "ellipsoid": np.linalg.norm(size * way),
        "cylinder": size[0] * flat + size[1] * high,
        "box": size @ np.abs(way),
    }
    return float(reaches.get(kind, np.inf))


def wavers(mj: mujoco.MjModel, mjd: mujoco.MjData, pair: tuple[int, int]) -> bool:
    """Whether MuJoCo's own contacts of a pair jump when qpos or a geom in its body moves by SHAKE.

    Then rounding decides on them: which of two faces, which corner of many.
    """
    before, rng = of_pair(their_contacts(mjd), pair), np.random.default_rng(0)
    moved, which = at_pose(mj, mjd), list(pair)
    kept = mj.geom_pos[which], mj.geom_quat[which], mj.geom_sameframe[which]
    for _ in range(SHAKES):
        moved.qpos[:] = mjd.qpos + SHAKE * rng.normal(size=mj.nq)
        mujoco.mj_normalizeQuat(mj, moved.qpos)
        mj.geom_sameframe[which] = 0
        mj.geom_pos[which] += SHAKE * rng.normal(size=(2, 3))
        for geom in pair:
            mujoco.mju_quatIntegrate(mj.geom_quat[geom], SHAKE * rng.normal(size=3), 1)
        mujoco.mj_fwdPosition(mj, moved)
        mj.geom_pos[which], mj.geom_quat[which], mj.geom_sameframe[which] = kept
        if set_error(of_pair(their_contacts(moved), pair), before) > JUMP:
            return True
    return False
