"""Train every tuned environment with several seeds, and write down what came of it.

    python scripts/training_runs.py                       # all of it: about an hour on two cores
    python scripts/training_runs.py Go2Velocity-v0 --seeds 0
    python scripts/training_runs.py --collect             # only the table and the picture again

Each run is the command that docs/training.md names, in a process of its own, one after another. The
table goes into docs/training.md between its two marks, the curves into docs/training.svg.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import inspect
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE, PICTURE = ROOT / "docs" / "training.md", ROOT / "docs" / "training.svg"
MARKS = ("<!-- results -->", "<!-- end of results -->")
COMMANDS = {
    "GripperLift-v0": ["alloy.envs.wrappers.train", "GripperLift-v0"],
    "Go2Velocity-v0": ["alloy.envs.loco.train"],
    "HalfCheetah-v5": ["alloy.envs.wrappers.train", "HalfCheetah-v5"],
}
COLUMNS = {"GripperLift-v0": "success", "Go2Velocity-v0": "success", "HalfCheetah-v5": "return"}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=inspect.getdoc(inspect.getmodule(main)))
    parser.add_argument("envs", nargs="*", default=[*COMMANDS], help="some of the environments")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--collect", action="store_true", help="train nothing")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "training")
    args = parser.parse_args()
    unknown = [env for env in args.envs if env not in COMMANDS]
    if unknown:
        parser.error(f"{unknown} have no run here; there is {[*COMMANDS]}")
    if not args.collect:
        for env_id in args.envs:
            for seed in args.seeds:
                run(env_id, seed, args.out / f"{env_id}-{seed}")
    collect(args.out)


def run(env_id: str, seed: int, folder: Path) -> None:
    """One training with its evaluation, and for Gymnasium's environment the way back there."""
    command = [sys.executable, "-m", *COMMANDS[env_id], "--seed", str(seed)]
    command += ["--log-dir", str(folder), "--overwrite", "--no-video"]
    subprocess.run(command, check=True, cwd=ROOT)
    if env_id == "HalfCheetah-v5":
        transfer = [sys.executable, "scripts/transfer.py", str(folder / "checkpoint.pt")]
        subprocess.run(transfer, check=True, cwd=ROOT)


def collect(out: Path) -> None:
    """The table and the picture of all runs in a folder."""
    runs = [
        read(folder) for folder in sorted(out.iterdir()) if (folder / "evaluation.json").exists()
    ]
    if not runs:
        raise SystemExit(f"there is no finished run in {out}")
    text = PAGE.read_text()
    head, rest = text.split(MARKS[0])
    tail = rest.split(MARKS[1])[1]
    PAGE.write_text(head + MARKS[0] + "\n\n" + table(runs) + "\n\n" + MARKS[1] + tail)
    draw(runs)


def read(folder: Path) -> dict[str, Any]:
    """What a run left behind."""
    result = json.loads((folder / "evaluation.json").read_text())
    with (folder / "progress.csv").open() as file:
        result["progress"] = list(csv.DictReader(file))
    transfer = folder / "transfer.json"
    if transfer.exists():
        result["transfer"] = json.loads(transfer.read_text())
    return result


def table(runs: list[dict[str, Any]]) -> str:
    """A row for each run."""
    lines = [
        "| environment | seed | env-steps | minutes | held-out episodes | in Gymnasium's own |",
        "|---|---|---|---|---|---|",
    ]
    for r in runs:
        trained = r["trained"]
        mean = r["return"]
        said = f"return {mean['mean']:,.1f} +- {mean['stderr']:.1f}"
        if "success" in r:
            share = r["success"]
            low, high = share["wilson95"]
            said = (
                f"{share['count']} of {r['episodes']} succeed: {share['rate']:.1%} "
                f"({low:.1%} to {high:.1%})"
            )
        away = ""
        if "transfer" in r:
            theirs = r["transfer"]["gymnasium"]
            away = f"return {theirs['mean']:,.0f} +- {theirs['stderr']:.0f}"
        lines.append(
            f"| {r['env_id']} | {trained['seed']} | {trained['env_steps'] / 1e6:.1f} M | "
            f"{trained['train_minutes']:.1f} | {said} | {away} |"
        )
    commits = {(r["trained"]["git"] or "unknown")[:10] for r in runs}
    lines += [
        "",
        f"Taken together on {datetime.date.today()}, {platform.processor() or platform.machine()}, "
        f"two cores, commit {', '.join(sorted(commits))}: `python scripts/training_runs.py`.",
    ]
    return "\n".join(lines)


def draw(runs: list[dict[str, Any]]) -> None:
    """Success or return over the minutes of training, one panel for each environment."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "alloy"  # the same picture from the same numbers
    from matplotlib import pyplot as plt

    envs = list(dict.fromkeys(r["env_id"] for r in runs))
    figure, axes = plt.subplots(1, len(envs), figsize=(4.2 * len(envs), 3.2), squeeze=False)
    for ax, env_id in zip(axes[0], envs, strict=True):
        column = COLUMNS[env_id]
        for r in (r for r in runs if r["env_id"] == env_id):
            rows = [row for row in r["progress"] if row[column] not in ("", "nan")]
            minutes = [float(row["minutes"]) for row in rows]
            values = [float(row[column]) for row in rows]
            ax.plot(minutes, smooth(values), label=f"seed {r['trained']['seed']}", linewidth=1.4)
        ax.set_title(env_id, fontsize=10)
        ax.set_xlabel("minutes of training, two cores")
        ax.set_ylabel(f"{column} in training, with noise", fontsize=8)
        ax.grid(alpha=0.3)
        ax.legend(frameon=False, fontsize=8)
        if column == "success":
            ax.set_ylim(-0.02, 1.02)
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})
    print(f"written to {PICTURE.relative_to(ROOT)} and {PAGE.relative_to(ROOT)}")


def smooth(values: list[float], over: int = 5) -> list[float]:
    """Means over the last few iterations."""
    return [
        sum(values[max(0, i - over + 1) : i + 1]) / len(values[max(0, i - over + 1) : i + 1])
        for i in range(len(values))
    ]


if __name__ == "__main__":
    main()
