"""Take a trained policy elsewhere: ONNX, TorchScript, or its weights alone.

    python -m alloy.envs.wrappers.export out/train/Go2Velocity-v0-rsl_rl-0/checkpoint.pt policy.onnx
    python -m alloy.envs.wrappers.export CHECKPOINT policy.pt            # TorchScript
    python -m alloy.envs.wrappers.export CHECKPOINT policy.safetensors   # for alloy alone

What is written is read again, and must say the same actions as the policy.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from alloy.envs.wrappers.checkpoint import CheckpointError
from alloy.envs.wrappers.policy_file import PolicyFileError, export, load_policy, save_weights

log = logging.getLogger("alloy.export")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status is 0, or 2 where nothing was written."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    p = argparse.ArgumentParser(prog="python -m alloy.envs.wrappers.export", description=__doc__)
    p.formatter_class = argparse.RawDescriptionHelpFormatter
    p.add_argument("policy", type=Path, help="a checkpoint.pt, or a .safetensors of this command")
    p.add_argument("to", type=Path, help="the file: .onnx, .pt (TorchScript) or .safetensors")
    args = p.parse_args(arguments)
    try:
        policy, about = load_policy(args.policy)
        if args.to.suffix == ".safetensors":
            save_weights(policy, args.to, about)
            log.info("written to %s", args.to)
        else:
            difference = export(policy, args.to)
            log.info("written to %s; its actions differ by at most %.1e", args.to, difference)
    except (CheckpointError, PolicyFileError) as error:
        log.error("%s", error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
