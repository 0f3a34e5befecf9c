"""Compare our Gymnasium v5 environments with Gymnasium's own, in full; writes docs/gymnasium.md.

    python scripts/gymnasium_equality.py --write          # all of them
    python scripts/gymnasium_equality.py Hopper Ant       # some, only shown

Per environment: one step from Gymnasium's state at each of 1,000 random-action steps, free runs
from Gymnasium's initial states, and the returns of a random policy in 1,000 episodes.
tests/envs/test_v5_suite.py has the same with smaller counts.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
from pathlib import Path

import gymnasium as gym
import mujoco
import numpy as np
import torch
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from tests.envs import test_v5_returns as returns  # noqa: E402
from tests.envs.test_v5_suite import Moment, free_run, make, one_step, walk  # noqa: E402

ROBOTS = tuple(returns.LIMITS)
STEPS, SHIPPED, BATCH, RUNS = 1000, 200, 200, 3
COLUMNS = ("obs", "reward", "info", "terminations", "as shipped", "free run", "p", "time limit")
HEAD = f"""# Gymnasium's MuJoCo v5 environments beside ours

{{about}}

* obs, reward, info: largest difference, over one more than the value, of one step in float64 from
  Gymnasium's state at each of {STEPS:,} steps with random actions, through as many episodes as that
  takes; the bound is 1e-6. Terminations: steps that ended an episode there, and how many were told
  otherwise here. MuJoCo solves constraints to the minimum in these, by Newton without tolerance.
* as shipped: obs of {SHIPPED} steps against Gymnasium as it is. Newton stops at a tolerance there,
  and the humanoids' files ask for 50 sweeps of PGS, which end well short of the minimum.
* free run: largest difference of an observation within 20 steps from the same initial state, of
  {RUNS} runs; the bound is 1e-4.
* p: whether the returns of a random policy in {returns.EPISODES:,} episodes here and there
  are of one distribution (Kolmogorov and Smirnov); above 0.01 they may be. Gymnasium runs as
  shipped, ours in float32 on `lanes`. The time limit is below Gymnasium's own, to spare time.

Spaces, keyword arguments, info keys and distributions of initial states are compared in the tests:
`tests/envs/test_v5_suite.py`, `tests/envs/test_half_cheetah.py`.

"""


def difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Largest difference over one more than the value."""
    return float((np.abs(ours - theirs) / (1 + np.abs(theirs))).max(initial=0))


def steps(robot: str, moments: list[Moment]) -> dict[str, float]:
    """Largest differences by kind of one step from every moment."""
    env = make(robot, BATCH)
    out: dict[str, float] = dict.fromkeys(("obs", "reward", "info", "ends", "wrong"), 0.0)
    for start in tqdm(range(0, len(moments), BATCH), desc=robot, leave=False, disable=None):
        for key, (ours, theirs) in one_step(env, moments[start : start + BATCH]).items():
            if key == "terminated":
                out["ends"] += theirs.sum()
                out["wrong"] += (ours != theirs).sum()
                continue
            kind = key if key in out else "info"
            out[kind] = max(out[kind], difference(ours, theirs))
    return out


def row(robot: str) -> list[str]:
    """Everything about one environment, as cells of the table."""
    tight = steps(robot, walk(robot, STEPS, seed=1))
    shipped = steps(robot, walk(robot, SHIPPED, seed=2, env=gym.make(f"{robot}-v5").unwrapped))
    apart = max(
        difference(*pair)
        for seed in range(RUNS)
        for ours, theirs in free_run(robot, seed)
        for pair in [(ours[0], theirs[0])]
    )
    p = returns.p_value(returns.our_returns(robot), returns.their_returns(robot))
    ends = f"{tight['ends']:.0f}, {tight['wrong']:.0f} wrong"
    errors = [f"{tight[kind]:.0e}" for kind in ("obs", "reward", "info")]
    rest = [ends, f"{shipped['obs']:.0e}", f"{apart:.0e}", f"{p:.2f}", str(returns.LIMITS[robot])]
    return [f"{robot}-v5", *errors, *rest]


def about() -> str:
    """When, where and how."""
    when = datetime.datetime.now(datetime.timezone.utc).date()
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    versions = (
        f"Gymnasium {gym.__version__}, MuJoCo {mujoco.__version__}, torch {torch.__version__}"
    )
    return (
        f"Measured on {when}, {machine}, {versions}, by\n"
        "`python scripts/gymnasium_equality.py --write`."
    )


def main() -> int:
    """Compare, show, and write the page if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("robots", nargs="*", default=ROBOTS, help=", ".join(ROBOTS))
    parser.add_argument("--write", action="store_true", help="write docs/gymnasium.md")
    args = parser.parse_args()
    lines = [f"| environment | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    print("\n".join(lines))
    with tqdm(args.robots, unit="environment", leave=False, disable=None) as bar:
        for robot in bar:
            lines.append(f"| {' | '.join(row(robot))} |")
            tqdm.write(lines[-1])
            sys.stdout.flush()
            if args.write:
                page = HEAD.format(about=about()) + "\n".join(lines) + "\n"
                (ROOT / "docs" / "gymnasium.md").write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
