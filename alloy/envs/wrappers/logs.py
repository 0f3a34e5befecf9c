"""Logs of a training: a progress bar, a CSV file, and TensorBoard's."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from alloy.envs.recipes import Recipe

BAR = "{desc} {n_fmt}/{total_fmt} |{bar}| {elapsed}{postfix}"


class Logs:
    """Where the numbers of every iteration go."""

    def __init__(
        self,
        folder: Path | None,
        recipe: Recipe,
        iteration: int,
        progress: bool,
        has_success: bool,
    ) -> None:
        """Open the files in a folder, if one is given; an earlier run's rows stay in front."""
        self._recipe, self._first, self._has_success = recipe, iteration, has_success
        self._seen: dict[str, float] = {}
        self._bar = tqdm(
            total=recipe.iterations,
            initial=iteration,
            desc=recipe.env_id,
            bar_format=BAR,
            disable=not progress,
        )
        self._writer, self._file, self._csv = None, None, None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "recipe.json").write_text(json.dumps(recipe.to_dict(), indent=2) + "\n")
            self._writer = SummaryWriter(str(folder))
            self._file = (folder / "progress.csv").open("a" if iteration else "w", newline="")

    def write(
        self,
        counts: Mapping[str, float],
        episodes: Mapping[str, float],
        losses: Mapping[str, float],
    ) -> None:
        """Take in an iteration.

        Args:
            counts: "iteration", "env_steps", "minutes" and "env_steps_per_s".
            episodes: what `EpisodeStatistics.summary` says.
            losses: what the library says.
        """
        told = dict(episodes)
        if not self._has_success:
            del told["success"]
        row = {
            **counts,
            **told,
            **{f"learn/{k}": float(v) for k, v in losses.items()},
        }
        if self._writer is not None and self._file is not None:
            if self._csv is None:
                self._csv = csv.DictWriter(self._file, list(row))
                if self._file.tell() == 0:
                    self._csv.writeheader()
            self._csv.writerow(row)
            self._file.flush()
            for name, value in row.items():
                if not math.isnan(value):
                    tag = name if "/" in name else f"train/{name}"
                    self._writer.add_scalar(tag, value, int(counts["env_steps"]))
        self._show(counts, told)

    def close(self) -> None:
        """Close the bar and the files."""
        self._bar.close()
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.close()

    def _show(self, counts: Mapping[str, float], told: Mapping[str, float]) -> None:
        self._seen |= {k: v for k, v in told.items() if not math.isnan(v)}
        said = f", {counts['env_steps_per_s']:,.0f} env-steps/s, {_clock(self._left(counts))} left"
        if "return" in self._seen:
            said = f", reward {self._seen['return']:.2f}" + said
        if "success" in self._seen:
            said = f", success {self._seen['success']:.0%}" + said
        self._bar.set_postfix_str(said.removeprefix(", "), refresh=False)
        self._bar.update(int(counts["iteration"]) - self._bar.n)

    def _left(self, counts: Mapping[str, float]) -> float:
        """Minutes that are left."""
        done = counts["iteration"] - self._first
        left = counts["minutes"] / done * (self._recipe.iterations - counts["iteration"])
        limit = self._recipe.minutes
        return left if limit is None else max(min(left, limit - counts["minutes"]), 0.0)


def _clock(minutes: float) -> str:
    seconds = round(minutes * 60)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def write_json(path: Path, values: Any) -> None:
    """Write plain values as a JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=2) + "\n")
