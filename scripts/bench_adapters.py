"""What the adapters of the learning libraries cost beside `VectorEnv.step`, taken in turns.

All step the same worlds with the same actions, which a policy that costs nothing hands out. Before
anything is timed, the returns of the first steps are compared: they must be the same everywhere.
Printed are the environment steps per second of wall time (the best of the repeats) and the
processor time of one step of all worlds (the least), which says more on a machine that is busy.

    python scripts/bench_adapters.py
    python scripts/bench_adapters.py HalfCheetah-v5 --worlds 256 --repeats 9
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import alloy
from alloy.envs.wrappers.rsl_rl import RslRlVecEnv
from alloy.envs.wrappers.sb3 import SB3VecEnv
from alloy.envs.wrappers.skrl import SkrlWrapper
from alloy.envs.wrappers.torchrl import TorchRLEnv
from alloy.envs.wrappers.train_torchrl import Collector

Block = Callable[[], torch.Tensor]  # steps all worlds some times: the sum of rewards of each, [W]
OTHERS: dict[str, Callable[[Any], Any]] = {
    "rsl_rl": RslRlVecEnv,
    "stable-baselines3": SB3VecEnv,
    "skrl": SkrlWrapper,
}


def main() -> int:
    """Measure, and print a line for each way."""
    p = argparse.ArgumentParser(description=__doc__)
    p.formatter_class = argparse.RawDescriptionHelpFormatter
    p.add_argument("env_id", nargs="?", default="HalfCheetah-v5")
    p.add_argument("--worlds", type=int, default=1024)
    p.add_argument("--steps", type=int, default=50, help="of a block")
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--engine", default="auto")
    args = p.parse_args()
    blocks = ways(args.env_id, args.worlds, args.steps, args.engine)
    totals = {name: block() for name, block in blocks.items()}
    for name, total in totals.items():
        if not torch.equal(total, totals["VectorEnv"]):
            print(f"{name} gave other rewards than VectorEnv; nothing was timed", file=sys.stderr)
            return 1
    wall, processor = dict.fromkeys(blocks, 1e9), dict.fromkeys(blocks, 1e9)
    for _ in range(args.repeats):
        for name, block in blocks.items():
            began = time.perf_counter(), time.process_time()
            block()
            wall[name] = min(wall[name], time.perf_counter() - began[0])
            processor[name] = min(processor[name], time.process_time() - began[1])
    print(f"{args.env_id}, {args.worlds} worlds")
    for name in blocks:
        rate = args.worlds * args.steps / wall[name]
        cost = 1e3 * processor[name] / args.steps
        print(f"{name:18} {rate:10,.0f} env-steps/s {cost:8.2f} ms of processor time a step")
    return 0


def ways(env_id: str, worlds: int, steps: int, engine: str) -> dict[str, Block]:
    """Every way of stepping an environment, with worlds of its own."""
    plain = made(env_id, worlds, engine)
    plain.reset(seed=0)
    size = len(plain.action_names())
    drawn = torch.Generator().manual_seed(0)
    actions = 2 * torch.rand(steps, worlds, size, generator=drawn) - 1
    blocks = {"VectorEnv": stepped(plain, actions)}
    for name, adapter in OTHERS.items():
        env = adapter(made(env_id, worlds, engine))
        if name != "rsl_rl":  # which begins by itself
            env.reset()
        blocks[name] = stepped(env, actions.numpy() if name == "stable-baselines3" else actions)
    blocks["torchrl collector"] = collected(made(env_id, worlds, engine), actions)
    return blocks


def made(env_id: str, worlds: int, engine: str) -> alloy.envs.VectorEnv:
    """The environment, always from the same seed."""
    return alloy.envs.make(env_id, num_envs=worlds, engine=engine, seed=0)


def stepped(env: Any, actions: Any) -> Block:
    """A block of steps of what has a `step`."""

    def block() -> torch.Tensor:
        total = torch.zeros(len(actions[0]))
        for action in actions:
            total = total + torch.as_tensor(env.step(action)[1]).reshape(-1)
        return total

    return block


def collected(env: alloy.envs.VectorEnv, actions: torch.Tensor) -> Block:
    """A block of steps by torchrl's collector."""
    at = [0]

    def policy(td: Any) -> Any:
        td.set("action", actions[at[0] % len(actions)])
        at[0] += 1
        return td

    frames = len(actions) * env.num_envs
    batches = iter(
        Collector(TorchRLEnv(env), policy, frames_per_batch=frames, total_frames=-1)  # type: ignore
    )
    at[0] = 0  # a collector tries its policy

    def block() -> torch.Tensor:
        rewards = next(batches)["next", "reward"].squeeze(-1)
        total = torch.zeros(env.num_envs)
        for reward in rewards.unbind(1):  # summed in the order of the others
            total = total + reward
        return total

    return block


if __name__ == "__main__":
    sys.exit(main())
