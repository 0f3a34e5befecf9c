"""What a walking policy is worth, in episodes that no training has seen.

    python -m alloy.envs.loco.evaluate                    # the policy that comes with Alloy
    python -m alloy.envs.loco.evaluate out/train/Go2Velocity-v0-rsl_rl-0/checkpoint.pt

The rule: an episode lasts 20 s, with commands drawn anew every 5 s, pushes every 4 s, and friction,
mass, centre of mass and gains drawn for each episode. It succeeds where the robot does not fall and
the mean error of its planar velocity is at most 0.25 m/s and that of its turning rate at most
0.25 rad/s, all steps counted. Every world plays one episode, with the policy's mean actions; their
seeds are never used in training. Prints a table by command, and writes it all as JSON.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alloy.envs.loco import ENV_ID, SHIPPED
from alloy.envs.loco.by_command import ByCommand, text
from alloy.envs.loco.task import LINEAR_BOUND, TURNING_BOUND
from alloy.envs.loco.terms import Commands
from alloy.envs.registry import make
from alloy.envs.wrappers.checkpoint import CheckpointError
from alloy.envs.wrappers.evaluate import HELD_OUT, evaluate
from alloy.envs.wrappers.logs import write_json
from alloy.envs.wrappers.policy import Policy
from alloy.envs.wrappers.policy_file import PolicyFileError, load_policy
from alloy.envs.wrappers.train import Refused, pairs

log = logging.getLogger("alloy.loco")
# the task's greatest commands: m/s, m/s, rad/s
SPANS = (Commands.vx[1], Commands.vy[1], Commands.yaw[1])
RULE = {
    "episode_seconds": 20.0,
    "fall": "the trunk touches the ground or leans by more than 1 rad",
    "mean_linear_error_at_most": LINEAR_BOUND,
    "mean_turning_error_at_most": TURNING_BOUND,
    "first_seed": HELD_OUT,
}


def walk(policy: Policy, episodes: int = 256, **options: Any) -> dict[str, Any]:
    """Play held-out episodes.

    Args:
        policy: on the device of the worlds.
        episodes: how many, each in a world of its own.
        **options: of `alloy.envs.make("Go2Velocity-v0", ...)`.

    Returns:
        What `Evaluation.summary` says, with "rule" and "by_command" beside it.
    """
    env = make(ENV_ID, episodes, **options)
    measure = ByCommand(SPANS)
    try:
        result = evaluate(policy.act, env, seed=HELD_OUT, measure=measure)
    finally:
        env.close()
    return {"env_id": ENV_ID, "rule": RULE} | result.summary() | {"by_command": measure.table()}


def read(path: Path) -> tuple[Policy, dict[str, Any]]:
    """A policy for this task, and what is known about it.

    Raises:
        PolicyFileError, CheckpointError: no policy, or one of another task.
    """
    policy, about = load_policy(path)
    if about.get("env_id") != ENV_ID:
        raise PolicyFileError(
            f"{str(path)!r} holds a policy for {about.get('env_id')!r}; this needs one for {ENV_ID}"
        )
    return policy, about


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status is 0, or 2 where it refused to begin."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    p = argparse.ArgumentParser(prog="python -m alloy.envs.loco.evaluate", description=__doc__)
    p.formatter_class = argparse.RawDescriptionHelpFormatter
    p.add_argument("policy", type=Path, nargs="?", default=SHIPPED, help="checkpoint.pt or weights")
    p.add_argument("--episodes", type=int, default=256)
    p.add_argument("--engine", default="auto")
    p.add_argument("--device", default="cpu")
    p.add_argument("--env", nargs="+", default=[], metavar="NAME=VALUE", help="of the environment")
    p.add_argument("--out", type=Path, help="JSON; walk.json beside a checkpoint if not given")
    args = p.parse_args(arguments)
    try:
        policy, about = read(args.policy)
        options = pairs(args.env, "--env")
        result = walk(
            policy.to(args.device),
            args.episodes,
            engine=args.engine,
            device=args.device,
            **options,
        )
    except (PolicyFileError, CheckpointError, Refused, TypeError, ValueError) as error:
        log.error("%s", error)
        return 2
    result |= {"options": options, "policy": about}
    log.info("%s", text(result["by_command"]))
    success = result["success"]
    low, high = success["wilson95"]
    log.info(
        "%d of %d episodes succeed: %.1f %% (95 %% interval %.1f to %.1f)",
        success["count"], args.episodes, 100 * success["rate"], 100 * low, 100 * high,
    )  # fmt: skip
    out = args.out
    if out is None and args.policy != SHIPPED:
        out = args.policy.parent / "walk.json"
    if out is not None:
        write_json(out, result)
        log.info("written to %s", out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
