"""Actions and rewards in the units that learning libraries like."""

from __future__ import annotations

from typing import Any, cast

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorWrapper
from gymnasium.vector.utils import batch_space

from alloy.envs.vector_env import VectorEnv


class UnitActions(VectorWrapper):
    """Actions from -1 to 1, whatever the environment's bounds: a policy's noise has one scale.

    Values beyond +-1 count as the bounds, as ever.
    """

    def __init__(self, env: VectorEnv | VectorWrapper) -> None:
        """Wrap an environment of backend "torch" or "tensordict"."""
        super().__init__(env)
        base = cast("VectorEnv", env.unwrapped)
        low, high = action_bounds(base)
        self._middle = torch.as_tensor((high + low) / 2, device=base.device)
        self._half = torch.as_tensor((high - low) / 2, device=base.device)
        one = np.ones_like(low)
        self.single_action_space = gym.spaces.Box(-one, one, dtype=np.float32)
        self.action_space = batch_space(self.single_action_space, env.num_envs)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One control step; see `VectorEnv.step`."""
        if not isinstance(actions, torch.Tensor):
            actions = torch.as_tensor(np.asarray(actions), device=self._half.device)
        return self.env.step(self._middle + self._half * actions)


class ScaledReward(VectorWrapper):
    """Rewards times a number; `info["terms"]` stays as it was."""

    def __init__(self, env: VectorEnv | VectorWrapper, scale: float) -> None:
        """Wrap an environment.

        Raises:
            ValueError: the scale is not positive.
        """
        if not scale > 0:
            raise ValueError(f"scale must be positive, not {scale!r}")
        super().__init__(env)
        self.scale = scale

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One control step; see `VectorEnv.step`."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        return obs, reward * self.scale, terminated, truncated, info


def action_bounds(env: Any) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest value of every action of an environment, each float32 [A]."""
    space = cast("gym.spaces.Box", env.unwrapped.single_action_space)
    return space.low.astype(np.float32), space.high.astype(np.float32)
