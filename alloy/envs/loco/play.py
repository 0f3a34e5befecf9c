"""See a policy walk: a picture that moves, or a window.

    python -m alloy.envs.loco.play                                # the policy that comes with Alloy
    python -m alloy.envs.loco.play --command 0.8 0 0.5            # ahead at 0.8 m/s, turning left
    python -m alloy.envs.loco.play out/train/Go2Velocity-v0-rsl_rl-0/checkpoint.pt --view

Without `--command` commands are drawn as in training, anew every 5 s. The file's ending says its
kind: .gif, or .mp4 where imageio has ffmpeg.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alloy.envs.loco import ENV_ID, SHIPPED
from alloy.envs.loco.evaluate import read
from alloy.envs.registry import make
from alloy.envs.rendering import Window
from alloy.envs.wrappers import video
from alloy.envs.wrappers.checkpoint import CheckpointError
from alloy.envs.wrappers.policy import Policy
from alloy.envs.wrappers.policy_file import PolicyFileError

log = logging.getLogger("alloy.loco")


def options_of(command: Sequence[float] | None) -> dict[str, Any]:
    """Arguments of the environment that play takes: no noise, and one command if it is given."""
    plain = {"noise": 0.0, "randomize": False, "push_speed": 0.0}
    if command is None:
        return plain
    vx, vy, yaw = ((value, value) for value in command)
    return plain | {"vx": vx, "vy": vy, "yaw": yaw, "standing": 0.0}


def watch(policy: Policy, seconds: float, seed: int, **options: Any) -> None:
    """Walk in a window, in real time, until the time is over or the window is closed.

    Raises:
        RuntimeError: there is no display.
    """
    env = make(ENV_ID, 1, **options)
    obs, _ = env.reset(seed=seed)
    with Window(env.sim) as window:
        for _ in range(round(seconds / env.dt)):
            began = time.perf_counter()
            obs = env.step(policy.act(obs))[0]
            if not window.show():
                break
            time.sleep(max(0.0, env.dt - (time.perf_counter() - began)))
    env.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status is 0, or 2 where nothing could be shown."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    p = argparse.ArgumentParser(prog="python -m alloy.envs.loco.play", description=__doc__)
    p.formatter_class = argparse.RawDescriptionHelpFormatter
    p.add_argument("policy", type=Path, nargs="?", default=SHIPPED, help="checkpoint.pt or weights")
    p.add_argument(
        "--command", type=float, nargs=3, metavar=("VX", "VY", "YAW"), help="m/s, m/s, rad/s"
    )
    p.add_argument("--seconds", type=float, default=10.0)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--out", type=Path, default=Path("out/go2.gif"))
    p.add_argument("--view", action="store_true", help="a window instead of a file")
    p.add_argument("--engine", default="auto")
    args = p.parse_args(arguments)
    options = options_of(args.command) | {"engine": args.engine}
    try:
        policy, _ = read(args.policy)
        if args.view:
            watch(policy, args.seconds, args.seed, **options)
            return 0
        size = {"render_mode": "rgb_array", "width": 480, "height": 320}
        env = make(ENV_ID, 1, **options, **size)
        video.record(policy.act, env, args.out, seed=args.seed, seconds=args.seconds)
        log.info("written to %s", args.out)
    except (PolicyFileError, CheckpointError, ImportError, RuntimeError) as error:
        log.error("%s", error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
