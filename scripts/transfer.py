"""A policy trained in Alloy, played in Gymnasium's own environment of the same name.

    python scripts/transfer.py out/train/HalfCheetah-v5-rsl_rl-0/checkpoint.pt

Prints the mean return of held-out episodes in both, and writes it beside the checkpoint as
`transfer.json`. In Gymnasium every episode has a MuJoCo simulation of its own, stepped by mj_step.
"""

from __future__ import annotations

import argparse
import inspect
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tqdm import tqdm

from alloy.envs.recipes import Recipe
from alloy.envs.wrappers import checkpoint
from alloy.envs.wrappers.evaluate import held_out
from alloy.envs.wrappers.policy import Policy

SEED = 1_000_000  # of Gymnasium's generators, which are others than Alloy's


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=inspect.getdoc(inspect.getmodule(main)))
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--episodes", type=int, default=64, help="in each of the two")
    parser.add_argument("--engine", default="auto", help="of Alloy")
    args = parser.parse_args()
    saved = checkpoint.load(args.checkpoint)
    recipe = Recipe.from_dict(saved["recipe"]).changed(episodes=args.episodes)
    policy = Policy.unpacked(saved["policy"])
    mine = held_out(policy, recipe, engine=args.engine)
    theirs = gymnasium_returns(policy, recipe)
    error = theirs.std(ddof=1) / np.sqrt(len(theirs)) if len(theirs) > 1 else 0.0
    result: dict[str, Any] = {
        "env_id": recipe.env_id,
        "episodes": args.episodes,
        "alloy": mine["return"],
        "gymnasium": {"mean": float(theirs.mean()), "stderr": float(error)},
        "versions": checkpoint.versions(),
    }
    result["gymnasium"] |= {"min": float(theirs.min()), "max": float(theirs.max())}
    print(json.dumps(result, indent=2))
    (args.checkpoint.parent / "transfer.json").write_text(json.dumps(result, indent=2) + "\n")


def gymnasium_returns(policy: Policy, recipe: Recipe) -> np.ndarray:
    """Returns [episodes] of one episode in each of as many environments of Gymnasium's."""
    env = gym.make_vec(
        recipe.env_id, recipe.episodes, vectorization_mode="sync", **dict(recipe.env)
    )
    obs, _ = env.reset(seed=SEED)
    returns, playing = np.zeros(recipe.episodes), np.ones(recipe.episodes, bool)
    with tqdm(unit="step", leave=False, disable=None) as bar:
        while playing.any():
            action = policy.act(torch.as_tensor(obs)).numpy()
            obs, reward, terminated, truncated, _ = env.step(action)
            returns += np.where(playing, reward, 0.0)
            playing &= ~(terminated | truncated)
            bar.update()
    env.close()
    return returns


if __name__ == "__main__":
    main()
