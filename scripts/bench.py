"""Physics and environment steps per second, beside mujoco.rollout in the same run.

Both sides start from the same states, apply the same controls for the same number of substeps, and
use the same number of threads, one after the other, again and again; the table gives medians.
Before anything is timed, one control step from those states is compared with MuJoCo's float64
result, and when they disagree no number is printed.

    python scripts/bench.py HalfCheetah-v5 --worlds 64 1024
    python scripts/bench.py my_robot.xml --substeps 4 --json
    python scripts/bench.py --suite lanes --worlds 1024 --json > out/lanes.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mujoco
import mujoco.rollout
import numpy as np
import torch
from suite import START, SUITES
from torch import Tensor
from tqdm import tqdm

import alloy

DTYPES = {"float32": torch.float32, "float64": torch.float64}
# Largest error of one control step, relative to 1 + |value|, that a sound engine may show.
TOLERANCE = {"float32": 1e-2, "float64": 1e-6}
# The step of an environment that is checked: a body that is put down exactly touching, as a reset
# does, touches or not by rounding; a few steps later it lies.
CHECK_STEP = 5
SETTLE_STEPS, SETTLE_WORLDS = 20, 256  # random actions before the common initial states


class WrongResult(RuntimeError):
    """The engine disagrees with MuJoCo, so its speed means nothing."""


@dataclass
class Row:
    """One line of the table: what ran, in how many worlds, and the seconds of every repeat."""

    target: str
    what: str
    engine: str
    worlds: int
    steps: int  # control steps in one repeat
    error: float  # of the check, relative
    seconds: list[float] = field(default_factory=list)
    mujoco_seconds: list[float] = field(default_factory=list)

    def result(self) -> dict[str, Any]:
        """The line as numbers: medians over the repeats, ratio of neighbouring repeats."""
        work = self.worlds * self.steps
        pairs = zip(self.mujoco_seconds, self.seconds, strict=True)
        return {
            "target": self.target,
            "what": self.what,
            "engine": self.engine,
            "worlds": self.worlds,
            "steps_per_s": work / statistics.median(self.seconds),
            "mujoco_steps_per_s": work / statistics.median(self.mujoco_seconds),
            "ratio": statistics.median(theirs / ours for theirs, ours in pairs),
            "error": self.error,
            "seconds": self.seconds,
            "mujoco_seconds": self.mujoco_seconds,
        }


class Oracle:
    """MuJoCo's own threaded rollout of one model, float64."""

    def __init__(self, model: mujoco.MjModel, substeps: int, threads: int) -> None:
        """Start the threads; `substeps` physics steps make one control step."""
        self.model, self.substeps = model, substeps
        self.data = [mujoco.MjData(model) for _ in range(threads)]
        # One thread runs fastest on the caller's own.
        self.pool = mujoco.rollout.Rollout(nthread=threads if threads > 1 else 0)

    def run(self, state: np.ndarray, ctrl: np.ndarray) -> tuple[np.ndarray, float]:
        """Final states [W, nstate] after controls [steps, W, nu], and the seconds it took."""
        held = np.ascontiguousarray(np.repeat(ctrl.swapaxes(0, 1), self.substeps, axis=1))
        shape = (len(state), held.shape[1])
        out = np.empty((*shape, state.shape[1]))
        sensors = np.empty((*shape, self.model.nsensordata))
        began = time.perf_counter()
        self.pool.rollout(self.model, self.data, state, held, state=out, sensordata=sensors)
        return out[:, -1], time.perf_counter() - began

    def start(
        self, worlds: int, rng: np.random.Generator, keyframe: str | None = None
    ) -> np.ndarray:
        """Initial states [W, nstate]: the model's own or a keyframe, driven at random a while."""
        data = self.data[0]
        mujoco.mj_resetData(self.model, data)
        if keyframe is not None:
            mujoco.mj_resetDataKeyframe(self.model, data, self.model.key(keyframe).id)
        size = mujoco.mj_stateSize(self.model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        state = np.empty(size)
        mujoco.mj_getState(self.model, data, state, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        distinct = min(worlds, SETTLE_WORLDS)
        ctrl = self.controls(SETTLE_STEPS, distinct, rng)
        settled, _ = self.run(np.tile(state, (distinct, 1)), ctrl)
        return np.resize(settled, (worlds, size))

    def controls(self, steps: int, worlds: int, rng: np.random.Generator) -> np.ndarray:
        """Uniform controls [steps, W, nu] within ctrlrange, or within -1..1 where there is none."""
        limited = self.model.actuator_ctrllimited[:, None].astype(bool)
        low, high = np.where(limited, self.model.actuator_ctrlrange, [-1.0, 1.0]).T
        ctrl = rng.uniform(low, high, (steps, worlds, self.model.nu))
        return ctrl.astype(np.float32).astype(np.float64)  # the same numbers in every dtype

    def split(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Columns qpos, qvel, act of states; time comes first and is left out."""
        nq, nv, na = self.model.nq, self.model.nv, self.model.na
        qpos, qvel, act = np.split(state[:, 1 : 1 + nq + nv + na], [nq, nq + nv], axis=1)
        return qpos, qvel, act


def bench_physics(args: argparse.Namespace, engine: str, worlds: int, bar: tqdm) -> Row:
    """Time `sim.step` from common states under common controls."""
    sim = build_simulator(args, engine, worlds)
    substeps = args.substeps or sim.substeps
    oracle = Oracle(sim.mj_model, substeps, args.threads)
    rng = np.random.default_rng(args.seed)
    keyframe = START.get(args.target)
    start = oracle.start(worlds, rng, keyframe).astype(np.float32).astype(np.float64)
    ctrl = oracle.controls(args.steps, worlds, rng)
    device_ctrl = torch.as_tensor(ctrl).to(sim.device, sim.dtype)
    sim.qpos, sim.qvel, sim.act = (
        torch.as_tensor(x).to(sim.device, sim.dtype) for x in oracle.split(start)
    )
    saved = sim.state()
    sim.step(device_ctrl[0], substeps)
    error = check(oracle, sim, start, ctrl[:1], None, args)
    row = Row(args.target, "physics", sim.engine_report()["engine"], worlds, args.steps, error)

    def run() -> float:
        sim.load_state(saved)
        return clocked(sim.device, lambda: [sim.step(c, substeps) for c in device_ctrl])

    return repeat(row, run, lambda: oracle.run(start, ctrl)[1], args.repeats, bar)


def bench_env(args: argparse.Namespace, engine: str, worlds: int, bar: tqdm) -> Row:
    """Time `env.step` (observations, rewards, resets), and MuJoCo under the controls it applied."""
    env = make_env(args, engine, worlds)
    sim = env.sim
    oracle = Oracle(sim.mj_model, sim.substeps, args.threads)
    env.action_space.seed(args.seed)
    actions = [torch.as_tensor(env.action_space.sample()) for _ in range(args.steps)]
    actions = [action.to(sim.device) for action in actions]
    env.reset(seed=args.seed)
    start = states(sim)
    ctrl = np.empty((args.steps, worlds, sim.mj_model.nu))
    error, began = 0.0, np.zeros(worlds, dtype=bool)
    for step, action in enumerate(actions):
        before = states(sim)
        _, _, terminated, truncated, _ = env.step(action)
        ctrl[step] = as_numpy(sim.ctrl)
        done = as_numpy(terminated | truncated).astype(bool)
        if step == min(CHECK_STEP, args.steps - 1):
            error = check(oracle, sim, before, ctrl[step : step + 1], ~(done | began), args)
        began = done
    row = Row(args.target, "environment", sim.engine_report()["engine"], worlds, args.steps, error)

    def run() -> float:
        env.reset(seed=args.seed)
        return clocked(sim.device, lambda: [env.step(action) for action in actions])

    return repeat(row, run, lambda: oracle.run(start, ctrl)[1], args.repeats, bar)


def check(
    oracle: Oracle,
    sim: alloy.Simulator,
    start: np.ndarray,
    ctrl: np.ndarray,
    worlds: np.ndarray | None,
    args: argparse.Namespace,
) -> float:
    """Largest relative error of the simulator's state against MuJoCo from the same start.

    Args:
        oracle: MuJoCo on the same model.
        sim: The simulator, one control step after `start`.
        start: States before the step, [W, nstate].
        ctrl: The controls of that step, [1, W, nu].
        worlds: Which worlds count, [W] bool; None for all.
        args: The options; `tolerance` is the bound.

    Raises:
        WrongResult: The error is beyond the tolerance, or not a number.
    """
    expected = np.concatenate(oracle.split(oracle.run(start, ctrl)[0]), axis=1)
    actual = states(sim)[:, 1:]
    errors = np.abs(actual - expected) / (1.0 + np.abs(expected))
    errors = errors if worlds is None else errors[worlds]
    if errors.size == 0:
        raise WrongResult("every episode ended in the step that is checked; give other --worlds")
    error = float(errors.max())
    if not error <= args.tolerance:
        raise WrongResult(
            f"after one control step the state differs from MuJoCo's by {error:.2e} (relative to "
            f"1 + |value|), more than {args.tolerance:.0e}; no number is printed. Look for the "
            "cause with the tests; --tolerance moves the bound."
        )
    return error


def repeat(
    row: Row, ours: Callable[[], float], theirs: Callable[[], float], repeats: int, bar: tqdm
) -> Row:
    """Time both sides in turn; the first round only warms up."""
    for number in range(repeats + 1):
        seconds, mujoco_seconds = ours(), theirs()
        if number:
            row.seconds.append(seconds)
            row.mujoco_seconds.append(mujoco_seconds)
        bar.update()
    return row


def clocked(device: torch.device, work: Callable[[], Any]) -> float:
    """Seconds of a piece of work, the device's queue included."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - began


def states(sim: alloy.Simulator) -> np.ndarray:
    """The states of a simulator as MuJoCo lays them out, [W, nstate], at time 0."""
    columns = [as_numpy(x) for x in (sim.qpos, sim.qvel, sim.act)]
    return np.concatenate([np.zeros((sim.num_worlds, 1)), *columns], axis=1)


def as_numpy(x: Tensor) -> np.ndarray:
    """A tensor as a float64 array on the CPU."""
    return x.detach().cpu().double().numpy()


def build_simulator(args: argparse.Namespace, engine: str, worlds: int) -> alloy.Simulator:
    """The simulator of a named environment, a model of a suite, or an MJCF file."""
    if args.target in alloy.envs.list():
        return make_env(args, engine, worlds).sim
    known = {name: scene for suite in SUITES.values() for name, scene in suite.items()}
    source = known[args.target]() if args.target in known else args.target
    return alloy.build(source, worlds, device=args.device, dtype=DTYPES[args.dtype], engine=engine)


def make_env(args: argparse.Namespace, engine: str, worlds: int) -> alloy.envs.VectorEnv:
    """The named environment."""
    return alloy.envs.make(
        args.target, worlds, device=args.device, dtype=DTYPES[args.dtype], engine=engine
    )


def parse() -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("target", nargs="?", default="HalfCheetah-v5", help="environment id or MJCF file")
    add("--suite", choices=SUITES, default=None, help="physics of many models instead of a target")
    add("--what", choices=("physics", "env", "both"), default="both", help="files: physics only")
    add("--worlds", type=int, nargs="+", default=[64, 1024], help="world counts")
    add("--engine", nargs="+", default=["auto"], help="engines, one after the other")
    add("--steps", type=int, default=20, help="control steps in one repeat")
    add("--substeps", type=int, default=None, help="physics steps per control step (physics only)")
    add("--repeats", type=int, default=5, help="timed repeats, 5 or more")
    add("--threads", type=int, default=os.cpu_count() or 1, help="for both sides")
    add("--dtype", choices=DTYPES, default="float32")
    add("--device", default=None, help="torch device")
    add("--seed", type=int, default=0)
    add("--tolerance", type=float, default=None, help="bound of the correctness check")
    add("--json", action="store_true", help="print JSON with every repeat instead of the table")
    args = parser.parse_args()
    for name in ("steps", "threads", *(["substeps"] if args.substeps is not None else [])):
        if getattr(args, name) < 1:
            parser.error(f"--{name} is {getattr(args, name)}; it is at least 1")
    if min(args.worlds) < 1:
        parser.error(f"--worlds {min(args.worlds)}: it is at least 1")
    if args.repeats < 5:
        parser.error(f"--repeats is {args.repeats}; a median needs at least 5")
    known = alloy.envs.list()
    args.targets = [args.target] if args.suite is None else list(SUITES[args.suite])
    if args.suite is not None:
        args.what = "physics"
    elif args.target not in known and not Path(args.target).is_file():
        parser.error(f"{args.target!r} is neither a file nor one of {', '.join(known)}")
    if args.target not in known:
        args.what = "physics"
    if args.tolerance is None:
        args.tolerance = TOLERANCE[args.dtype]
    return args


def report(args: argparse.Namespace, rows: list[dict[str, Any]]) -> str:
    """The result as text: a table, or JSON."""
    machine = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": args.threads,
        "load": args.load,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "mujoco": mujoco.__version__,
    }
    title = f"suite {args.suite}" if args.suite else args.target
    if args.json:
        return json.dumps({"target": title, **machine, "rows": rows}, indent=2)
    wide = max(len(row["target"]) for row in rows)
    lines = [
        f"{title}, {args.dtype}, {args.steps} control steps, median of {args.repeats}; "
        + ", ".join(f"{key} {value}" for key, value in machine.items()),
        f"{'':{wide}} {'':12} {'engine':10} {'worlds':>7} {'env-steps/s':>12} {'rollout':>12} "
        f"{'ratio':>7} {'error':>8}",
    ]
    for row in rows:
        lines.append(
            f"{row['target']:{wide}} {row['what']:12} {row['engine']:10} {row['worlds']:7} "
            f"{row['steps_per_s']:12,.0f} {row['mujoco_steps_per_s']:12,.0f} "
            f"{row['ratio']:7.3g} {row['error']:8.0e}"
        )
    return "\n".join(lines)


def main() -> int:
    """Run the benchmarks; 0 when every check passed and the table was printed."""
    args = parse()
    torch.set_num_threads(args.threads)
    args.load = round(os.getloadavg()[0], 1)  # of the machine before the start; a busy one lies
    parts = {"physics": [bench_physics], "env": [bench_env], "both": [bench_physics, bench_env]}
    jobs = [
        (target, part, engine, worlds)
        for target in args.targets
        for part in parts[args.what]
        for engine in args.engine
        for worlds in args.worlds
    ]
    rows, code = [], 0
    repeats = len(jobs) * (args.repeats + 1)
    with tqdm(total=repeats, unit="repeat", leave=False, disable=None) as bar:
        for target, part, engine, worlds in jobs:
            bar.set_description(f"{target} {engine} {worlds} worlds")
            try:
                job = argparse.Namespace(**vars(args) | {"target": target})
                rows.append(part(job, engine, worlds, bar).result())
            except WrongResult as error:
                sys.stderr.write(f"bench: {target}, {engine}, {worlds} worlds: {error}\n")
                code = 1
            except (ValueError, NotImplementedError, RuntimeError) as error:
                sys.stderr.write(f"bench: {target}: {error}\n")
                return 2
    if rows:
        print(report(args, rows))
    return code


if __name__ == "__main__":
    sys.exit(main())
