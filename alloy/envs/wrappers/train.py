"""Train a policy with the library of your choice, and say honestly what it is worth.

    python -m alloy.envs.wrappers.train GripperLift-v0 --lib rsl_rl
    python -m alloy.envs.wrappers.train GripperLift-v0 --resume out/.../checkpoint.pt
    python -m alloy.envs.wrappers.train GripperLift-v0 --eval out/.../checkpoint.pt
    torchrun --nproc-per-node 2 -m alloy.envs.wrappers.train GripperLift-v0

The log directory gets `checkpoint.pt`, `progress.csv`, TensorBoard's files, `recipe.json`,
`evaluation.json` and, where there is OpenGL, `policy.gif`.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import alloy.envs
from alloy.envs.recipes import Recipe
from alloy.envs.recipes import recipe as recipe_of
from alloy.envs.wrappers import checkpoint
from alloy.envs.wrappers.policy import Policy
from alloy.scene_checks import suggestion

log = logging.getLogger("alloy.train")

# library -> what it is imported as, and what pip calls it
LIBRARIES = {
    "rsl_rl": {"rsl_rl": "rsl-rl-lib>=3.0", "tensordict": "tensordict"},
    "torchrl": {"torchrl": "torchrl>=0.9"},
    "sb3": {"stable_baselines3": "stable-baselines3>=2.4"},
    "skrl": {"skrl": "skrl>=1.4"},
}
TOGETHER = ("rsl_rl", "torchrl")  # those that train in several processes
COMMON = {"tensorboard": "tensorboard>=2.17", "tqdm": "tqdm>=4.66"}


class Refused(ValueError):
    """Nothing was trained, and the message says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status is 0, 1 for a training that diverged, 2 for a refusal."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    args = parser().parse_args(arguments)
    try:
        return command(args)
    except (Refused, checkpoint.CheckpointError) as error:
        log.error("%s", error)
        return 2


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    p = argparse.ArgumentParser(prog="python -m alloy.envs.wrappers.train", description=__doc__)
    p.formatter_class = argparse.RawDescriptionHelpFormatter
    p.add_argument("env_id", help="one of alloy.envs.list()")
    p.add_argument("--lib", default="rsl_rl", help=f"one of {', '.join(LIBRARIES)}")
    p.add_argument("--worlds", type=int, help="number of worlds in each process")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--device", default="cpu")
    p.add_argument("--engine", default="auto")
    p.add_argument("--threads", type=int, default=2, help="of torch, on a CPU")
    p.add_argument("--iterations", type=int, help="updates after which to stop")
    p.add_argument("--minutes", type=float, help="wall time after which to stop")
    p.add_argument("--episodes", type=int, help="held-out episodes of the evaluation")
    p.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="of the recipe")
    p.add_argument("--env", nargs="+", default=[], metavar="NAME=VALUE", help="of the environment")
    p.add_argument("--log-dir", type=Path, help="out/train/<env>-<lib>-<seed> if not given")
    p.add_argument("--overwrite", action="store_true", help="a run that is in the log directory")
    p.add_argument("--save-every", type=int, default=50, help="iterations between checkpoints")
    p.add_argument("--resume", type=Path, metavar="CHECKPOINT", help="go on from it")
    p.add_argument("--eval", type=Path, metavar="CHECKPOINT", help="evaluate it, train nothing")
    p.add_argument("--no-video", action="store_true")
    p.add_argument("--no-progress", action="store_true")
    return p


def command(args: argparse.Namespace) -> int:
    """Train, evaluate, or both.

    Raises:
        Refused, CheckpointError: nothing was trained, and the message says why.
    """
    check_known(args.env_id, args.lib)
    saved = checkpoint.load(args.resume or args.eval) if args.resume or args.eval else None
    if saved is not None:
        checkpoint.check_match(saved, args.env_id, args.lib if args.resume else saved["lib"])
    recipe = chosen_recipe(args, saved)
    if args.eval:
        policy = Policy.unpacked(saved["policy"]) if saved else None
        assert policy is not None and saved is not None
        folder = args.log_dir or args.eval.parent
        report(recipe, policy, args, folder, saved)
        return 0
    check_installed(args.lib)
    check_processes(args.lib, int(os.environ.get("WORLD_SIZE", "1")))
    folder = folder_of(args)
    if not args.resume and (folder / "checkpoint.pt").exists() and not args.overwrite:
        raise Refused(
            f"{folder} holds a run already; go on with --resume {folder / 'checkpoint.pt'}, "
            f"choose another --log-dir, or say --overwrite"
        )
    return train_and_report(recipe, args, folder, saved)


def folder_of(args: argparse.Namespace) -> Path:
    """Where the files of a training go."""
    if args.log_dir or args.resume:
        return args.log_dir or args.resume.parent
    return Path("out/train") / f"{args.env_id}-{args.lib}-{args.seed}"


