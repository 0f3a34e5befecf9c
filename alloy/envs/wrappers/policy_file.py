"""A policy as a file: weights alone (safetensors), TorchScript or ONNX; each is read again."""

from __future__ import annotations

import importlib.util
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from alloy.envs.wrappers import checkpoint
from alloy.envs.wrappers.policy import Policy

FORMAT = "alloy policy 1"
PARITY = 1e-5  # largest difference of an action that an exported policy may have


class PolicyFileError(ValueError):
    """A file that holds no policy, or one that could not be written as asked for."""


def save_weights(policy: Policy, path: Path, about: Mapping[str, Any]) -> None:
    """Write a policy as safetensors: its weights, its sizes, and what is said `about` it.

    Raises:
        PolicyFileError: safetensors is not installed.
    """
    need("safetensors", path)
    from safetensors.torch import save_file

    packed = policy.packed()
    said = {"format": FORMAT, "config": json.dumps(packed["config"]), "about": json.dumps(about)}
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {name: value.contiguous() for name, value in packed["state"].items()}
    save_file(state, str(path), metadata=said)


def load_policy(path: Path) -> tuple[Policy, dict[str, Any]]:
    """A policy of a `.safetensors` file or of a checkpoint, and what is known about it.

    Raises:
        PolicyFileError: no such file, or no policy in it.
        CheckpointError: a checkpoint that cannot be read.
    """
    if not path.is_file():
        raise PolicyFileError(f"there is no policy {str(path)!r}")
    if path.suffix != ".safetensors":
        saved = checkpoint.load(path)
        kept = ("env_id", "lib", "seed", "iteration", "env_steps", "recipe")
        return Policy.unpacked(saved["policy"]), {name: saved[name] for name in kept}
    need("safetensors", path)
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), "pt") as file:
            said = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}
    except SafetensorError as error:
        raise PolicyFileError(f"{str(path)!r} is no safetensors file: {error}") from error
    if said.get("format") != FORMAT:
        raise PolicyFileError(
            f"{str(path)!r} holds no policy of this version: its format is {said.get('format')!r}, "
            f"not {FORMAT!r}"
        )
    policy = Policy.unpacked({"config": json.loads(said["config"]), "state": state})
    return policy, json.loads(said["about"])


def export(policy: Policy, path: Path) -> float:
    """Write a policy for use elsewhere, and compare what it says there.

    Its input `obs` [W, n] is the observation as the environment gives it, its output `action`
    [W, A] is in the environment's units; W may be any number.

    Args:
        policy: on the CPU.
        path: `.onnx`, or `.pt` (or `.ts`) for TorchScript.

    Returns:
        The largest difference of an action, over 256 random observations.

    Raises:
        PolicyFileError: another ending, a package that is missing, or actions that differ by more
            than 1e-5; the file is then taken away again.
    """
    kinds = {".onnx": _onnx, ".pt": _torchscript, ".ts": _torchscript}
    if path.suffix not in kinds:
        raise PolicyFileError(f"a policy is exported as one of {[*kinds]}, not {path.suffix!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    draw = torch.Generator().manual_seed(0)
    obs = torch.randn(256, policy.config["sizes"][0], generator=draw)
    obs = policy.mean + 2.0 * obs / policy.scale  # as large as those that it was trained on
    theirs = kinds[path.suffix](policy, path, obs)
    difference = float((theirs - policy(obs)).abs().max())
    if not difference <= PARITY:
        path.unlink()
        raise PolicyFileError(
            f"the exported policy's actions differ by {difference:.2g}, at most {PARITY:g} is "
            f"allowed; {str(path)!r} was not kept"
        )
    return difference


def _torchscript(policy: Policy, path: Path, obs: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather have us use torch.export
        torch.jit.script(policy).save(str(path))
        return torch.jit.load(str(path))(obs)


def _onnx(policy: Policy, path: Path, obs: torch.Tensor) -> torch.Tensor:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        need(package, path)
    import onnxruntime

    with warnings.catch_warnings(), _silent("torch.onnx", "onnxscript", "onnx_ir"):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            policy,
            (obs,),
            str(path),
            input_names=["obs"],
            output_names=["action"],
            dynamic_shapes={"obs": {0: torch.export.Dim("worlds")}},
            external_data=False,
            verbose=False,
        )
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rows = [session.run(["action"], {"obs": part.numpy()})[0] for part in (obs[:1], obs[1:])]
    return torch.cat([torch.from_numpy(row) for row in rows])


@contextmanager
def _silent(*loggers: str) -> Iterator[None]:
    """Loggers that say nothing below an error: what exporters tell of their passes helps nobody."""
    levels = {name: logging.getLogger(name).level for name in loggers}
    try:
        for name in loggers:
            logging.getLogger(name).setLevel(logging.ERROR)
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def need(package: str, path: Path) -> None:
    """Refuse to go on without a package, with the line for pip.

    Raises:
        PolicyFileError: it is not installed.
    """
    if importlib.util.find_spec(package) is None:
        raise PolicyFileError(
            f"{path.suffix} files need {package}, which is not installed: pip install {package}"
        )
