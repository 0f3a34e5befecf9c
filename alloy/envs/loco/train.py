"""Train the Go2 to walk, then evaluate it by command.

    python -m alloy.envs.loco.train --seed 0

Takes the flags of `python -m alloy.envs.wrappers.train`, and adds `walk.json` (see
`alloy.envs.loco.evaluate`) and `policy.safetensors` to the log directory.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from alloy.envs.loco import ENV_ID, evaluate
from alloy.envs.wrappers import train
from alloy.envs.wrappers.policy_file import load_policy, save_weights


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status is 0, or 2 where it refused to begin."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    given = [ENV_ID, *(sys.argv[1:] if arguments is None else arguments)]
    args = train.parser().parse_args(given)
    status = train.main(given)
    if status or int(os.environ.get("RANK", 0)):  # of several processes the first one reports
        return status
    checkpoint = args.eval or train.folder_of(args) / "checkpoint.pt"
    policy, about = load_policy(checkpoint)
    save_weights(policy, checkpoint.parent / "policy.safetensors", about)
    flags = ["--engine", args.engine, "--device", args.device]
    flags += ["--episodes", str(args.episodes)] if args.episodes else []
    flags += ["--env", *args.env] if args.env else []
    return evaluate.main([str(checkpoint), *flags])


if __name__ == "__main__":
    sys.exit(main())
