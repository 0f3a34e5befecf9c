"""HalfCheetah beside EnvPool: environment steps per second, taken in turns in one run.

EnvPool lives in a virtual environment of its own (out/envpool, made on first use) and runs in a
process of its own, which waits without work while Alloy runs. Both have the same number of worlds
and threads and step uniform random actions with observations, rewards and resets; EnvPool is taken
in its synchronous mode and in its asynchronous one, where it returns as soon as a quarter of the
worlds are done. Before anything is timed, one control step of Alloy is compared with MuJoCo's.

    python scripts/bench_envpool.py
    python scripts/bench_envpool.py --worlds 256 1024 --repeats 9 --json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench import TOLERANCE, Oracle, WrongResult, as_numpy, check, clocked
from tqdm import tqdm

import alloy

VENV = Path(__file__).parent.parent / "out" / "envpool"
MODES = {"sync": 1, "async": 4}  # name: how many parts EnvPool returns the worlds in

# Runs in EnvPool's environment: answers one line of JSON to each line it is sent.
WORKER = """
import json, sys, time
import envpool, numpy as np
task, worlds, threads, steps = sys.argv[1], *map(int, sys.argv[2:5])
envs = {}
for mode, parts in json.loads(sys.argv[5]).items():
    batch = worlds // parts
    env = envpool.make(task, env_type="gymnasium", num_envs=worlds, batch_size=batch,
                       num_threads=threads, seed=0)
    size = env.action_space.shape[0]
    actions = np.random.default_rng(0).uniform(-1, 1, (steps * parts, batch, size))
    if parts > 1:
        env.async_reset()
    else:
        env.reset()
    envs[mode] = env, parts, actions
print(json.dumps({"envpool": envpool.__version__}), flush=True)
for line in sys.stdin:
    env, parts, actions = envs[line.strip()]
    total = 0.0
    began = time.perf_counter()
    if parts > 1:
        for action in actions:
            out = env.recv()
            total += float(out[1].sum())
            env.send(action, out[4]["env_id"])
    else:
        for action in actions:
            total += float(env.step(action)[1].sum())
    print(json.dumps({"seconds": time.perf_counter() - began, "reward": total}), flush=True)