def train_and_report(
    recipe: Recipe, args: argparse.Namespace, folder: Path, saved: Mapping[str, Any] | None
) -> int:
    """The training itself, then the held-out episodes, by the leading process.

    Returns:
        0, or 1 where the training diverged.
    """
    from alloy.envs.wrappers.run import (
        Diverged,
        Options,
        Run,
    )  # needs what check_installed looked for

    trainer = importlib.import_module(f"alloy.envs.wrappers.train_{args.lib}")
    options = Options(
        recipe,
        lib=args.lib,
        seed=args.seed,
        device=args.device,
        engine=args.engine,
        threads=args.threads,
        log_dir=folder,
        save_every=args.save_every,
        progress=not args.no_progress,
    )
    try:
        run = Run(options, saved)
    except (ValueError, TypeError, RuntimeError, OSError) as error:
        raise Refused(str(error)) from error
    leads, started = run.processes.leads, time.monotonic()
    try:
        policy = trainer.train(run)
    except Diverged as error:
        log.error("%s", error)
        return 1
    except KeyboardInterrupt:
        log.warning(
            "stopped in iteration %d; the last checkpoint can be resumed", run.iteration + 1
        )
        raise
    finally:
        run.close()
    if leads:
        minutes = (time.monotonic() - started) / 60.0
        values = checkpoint.load(folder / "checkpoint.pt")
        report(recipe, policy, args, folder, values, minutes)
    return 0


def report(
    recipe: Recipe,
    policy: Policy,
    args: argparse.Namespace,
    folder: Path,
    saved: Mapping[str, Any],
    minutes: float | None = None,
) -> None:
    """Evaluate a policy on held-out episodes, write `evaluation.json`, and draw it."""
    from alloy.envs.wrappers.evaluate import held_out
    from alloy.envs.wrappers.logs import write_json

    policy = policy.to(args.device)
    kept = ("env_id", "lib", "seed", "iteration", "env_steps", "processes", "versions", "git")
    about = {name: saved[name] for name in kept}
    about |= {"worlds": recipe.worlds, "train_minutes": minutes, "command": sys.argv[1:]}
    result = held_out(policy, recipe, device=args.device, engine=args.engine)
    values = result | {"trained": about}
    write_json(folder / "evaluation.json", values)
    log.info("%s", said(recipe, result))
    log.info("written to %s", folder / "evaluation.json")
    if not args.no_video:
        draw(recipe, policy, args, folder / "policy.gif")


def draw(recipe: Recipe, policy: Policy, args: argparse.Namespace, path: Path) -> None:
    """Draw a policy at work, or say why it cannot be drawn here."""
    from alloy.envs.wrappers import video
    from alloy.envs.wrappers.evaluate import HELD_OUT

    options = {**recipe.env, "render_mode": "rgb_array", "width": 320, "height": 240}
    env = alloy.envs.make(recipe.env_id, 1, engine=args.engine, device=args.device, **options)
    try:
        video.record(policy.act, env, path, seed=HELD_OUT)
        log.info("drawn in %s", path)
    except (ImportError, RuntimeError) as error:
        log.warning("no picture was drawn: %s", error)
    finally:
        env.close()


def said(recipe: Recipe, result: Mapping[str, Any]) -> str:
    """The evaluation in a line."""
    mean = result["return"]
    words = f"{result['episodes']} held-out episodes of {recipe.env_id}: "
    words += f"mean return {mean['mean']:.2f} +- {mean['stderr']:.2f}"
    if "success" in result:
        share = result["success"]
        low, high = share["wilson95"]
        words += f", success {share['rate']:.1%} (95 % interval {low:.1%} to {high:.1%})"
    if result["bar"] is not None:
        words += ", the bar is reached" if result["bar"] else ", below the bar"
    return words


def check_known(env_id: str, lib: str) -> None:
    """Refuse an environment or a library that is not known, with the list.

    Raises:
        Refused: with near matches.
    """
    known = {"environment": (env_id, alloy.envs.list()), "library": (lib, [*LIBRARIES])}
    for what, (name, names) in known.items():
        if name not in names:
            hint = suggestion(name, names)
            raise Refused(f"{what} {name!r} is not known{hint} There is {names}.")


def check_installed(lib: str) -> None:
    """Refuse to begin without the packages that training needs.

    Raises:
        Refused: with the line for pip.
    """
    missing = [
        wanted
        for name, wanted in (LIBRARIES[lib] | COMMON).items()
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        line = " ".join(f"'{wanted}'" for wanted in missing)
        raise Refused(f"--lib {lib} needs packages that are not installed: pip install {line}")


def check_processes(lib: str, count: int) -> None:
    """Refuse several processes where a library has no way of its own to train in them.

    Raises:
        Refused: with the libraries that have.
    """
    if count > 1 and lib not in TOGETHER:
        raise Refused(
            f"--lib {lib} trains in one process, and torchrun has started {count}; leave torchrun "
            f"out, or take one of {[*TOGETHER]}"
        )


def chosen_recipe(args: argparse.Namespace, saved: Mapping[str, Any] | None) -> Recipe:
    """The environment's recipe, or the checkpoint's, with what the flags change.

    Raises:
        Refused: a flag that does not fit a recipe.
    """
    recipe = recipe_of(args.env_id) if saved is None else Recipe.from_dict(saved["recipe"])
    changes = pairs(args.set, "--set")
    for name in ("worlds", "iterations", "minutes", "episodes"):
        if getattr(args, name) is not None:
            changes[name] = getattr(args, name)
    if args.env:
        changes["env"] = {**recipe.env, **pairs(args.env, "--env")}
    try:
        return recipe.changed(**changes)
    except (ValueError, TypeError) as error:
        raise Refused(str(error)) from error


def pairs(texts: Sequence[str], flag: str) -> dict[str, Any]:
    """NAME=VALUE pairs; a value is read as Python's where it is a number, list or name of one.

    Raises:
        Refused: a text without "=".
    """
    out = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise Refused(f"{flag} takes NAME=VALUE, not {text!r}")
        try:
            out[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            out[name] = value
    return out


if __name__ == "__main__":
    sys.exit(main())
