"""The main job, end to end: two environments, stepped with random actions and a scripted grasp."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from render import NoOpenGL, draw
from torch import Tensor
from tqdm import tqdm

import alloy
from alloy.envs import VectorEnv

Policy = Callable[[VectorEnv, Tensor], Any]  # (environment, steps since its reset [W])
DOWN_STEPS, CLOSE_STEPS = 15, 12
OUT = Path(__file__).parent.parent / "out"


def main() -> None:
    """Step GripperLift-v0 and HalfCheetah-v5, print what came out, and draw both into out/."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=256, help="number of worlds (default 256)")
    parser.add_argument("--steps", type=int, default=60, help="control steps (default 60)")
    parser.add_argument("--device", default=None, help="torch device (default: the library's)")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the pictures")
    args = parser.parse_args()
    if args.worlds < 1 or args.steps < 2:
        parser.error(f"--worlds {args.worlds} --steps {args.steps}: at least 1 world and 2 steps")
    for name, policy in {"GripperLift-v0": grasp, "HalfCheetah-v5": at_random}.items():
        run(name, policy, args)


def run(name: str, policy: Policy, args: argparse.Namespace) -> None:
    """Step one environment and print its shapes, rewards and speed."""
    env = alloy.envs.make(name, num_envs=args.worlds, device=args.device)
    obs, info = env.reset(seed=0)
    engine = env.sim.engine_report()
    print(f"\n{name}: {args.worlds} worlds, engine {engine['engine']} on {engine['device']}")
    print(f"  observation {tuple(obs.shape)}, actions {env.action_names()}")
    age = torch.zeros(args.worlds, dtype=torch.int64, device=env.device)  # steps since the reset
    total = torch.zeros(args.worlds, device=env.device)
    successes = torch.zeros(args.worlds, dtype=torch.int64, device=env.device)
    first_episode, in_first = [env.sim.qpos[0]], True
    clock = [time.perf_counter()]
    bar = tqdm(range(args.steps), desc=f"  {name}", unit="step", leave=False, disable=None)
    for _ in bar:
        obs, reward, terminated, truncated, info = env.step(policy(env, age))
        clock.append(time.perf_counter())
        done = terminated | truncated
        age = torch.where(done, 0, age + 1)
        total += reward
        successes += info["success"]
        in_first = in_first and not bool(done[0])
        if in_first:
            first_episode.append(env.sim.qpos[0])
    print(f"  reward {tuple(reward.shape)}, terminated {tuple(terminated.shape)}")
    print(f"  reward per world over {args.steps} steps: {float(total.mean()):.2f} on average")
    if env.task.success is not None:
        print(f"  successful episodes: {int(successes.sum())}")
    rate = args.worlds * (args.steps - 1) / (clock[-1] - clock[1])
    print(f"  {rate:,.0f} env-steps/s, after a first step of {clock[1] - clock[0]:.1f} s")
    path = args.out / f"{name}.png"
    moments = [first_episode[i] for i in (0, len(first_episode) // 2, -1)]
    try:
        backend = draw(env.sim.mj_model, torch.stack(moments).cpu().numpy(), path)
        print(f"  picture of world 0's first episode, through {backend}: {os.path.relpath(path)}")
    except NoOpenGL as error:
        print(f"  {error}")
    env.close()


def at_random(env: VectorEnv, age: Tensor) -> Any:
    """A sample of the action space."""
    return env.action_space.sample()


def grasp(env: VectorEnv, age: Tensor) -> Any:
    """Down with open fingers, close them, lift: the actions are lift, close_left, close_right."""
    down, closing = age < DOWN_STEPS, age < DOWN_STEPS + CLOSE_STEPS
    lift = torch.where(down, -1.0, torch.where(closing, 0.0, 1.0))
    close = torch.where(down, -1.0, 1.0)
    return torch.stack([lift, close, close], dim=-1)


if __name__ == "__main__":
    main()
