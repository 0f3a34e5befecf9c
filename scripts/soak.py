"""Run every shipped environment for very long at random, and see that nothing is lost.

For each environment: no value that leaves the API is infinite or not a number, no world turns
invalid, every world goes on beginning and ending episodes, and the process does not grow.

    python scripts/soak.py                      # 100,000 control steps of 256 worlds of each
    python scripts/soak.py HalfCheetah-v5 --steps 2000 --json out/soak.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

import alloy

MARKS = (0.1, 0.5, 1.0)  # of the steps, where memory is looked at; the first is warmed up


@dataclass
class Soak:
    """What one environment's run showed."""

    env: str
    engine: str
    worlds: int
    steps: int
    seconds: float = 0.0
    non_finite: int = 0  # values that left the API
    invalid: int = 0  # world-steps in which a world was frozen
    bad_action: int = 0  # world-steps whose action was refused
    episodes_least: int = 0  # ended, in the world that ended the fewest
    episodes_most: int = 0
    memory: list[float] = field(default_factory=list)  # resident, MB, at MARKS
    complaints: list[str] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """From the first mark to the last, MB."""
        return self.memory[-1] - self.memory[0]


def soak(env_id: str, args: argparse.Namespace, bar: tqdm) -> Soak:
    """Step one environment at random from start to end."""
    env = alloy.envs.make(env_id, args.worlds, seed=args.seed, engine=args.engine)
    result = Soak(env_id, env.sim.engine_report()["engine"], args.worlds, args.steps)
    low = torch.as_tensor(env.single_action_space.low)
    high = torch.as_tensor(env.single_action_space.high)
    draw = torch.Generator().manual_seed(args.seed)
    episodes = torch.zeros(args.worlds, dtype=torch.int64)
    marks = {max(1, round(args.steps * mark)) for mark in MARKS}
    obs, info = env.reset(seed=args.seed)
    result.non_finite += non_finite((obs, info))
    began = time.perf_counter()
    for step in range(1, args.steps + 1):
        if step == 2:  # the first one compiles
            began = time.perf_counter()
        action = low + (high - low) * torch.rand(args.worlds, len(low), generator=draw)
        out = env.step(action)
        info = out[4]
        result.non_finite += non_finite(out)
        result.invalid += int(info["invalid"].sum())
        result.bad_action += int(info["bad_action"].sum())
        episodes += info["_episode"]
        if step in marks:
            result.memory.append(resident())
        bar.update()
    result.seconds = time.perf_counter() - began
    result.episodes_least, result.episodes_most = int(episodes.min()), int(episodes.max())
    result.complaints = complaints(result, env, args)
    env.close()
    return result


def complaints(result: Soak, env: alloy.envs.VectorEnv, args: argparse.Namespace) -> list[str]:
    """What is wrong with a run, in words; nothing if it was sound."""
    said = []
    if result.non_finite:
        said.append(f"{result.non_finite} values that are not finite left the environment")
    if result.invalid:
        said.append(f"{result.invalid} world-steps were invalid")
    if result.bad_action:
        said.append(f"{result.bad_action} actions within the bounds were refused")
    limit = env.task.max_steps
    due = 0 if limit is None else args.steps // limit
    if result.episodes_least < due:
        said.append(
            f"a world ended {result.episodes_least} episodes; with at most {limit} steps each, "
            f"{args.steps} steps hold at least {due}"
        )
    if result.growth > args.growth:
        said.append(f"memory grew by {result.growth:.1f} MB, more than {args.growth:g} MB")
    report = env.sim.engine_report()
    if args.engine in ("auto", "lanes") and (
        report["engine"] != "lanes" or "on reference" in report
    ):
        said.append(f"not all ran on lanes: {report.get('on reference', report['engine'])}")
    return said


def leaves(tree: Any) -> Iterator[Tensor]:
    """Every tensor in what an environment returns."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, (tuple, list)):
        for value in tree:
            yield from leaves(value)


def non_finite(tree: Any) -> int:
    """How many numbers in it are infinite or not a number."""
    real = [t.reshape(-1) for t in leaves(tree) if t.is_floating_point()]
    everything = torch.cat(real)
    # one sum looks at all; it may itself overflow, and then the count decides
    if torch.isfinite(everything.sum()):
        return 0
    return int((~torch.isfinite(everything)).sum())


def resident() -> float:
    """Memory of this process that is resident now, MB."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except FileNotFoundError:  # not Linux: the peak, which shows growth as well
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def table(results: list[Soak]) -> str:
    """The results as lines of text."""
    lines = [
        f"{'environment':18} {'engine':9} {'worlds':>6} {'steps':>8} {'steps/s':>10} "
        f"{'not finite':>10} {'invalid':>8} {'episodes of a world':>20} "
        f"{'MB at 10, 50, 100 %':>24}"
    ]
    for r in results:
        rate = r.worlds * r.steps / r.seconds
        episodes = f"{r.episodes_least} to {r.episodes_most}"
        memory = ", ".join(f"{m:.1f}" for m in r.memory)
        lines.append(
            f"{r.env:18} {r.engine:9} {r.worlds:6} {r.steps:8,} {rate:10,.0f} "
            f"{r.non_finite:10} {r.invalid:8} {episodes:>20} {memory:>24}"
        )
        lines += [f"  {r.env}: {said}" for said in r.complaints]
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    """The command line, checked."""
    known = alloy.envs.list()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("envs", nargs="*", help=f"ids; by default all of {', '.join(known)}")
    add("--worlds", type=int, default=256)
    add("--steps", type=int, default=100_000, help="control steps, at least 10")
    add("--engine", default="lanes")
    add("--seed", type=int, default=0)
    add("--growth", type=float, default=4.0, help="MB that memory may grow from 10 %% to 100 %%")
    add("--json", type=Path, default=None, help="write the results to this file too")
    args = parser.parse_args()
    args.envs = args.envs or known
    unknown = [name for name in args.envs if name not in known]
    if unknown:
        parser.error(f"unknown environments {unknown}; there are {known}")
    if args.worlds < 1 or args.steps < 10:
        parser.error("--worlds is at least 1 and --steps at least 10")
    return args


def main() -> int:
    """Run them one after the other; 0 when nothing was wrong."""
    args = parse()
    results = []
    with tqdm(total=len(args.envs) * args.steps, unit="step", disable=None) as bar:
        for name in args.envs:
            bar.set_description(name)
            results.append(soak(name, args, bar))
    print(table(results))
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        rows = [asdict(r) | {"growth": r.growth} for r in results]
        args.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 1 if any(r.complaints for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
