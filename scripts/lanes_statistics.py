"""Long random runs on lanes beside MuJoCo C: do both spend their time in the same states?

A trajectory of a walking machine is chaotic: float32 and float64 part within a second. What must
agree is where the worlds go. Both sides start from the same states and take the same controls;
every tenth control step MuJoCo measures both, in float64: kinetic and total energy, the deepest
penetration, and the largest violation of a joint limit. The table compares means and quantiles,
with the standard error of their difference over the worlds (bootstrap): what chance alone does.

    python scripts/lanes_statistics.py                    # 256 worlds, 1,000 steps, three models
    python scripts/lanes_statistics.py Go2 --worlds 1024 --json out/statistics.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import mujoco
import numpy as np
import torch
from bench import Oracle
from suite import LANES, START
from tqdm import tqdm

import alloy
from alloy.envs.actions import bind_actions
from alloy.envs.robots import lift_actions

EVERY = 10  # control steps between measurements
MEASURES = ("kinetic energy", "energy", "penetration", "limit violation")
QUANTILES = {"mean": None, "median": 0.5, "90 %": 0.9, "99 %": 0.99}
DRAWS = 200  # of the bootstrap
STAND = 0.25  # rad, how far the Go2's targets go from its stand: the usual scale of learning


@dataclass
class Line:
    """One number of one measure, on both sides."""

    model: str
    measure: str
    number: str
    lanes: float
    mujoco: float
    relative: float  # of the difference, to MuJoCo's number
    error: float  # standard error of that by the choice of worlds

    def agrees(self, within: float) -> bool:
        """Whether the difference is small, or what chance explains."""
        return abs(self.relative) <= max(within, 3 * self.error)


def controls(name: str, sim: alloy.Simulator, steps: int, rng: np.random.Generator) -> np.ndarray:
    """Random controls [steps, W, nu]: uniform, save where a robot's actions are steps of a target.

    The gripper's hand moves by the actions of its environment; the Go2's targets stay about its
    stand, within `STAND`.
    """
    worlds, mj = sim.num_worlds, sim.mj_model
    if name == "GripperLift":
        actions = bind_actions(lift_actions("gripper"), sim)
        ctrl, out = sim.ctrl, []
        for _ in range(steps):
            action = rng.uniform(-1, 1, (worlds, len(actions.names))).astype(np.float32)
            ctrl = actions.ctrl(torch.from_numpy(action), ctrl)
            out.append(ctrl.double().numpy())
        return np.stack(out)
    low, high = mj.actuator_ctrlrange.T
    if name in START:
        stand = mj.key(START[name]).ctrl
        low, high = np.maximum(low, stand - STAND), np.minimum(high, stand + STAND)
    ctrl = rng.uniform(low, high, (steps, worlds, mj.nu))
    return ctrl.astype(np.float32).astype(np.float64)


class Meter:
    """Measures states of one model with MuJoCo, in float64."""

    def __init__(self, model: mujoco.MjModel) -> None:
        """Prepare the limits of scalar joints."""
        self.model, self.data = model, mujoco.MjData(model)
        scalar = model.jnt_type >= int(mujoco.mjtJoint.mjJNT_SLIDE)
        self.limited = np.flatnonzero(scalar & (model.jnt_limited != 0))
        self.address = model.jnt_qposadr[self.limited]
        self.low, self.high = model.jnt_range[self.limited].T

    def __call__(self, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
        """MEASURES of states [W, nq], [W, nv]: [W, 4]."""
        out = np.empty((len(qpos), len(MEASURES)))
        for row, q, v in zip(out, qpos, qvel, strict=True):
            d = self.data
            d.qpos[:], d.qvel[:] = q, v
            mujoco.mj_fwdPosition(self.model, d)
            mujoco.mj_energyPos(self.model, d)
            mujoco.mj_energyVel(self.model, d)
            depth = -d.contact.dist.min(initial=0.0)
            angle = q[self.address]
            beyond = np.maximum(self.low - angle, angle - self.high).max(initial=0.0)
            row[:] = d.energy[1], d.energy.sum(), max(depth, 0.0), max(beyond, 0.0)
        return out


def run_both(name: str, args: argparse.Namespace, bar: tqdm) -> tuple[np.ndarray, np.ndarray]:
    """Measurements [times, W, 4] of lanes and of MuJoCo."""
    sim = alloy.build(LANES[name](), args.worlds, seed=args.seed, engine="lanes")
    oracle = Oracle(sim.mj_model, sim.substeps, args.threads)
    rng = np.random.default_rng(args.seed)
    mujoco.mj_resetData(sim.mj_model, oracle.data[0])
    if name in START:
        mujoco.mj_resetDataKeyframe(sim.mj_model, oracle.data[0], sim.mj_model.key(START[name]).id)
    full = mujoco.mjtState.mjSTATE_FULLPHYSICS
    state = np.empty(mujoco.mj_stateSize(sim.mj_model, full))
    mujoco.mj_getState(sim.mj_model, oracle.data[0], state, full)
    theirs = np.tile(state, (args.worlds, 1))
    nq, nv = sim.mj_model.nq, sim.mj_model.nv
    theirs[:, 1 + nq : 1 + nq + nv] = 0.1 * rng.normal(size=(args.worlds, nv))
    theirs = theirs.astype(np.float32).astype(np.float64)
    sim.qpos, sim.qvel, sim.act = (torch.as_tensor(x).float() for x in oracle.split(theirs))
    ctrl = controls(name, sim, args.steps, rng)
    meter = Meter(sim.mj_model)
    lanes_seen, mujoco_seen = [], []
    for first in range(0, args.steps, EVERY):
        part = ctrl[first : first + EVERY]
        for step in part:
            sim.step(torch.as_tensor(step).float())
        theirs, _ = oracle.run(theirs, part)
        lanes_seen.append(meter(sim.qpos.double().numpy(), sim.qvel.double().numpy()))
        mujoco_seen.append(meter(*oracle.split(theirs)[:2]))
        bar.update(len(part))
    return np.stack(lanes_seen), np.stack(mujoco_seen)


def number(values: np.ndarray, quantile: float | None) -> float:
    """The mean, or a quantile."""
    return float(values.mean() if quantile is None else np.quantile(values, quantile))


def compare(
    name: str, ours: np.ndarray, theirs: np.ndarray, rng: np.random.Generator
) -> list[Line]:
    """One line for every measure and number of it."""
    worlds = ours.shape[1]
    lines = []
    for k, measure in enumerate(MEASURES):
        a, b = ours[:, :, k], theirs[:, :, k]
        for label, quantile in QUANTILES.items():
            left, right = number(a, quantile), number(b, quantile)
            if max(abs(left), abs(right)) < 1e-6:  # nothing to compare: m, rad, J
                continue
            scale = abs(right) or abs(left)
            # the runs of a world part soon, so that each side draws its worlds on its own
            draws = [
                number(a[:, rng.integers(worlds, size=worlds)], quantile)
                - number(b[:, rng.integers(worlds, size=worlds)], quantile)
                for _ in range(DRAWS)
            ]
            error = float(np.std(draws)) / scale
            lines.append(Line(name, measure, label, left, right, (left - right) / scale, error))
    return lines


def table(lines: list[Line], args: argparse.Namespace) -> str:
    """The lines as text."""
    out = [
        f"{args.steps} control steps of {args.worlds} worlds, measured every {EVERY}; mujoco "
        f"{mujoco.__version__}; '!' is a difference beyond {100 * args.within:g} % and beyond "
        "three standard errors",
        f"{'model':12} {'measure':16} {'number':8} {'lanes':>11} {'mujoco':>11} "
        f"{'difference':>10} {'std. error':>10}",
    ]
    for line in lines:
        mark = "" if line.agrees(args.within) else " !"
        out.append(
            f"{line.model:12} {line.measure:16} {line.number:8} {line.lanes:11.5g} "
            f"{line.mujoco:11.5g} {100 * line.relative:+9.2f}% {100 * line.error:9.2f}%{mark}"
        )
    return "\n".join(out)


def parse() -> argparse.Namespace:
    """The command line, checked."""
    usual = ["HalfCheetah", "GripperLift", "Go2"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("models", nargs="*", default=usual, help=f"of {', '.join(LANES)}; by default three")
    add("--worlds", type=int, default=256)
    add("--steps", type=int, default=1000, help="control steps")
    add("--threads", type=int, default=os.cpu_count() or 1, help="of MuJoCo")
    add("--within", type=float, default=0.03, help="relative difference that passes")
    add("--seed", type=int, default=0)
    add("--json", type=Path, default=None, help="write the lines to this file too")
    args = parser.parse_args()
    unknown = [name for name in args.models if name not in LANES]
    if unknown:
        parser.error(f"unknown models {unknown}; there are {list(LANES)}")
    if args.worlds < 2 or args.steps < EVERY:
        parser.error(f"--worlds is at least 2 and --steps at least {EVERY}")
    return args


def main() -> int:
    """Compare the models one after the other; 0 when all lines agree."""
    args = parse()
    lines: list[Line] = []
    with tqdm(total=len(args.models) * args.steps, unit="step", leave=False, disable=None) as bar:
        for name in args.models:
            bar.set_description(name)
            ours, theirs = run_both(name, args, bar)
            lines += compare(name, ours, theirs, np.random.default_rng(args.seed))
    print(table(lines, args))
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps([asdict(line) for line in lines], indent=2) + "\n")
    return 0 if all(line.agrees(args.within) for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
