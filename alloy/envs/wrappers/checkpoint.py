"""Checkpoints: all that a training needs to go on, or its policy to be used elsewhere."""

from __future__ import annotations

import io
import os
import platform
import random
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

FORMAT = 1
PACKAGES = (
    "alloy-engine",
    "torch",
    "mujoco",
    "gymnasium",
    "numpy",
    "tensordict",
    "rsl-rl-lib",
    "torchrl",
    "stable-baselines3",
    "skrl",
)


class CheckpointError(ValueError):
    """A file that is no checkpoint, or one of something else."""


def save(path: Path, values: Mapping[str, Any]) -> None:
    """Write a checkpoint, whole or not at all; equal values give equal bytes.

    Args:
        path: the file; it takes the place of an older one.
        values: plain values and tensors.
    """
    buffer = io.BytesIO()  # a file of its own name would carry it within
    torch.save({"format": FORMAT, **values}, buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".part")
    half.write_bytes(buffer.getvalue())
    os.replace(half, path)


def load(path: Path, device: str | torch.device = "cpu") -> dict[str, Any]:
    """Read a checkpoint; nothing in it is executed.

    Raises:
        CheckpointError: no such file, no checkpoint of this program, or of another version of it.
    """
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint {str(path)!r}")
    try:
        values = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:
        raise CheckpointError(f"{str(path)!r} is no checkpoint: {error}") from error
    if not isinstance(values, dict) or "format" not in values:
        raise CheckpointError(
            f"{str(path)!r} was not written by alloy.envs.wrappers.train; give it the "
            f"checkpoint.pt of one of its runs"
        )
    if values["format"] != FORMAT:
        raise CheckpointError(
            f"{str(path)!r} is a checkpoint of format {values['format']}, and this version reads "
            f"format {FORMAT}; it was written with {values.get('versions')}"
        )
    return values


def check_match(values: Mapping[str, Any], env_id: str, lib: str) -> None:
    """Whether training may go on from a checkpoint.

    Raises:
        CheckpointError: it is of another environment, library, or major version of the library.
    """
    for name, wanted in (("env_id", env_id), ("lib", lib)):
        if values[name] != wanted:
            what = "environment" if name == "env_id" else "library"
            raise CheckpointError(
                f"the checkpoint is of the {what} {values[name]!r}, and {wanted!r} is asked for; "
                f"say {values[name]!r}, or leave out --resume"
            )
    package = {"sb3": "stable-baselines3", "rsl_rl": "rsl-rl-lib"}.get(lib, lib)
    then, now = values["versions"].get(package), versions().get(package)
    if then and now and then.split(".")[0] != now.split(".")[0]:
        raise CheckpointError(
            f"the checkpoint was written with {package} {then}, and {now} is installed; "
            f"pip install '{package}=={then}'"
        )


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that matter, those that are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@lru_cache(maxsize=1)
def git_revision() -> str | None:
    """Commit of Alloy's own checkout, with "+" where something is changed; None outside of one."""
    here = Path(__file__).parents[3]

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        if not Path(git("rev-parse", "--show-toplevel")).samefile(here):
            return None
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def rng_state() -> dict[str, Any]:
    """State of the random generators of torch, numpy and Python, as plain values and tensors."""
    kind, keys, *rest = np.random.get_state()
    version, numbers, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "python": [version, list(numbers), gauss],
    }


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Put back what `rng_state` gave."""
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([s.cpu() for s in state["cuda"]])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.cpu().numpy().astype(np.uint32), *rest))
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