"""


class Unavailable(RuntimeError):
    """EnvPool cannot be had here."""


def install(folder: Path) -> Path:
    """The Python of an environment that has EnvPool; made if it is not there.

    Raises:
        Unavailable: the package index has no EnvPool for this machine, or cannot be reached.
    """
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    have = [str(python), "-c", "import envpool"]
    if python.exists() and subprocess.run(have, capture_output=True, check=False).returncode == 0:
        return python
    sys.stderr.write(f"bench_envpool: installing EnvPool into {folder}\n")
    venv.create(folder, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "envpool", "numpy<2"], capture_output=True, text=True, check=False)
    works = subprocess.run(have, capture_output=True, text=True, check=False)
    if works.returncode:
        said = (done.stderr.strip() or works.stderr.strip()).splitlines()
        raise Unavailable(said[-1] if said else "pip said nothing")
    return python


class EnvPool:
    """EnvPool's HalfCheetah in its own process."""

    def __init__(self, python: Path, task: str, worlds: int, args: argparse.Namespace) -> None:
        """Start it and wait until its worlds are there."""
        sizes = [str(x) for x in (worlds, args.threads, args.steps)]
        self.process = subprocess.Popen(
            [str(python), "-c", WORKER, task, *sizes, json.dumps(MODES)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.version = self._answer()["envpool"]

    def run(self, mode: str) -> float:
        """Seconds of the steps of one repeat."""
        assert self.process.stdin is not None
        self.process.stdin.write(mode + "\n")
        self.process.stdin.flush()
        return self._answer()["seconds"]

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"EnvPool's process ended with code {self.process.wait()}")
        return json.loads(line)


def measure(python: Path, worlds: int, args: argparse.Namespace, bar: tqdm) -> dict[str, Any]:
    """Rates of both at one number of worlds, taken in turns."""
    env = alloy.envs.make("HalfCheetah-v5", worlds, seed=0, engine=args.engine)
    draw = np.random.default_rng(0)
    size = env.single_action_space.shape[0]
    actions = [
        torch.as_tensor(draw.uniform(-1, 1, (worlds, size)).astype(np.float32))
        for _ in range(args.steps)
    ]
    error = one_step(env, actions[0], args)
    env.reset(seed=0)
    other = EnvPool(python, args.task, worlds, args)
    ours: list[float] = []
    theirs: dict[str, list[float]] = {mode: [] for mode in MODES}
    for repeat in range(args.repeats + 1):  # the first one only warms up
        seconds = {mode: other.run(mode) for mode in MODES}
        own = clocked(env.device, lambda: [env.step(action) for action in actions])
        if repeat:
            ours.append(own)
            for mode in MODES:
                theirs[mode].append(seconds[mode])
        bar.update()
    other.close()
    work = worlds * args.steps
    ratios = {
        mode: statistics.median(t / o for t, o in zip(theirs[mode], ours, strict=True))
        for mode in MODES
    }
    return {
        "worlds": worlds,
        "engine": env.sim.engine_report()["engine"],
        "alloy": work / statistics.median(ours),
        "envpool": {mode: work / statistics.median(theirs[mode]) for mode in MODES},
        "ratio": min(ratios.values()),
        "ratios": ratios,
        "error": error,
        "version": other.version,
        "seconds": {"alloy": ours, **theirs},
    }


def one_step(env: alloy.envs.VectorEnv, action: torch.Tensor, args: argparse.Namespace) -> float:
    """Error of one step of the environment against MuJoCo from the same state."""
    env.reset(seed=0)
    sim = env.sim
    columns = [as_numpy(x) for x in (sim.qpos, sim.qvel, sim.act)]
    start = np.concatenate([np.zeros((sim.num_worlds, 1)), *columns], axis=1)
    env.step(action)
    oracle = Oracle(sim.mj_model, sim.substeps, args.threads)
    return check(oracle, sim, start, as_numpy(sim.ctrl)[None], None, args)


def parse() -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--worlds", type=int, nargs="+", default=[1024])
    add("--steps", type=int, default=50, help="control steps in one repeat")
    add("--repeats", type=int, default=5, help="timed repeats, 5 or more")
    add("--threads", type=int, default=os.cpu_count() or 1, help="for both")
    add("--engine", default="auto", help="of Alloy")
    add("--task", default="HalfCheetah-v5", help="EnvPool's id")
    add("--venv", type=Path, default=VENV, help="where EnvPool is, or is to be installed")
    add("--tolerance", type=float, default=TOLERANCE["float32"], help="of the check")
    add("--json", action="store_true", help="print JSON instead of the table")
    args = parser.parse_args()
    if min(args.worlds) < max(MODES.values()) or args.steps < 1 or args.repeats < 5:
        parser.error(f"--worlds {args.worlds}, --steps {args.steps}, --repeats {args.repeats}: "
                     f"at least {max(MODES.values())}, 1 and 5")  # fmt: skip
    return args


def main() -> int:
    """Measure; 0 also where EnvPool cannot be had, which is then said."""
    args = parse()
    torch.set_num_threads(args.threads)
    try:
        python = install(args.venv)
    except Unavailable as error:
        print(f"bench_envpool: skipped, EnvPool cannot be installed here: {error}")
        return 0
    load = round(os.getloadavg()[0], 1)
    rows = []
    with tqdm(total=len(args.worlds) * (args.repeats + 1), leave=False, disable=None) as bar:
        for worlds in args.worlds:
            try:
                rows.append(measure(python, worlds, args, bar))
            except WrongResult as error:
                sys.stderr.write(f"bench_envpool: {worlds} worlds: {error}\n")
                return 1
    if args.json:
        print(json.dumps({"threads": args.threads, "load": load, "rows": rows}, indent=2))
        return 0
    print(
        f"HalfCheetah-v5, {args.steps} control steps, median of {args.repeats}, {args.threads} "
        f"threads each, load {load} before; EnvPool {rows[0]['version']} ({args.task})\n"
        f"{'engine':10} {'worlds':>7} {'alloy':>10} "
        + " ".join(f"{'envpool ' + mode:>14}" for mode in MODES)
        + f" {'ratio':>7} {'error':>8}"
    )
    for row in rows:
        rates = " ".join(f"{row['envpool'][mode]:14,.0f}" for mode in MODES)
        print(
            f"{row['engine']:10} {row['worlds']:7} {row['alloy']:10,.0f} {rates} "
            f"{row['ratio']:7.3g} {row['error']:8.0e}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
