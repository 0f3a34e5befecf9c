"""Compare a corpus of models with MuJoCo C, stage by stage; writes docs/conformance.md.

    python scripts/conformance.py                        # features and Gymnasium's assets
    python scripts/conformance.py --folder PATH ...      # and the MJCF files of a folder
    python scripts/conformance.py --fast                 # a few models, nothing is written

Each model is refused by name, or compared from 20 random states in float64: the smooth stages
(1e-9 of the largest entry), contacts as sets (1e-6), acceleration and sensors (1e-5), and MuJoCo's
own cost of our acceleration, which may not be above that of its own by more than 1e-6 of it. What
follows from contacts is compared where the contacts agree.
dm_control's suite: `pip download --no-deps dm_control`, unpack, `--folder dm_control/suite`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import mujoco
import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from features import FEATURES  # noqa: E402

from alloy.physics import forward, io, io_refuse  # noqa: E402
from alloy.physics.model import Data, Model, make_data  # noqa: E402
from tests.physics.fixture import GYM_ASSETS, oracle_cost, random_state, tighten  # noqa: E402

STATES = 20
EDGE = 1e-9  # m, of a contact's margin
INPUTS = ("qpos", "qvel", "act", "ctrl", "qfrc_applied", "xfrc_applied")
SMOOTH = (
    "xpos", "xmat", "xipos", "subtree_com", "cinert", "cvel", "ten_length", "ten_velocity",
    "qfrc_bias", "qfrc_passive", "actuator_length", "actuator_velocity", "actuator_force",
    "qfrc_actuator", "act_dot", "qfrc_smooth",
)  # fmt: skip
BOUNDS = {"smooth": 1e-9, "contacts": 1e-6, "qacc": 1e-5, "sensors": 1e-5, "cost": 1e-6}
FAST = ("half_cheetah.xml", "tendon: side site", "actuator: muscle", "contact: plane with box")


@dataclass(frozen=True)
class Result:
    """What came of one model."""

    group: str
    name: str
    verdict: str  # "equal", "differs", "refused", "not read" (by MuJoCo)
    errors: dict[str, float]
    note: str = ""


def corpus(folders: list[str]) -> Iterator[tuple[str, str, str | Path]]:
    """Group, name, and text or path of every model."""
    for section, features in FEATURES.items():
        for name, text in features.items():
            yield "features", f"{section}: {name}", text
    for path in sorted(GYM_ASSETS.glob("*.xml")):
        yield "gymnasium", path.name, path
    for folder in folders:
        for path in sorted(Path(folder).glob("*.xml")):
            yield Path(folder).name, path.name, path


def examine(group: str, name: str, source: str | Path) -> Result:
    """Read, refuse or compare one model."""
    try:
        if isinstance(source, Path):
            mj = mujoco.MjModel.from_xml_path(str(source))
        else:
            mj = mujoco.MjModel.from_xml_string(source)
    except ValueError as error:
        return Result(group, name, "not read", {}, str(error).splitlines()[0])
    refused = io_refuse.unsupported(mj)
    if refused:
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        return Result(group, name, "refused", {}, refused[0].text.split("; ")[0] + more)
    tighten(mj)
    errors = compare(mj, io.put_model(mj, dtype=torch.float64))
    beyond = [what for what, error in errors.items() if not error <= BOUNDS[what]]
    return Result(group, name, "differs" if beyond else "equal", errors, ", ".join(beyond))


def compare(mj: mujoco.MjModel, m: Model) -> dict[str, float]:
    """Largest error of each kind over the random states."""
    worlds, rng = [], np.random.default_rng(0)
    for _ in range(STATES):
        worlds.append(mujoco.MjData(mj))
        random_state(mj, worlds[-1], rng)
        mujoco.mj_forward(mj, worlds[-1])
    state = {
        name: torch.tensor(np.stack([getattr(mjd, name) for mjd in worlds])) for name in INPUTS
    }
    d = forward.forward(m, replace(make_data(m, STATES), **state))
    errors = dict.fromkeys(BOUNDS, 0.0)
    for w, mjd in enumerate(worlds):
        for what, error in one_world(mj, mjd, m, d, w).items():
            errors[what] = float(np.fmax(errors[what], error)) if error == error else np.nan
    return errors


def one_world(
    mj: mujoco.MjModel, mjd: mujoco.MjData, m: Model, d: Data, w: int
) -> dict[str, float]:
    """Errors of one world; differing contacts excuse what follows from them."""
    fields = [(getattr(d, name)[w], getattr(mjd, name)) for name in SMOOTH]
    mass = np.zeros((mj.nv, mj.nv))
    mujoco.mj_fullM(mj, mjd, mass)
    out = {"smooth": max(relative(a, b) for a, b in [*fields, (d.M[w], mass)])}
    out["contacts"] = contact_error(mjd, m, d, w)
    if out["contacts"] <= BOUNDS["contacts"]:
        out["qacc"] = relative(d.qacc[w], mjd.qacc)
        out["sensors"] = relative(d.sensordata[w], mjd.sensordata)
        theirs = oracle_cost(mj, mjd, mjd.qacc)
        ours = oracle_cost(mj, mjd, d.qacc[w].numpy())
        out["cost"] = max(0.0, ours - theirs) / max(1.0, abs(theirs))
    return out


def relative(ours: torch.Tensor, theirs: np.ndarray) -> float:
    """Largest difference over one more than the largest entry."""
    expected = np.asarray(theirs, float).ravel()
    error = np.abs(ours.numpy().ravel() - expected).max(initial=0)
    return float(error / (1 + np.abs(expected).max(initial=0)))


def contact_error(mjd: mujoco.MjData, m: Model, d: Data, w: int) -> float:
    """Largest difference of distances and points, nearest to nearest; inf where one is missing.

    Of contacts that push: one that just touches its margin is one or not by rounding.
    """
    active = (d.contact_dist[w] < m.con_margin[0] - EDGE).numpy()
    ours = torch.cat([d.contact_dist[w, :, None], d.contact_pos[w]], -1).numpy()[active]
    pushing = [c for c in mjd.contact if c.dist < c.includemargin - EDGE]
    theirs = np.array([[c.dist, *c.pos] for c in pushing]).reshape(-1, 4)
    if len(ours) != len(theirs):
        return float("inf")
    if not len(ours):
        return 0.0
    gap = np.abs(ours[:, None] - theirs[None]).max(-1)
    return float(max(gap.min(0).max(), gap.min(1).max()))


def page(results: list[Result]) -> str:
    """The results as Markdown."""
    lines = ["# Models beside MuJoCo", "", *(__doc__ or "").strip().splitlines()[6:], ""]
    groups = dict.fromkeys(r.group for r in results)
    lines += ["| corpus | models | equal | differ | refused |", "|---|---|---|---|---|"]
    for group in groups:
        some = [r.verdict for r in results if r.group == group and r.verdict != "not read"]
        counts = (str(some.count(v)) for v in ("equal", "differs", "refused"))
        lines.append(f"| {group} | {len(some)} | {' | '.join(counts)} |")
    for group in groups:
        lines += ["", f"## {group.capitalize()}", ""]
        lines += [f"| model | verdict | {' | '.join(BOUNDS)} | |", "|---" * 8 + "|"]
        lines += [row(r) for r in results if r.group == group]
    return "\n".join(lines) + "\n"


def row(r: Result) -> str:
    """One model as a row of the table."""
    errors = [f"{r.errors[what]:.0e}" if r.errors else "" for what in BOUNDS]
    return f"| {r.name} | {r.verdict} | {' | '.join(errors)} | {r.note} |"


def main() -> int:
    """Run the corpus; exit with 1 if --fast finds a model that is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", action="append", default=[], help="a folder of MJCF files")
    parser.add_argument("--fast", action="store_true", help="a few models; nothing is written")
    args = parser.parse_args()
    results = []
    for group, name, source in corpus(args.folder):
        if args.fast and name not in FAST:
            continue
        results.append(examine(group, name, source))
        print(row(results[-1]), flush=True)
    if args.fast:
        return int(len(results) != len(FAST) or any(r.verdict != "equal" for r in results))
    (ROOT / "docs" / "conformance.md").write_text(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
