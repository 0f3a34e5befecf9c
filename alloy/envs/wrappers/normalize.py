"""Wrappers that work in every autoreset mode and on every backend."""

from __future__ import annotations

import math
from typing import Any, cast

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorWrapper
from gymnasium.vector.utils import batch_space
from torch import Tensor

from alloy.envs.vector_env import VectorEnv


class RunningMoments:
    """Mean and variance of all rows seen, by Chan's update of a batch (1983)."""

    def __init__(self, size: int, device: torch.device | str = "cpu") -> None:
        """Nothing seen: mean 0, variance 1. Kept in float64."""
        self.count = torch.zeros((), dtype=torch.float64, device=device)
        self.mean = torch.zeros(size, dtype=torch.float64, device=device)
        self.var = torch.ones(size, dtype=torch.float64, device=device)

    def update(self, rows: Tensor, mask: Tensor | None = None) -> None:
        """Take in rows [W, k], or those of them where the mask [W] is true."""
        rows = rows.to(torch.float64)
        weight = torch.ones_like(rows[:, 0]) if mask is None else mask.to(torch.float64)
        n = weight.sum()
        total = self.count + n
        safe = torch.clamp(total, min=1.0)
        mean = (weight.unsqueeze(-1) * rows).sum(0) / torch.clamp(n, min=1.0)
        squares = (weight.unsqueeze(-1) * (rows - mean).square()).sum(0)
        delta = mean - self.mean
        sums = self.var * self.count + squares + delta.square() * self.count * n / safe
        self.mean = self.mean + delta * n / safe
        self.var = torch.where(total > 0, sums / safe, self.var)
        self.count = total


class NormalizeObservation(VectorWrapper):
    """Observations centred and scaled by the moments of all that were seen.

    Gymnasium's wrapper of this name takes `next_step` alone and no partial reset. This one takes
    every mode and backend and every group, and counts each observation once: where a world began
    anew within a step, both its last and its first observation; where a partial reset left a world
    alone, nothing. `info["final_obs"]` is normalised too.
    """

    env: VectorEnv

    def __init__(self, env: VectorEnv, epsilon: float = 1e-8, clip: float = 10.0) -> None:
        """Wrap an environment.

        Args:
            env: the environment, or a wrapper around it.
            epsilon: added to the variance.
            clip: results are kept within +-clip.

        Raises:
            ValueError: epsilon or clip is not positive.
        """
        super().__init__(env)
        if not (epsilon > 0 and clip > 0):
            raise ValueError(f"epsilon and clip must be positive, not {epsilon} and {clip}")
        self.epsilon, self.clip = epsilon, clip
        self.frozen = False  # True: use the moments, but do not learn from what comes
        base = cast("VectorEnv", env.unwrapped)
        self._grouped = isinstance(env.single_observation_space, gym.spaces.Dict)
        spaces = env.single_observation_space
        boxes = spaces.spaces if isinstance(spaces, gym.spaces.Dict) else {"": spaces}
        shapes = {name: (box.shape or (), box.dtype) for name, box in boxes.items()}
        self.moments = {
            n: RunningMoments(math.prod(s), base.device) for n, (s, _) in shapes.items()
        }
        bounded: dict[str, gym.Space] = {
            name: gym.spaces.Box(-clip, clip, shape, cast("type[np.floating]", dtype))
            for name, (shape, dtype) in shapes.items()
        }
        single = gym.spaces.Dict(bounded) if self._grouped else bounded[""]
        self.single_observation_space = single
        self.observation_space = batch_space(single, env.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        """Begin episodes; see `VectorEnv.reset`."""
        obs, info = self.env.reset(seed=seed, options=options)
        mask = (options or {}).get("reset_mask")
        self._learn(obs, None if mask is None else torch.as_tensor(np.asarray(mask)))
        return self._normalized(obs), info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One control step; see `VectorEnv.step`."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        self._learn(obs)
        if "final_obs" in info:
            if self.env.metadata["autoreset_mode"] is gym.vector.AutoresetMode.SAME_STEP:
                self._learn(info["final_obs"], torch.as_tensor(info["_final_obs"]))
            info["final_obs"] = self._normalized(info["final_obs"])
        return self._normalized(obs), reward, terminated, truncated, info

    def _learn(self, obs: Any, mask: Tensor | None = None) -> None:
        if self.frozen:
            return
        for name, rows in self._groups(obs).items():
            moments = self.moments[name]
            here = None if mask is None else mask.to(moments.mean.device)
            moments.update(torch.as_tensor(rows, device=moments.mean.device), here)

    def _normalized(self, obs: Any) -> Any:
        new = {name: self._scaled(rows, name) for name, rows in self._groups(obs).items()}
        if not self._grouped:
            return new[""]
        if isinstance(obs, dict):
            return new
        out = obs.clone()  # a TensorDict
        for name, rows in new.items():
            out[name] = rows
        return out

    def _groups(self, obs: Any) -> dict[str, Any]:
        return {name: obs[name] for name in self.moments} if self._grouped else {"": obs}

    def _scaled(self, rows: Any, name: str) -> Any:
        moments = self.moments[name]
        t = torch.as_tensor(rows, device=moments.mean.device)
        scaled = (t - moments.mean) / torch.sqrt(moments.var + self.epsilon)
        scaled = torch.clamp(scaled, -self.clip, self.clip).to(t.dtype)
        return scaled if isinstance(rows, Tensor) else scaled.cpu().numpy()
