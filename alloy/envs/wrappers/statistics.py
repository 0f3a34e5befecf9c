"""What the episodes that ended were like, counted on the device: a step never waits for it."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from gymnasium.vector import VectorWrapper
from torch import Tensor

from alloy.envs.vector_env import VectorEnv

HEAD = ("return", "length", "success")


class EpisodeStatistics(VectorWrapper):
    """Returns, lengths, successes and sums of every reward term of the episodes that ended.

    Everything is passed through as it came. Works in every autoreset mode, with the backends
    "torch" and "tensordict". The success of an episode is that of its last step. A world that is
    reset before its end does not count.
    """

    env: VectorEnv

    def __init__(self, env: VectorEnv | VectorWrapper) -> None:
        """Wrap an environment.

        Raises:
            ValueError: its backend is "numpy".
        """
        super().__init__(env)
        base = cast("VectorEnv", env.unwrapped)
        if base.backend == "numpy":
            raise ValueError(
                "EpisodeStatistics needs backend='torch' or 'tensordict', and the environment has "
                "'numpy'; use Gymnasium's RecordEpisodeStatistics, or make it with backend='torch'"
            )
        self._terms = tuple(base.task.reward)
        # a term may be called as one of the others, "success" say
        self.names = (*HEAD, *(f"reward/{name}" for name in self._terms))
        self.has_success = base.task.success is not None
        self._running = torch.zeros(len(self.names), base.num_envs, device=base.device)
        self._pending = torch.zeros(base.num_envs, dtype=torch.bool, device=base.device)
        self._next_step = base.autoreset == "next_step"
        self._taken = torch.zeros(1 + len(self.names), dtype=torch.float64, device=base.device)
        self._recent = torch.zeros_like(self._taken)
        self._forget = 1.0 - 1.0 / (base.num_envs + 1)

    @staticmethod
    def of(env: Any) -> EpisodeStatistics | None:
        """The one among the wrappers of an environment, if there is one."""
        while isinstance(env, VectorWrapper):
            if isinstance(env, EpisodeStatistics):
                return env
            env = env.env
        return None

    @staticmethod
    def over(env: VectorEnv | VectorWrapper) -> tuple[VectorWrapper, EpisodeStatistics]:
        """An environment that counts its episodes, and who counts: wrapped only if nobody does."""
        found = EpisodeStatistics.of(env)
        if found is not None:
            return cast("VectorWrapper", env), found
        counting = EpisodeStatistics(env)
        return counting, counting

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin episodes; see `VectorEnv.reset`."""
        out = self.env.reset(seed=seed, options=options)
        mask = (options or {}).get("reset_mask")
        if mask is None:
            self._running = torch.zeros_like(self._running)
            self._pending = torch.zeros_like(self._pending)
        else:
            here = torch.as_tensor(mask, device=self._running.device)
            self._running = self._running * ~here
            self._pending = self._pending & ~here
        return out

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One control step; see `VectorEnv.step`."""
        out = self.env.step(actions)
        _, reward, terminated, truncated, info = out
        self._count(reward, terminated | truncated, info)
        return out

    def means(self) -> dict[str, Tensor]:
        """Means over about the last `num_envs` episodes, each a number on the device; NaN so far.

        Sums of reward terms are called "reward/<term>". Later episodes count more: an episode's
        weight falls by e while `num_envs` others end.
        """
        means = (self._recent[1:] / self._recent[0]).to(self._running.dtype)
        return dict(zip(self.names, means.unbind(), strict=True))

    def take(self) -> Tensor:
        """Number of the episodes that ended since the last call, and sums over them: [1 + n]."""
        taken, self._taken = self._taken, torch.zeros_like(self._taken)
        return taken

    def summary(self, taken: Tensor) -> dict[str, float]:
        """Means by name of what `take` gave, and "episodes"; NaN where none ended.

        This is the one place that waits for the device.
        """
        count, *sums = taken.tolist()
        means = [total / count if count else math.nan for total in sums]
        return {"episodes": count, **dict(zip(self.names, means, strict=True))}

    def _count(self, reward: Tensor, ended: Tensor, info: Any) -> None:
        over = ended.to(self._running.dtype)
        terms = [info["terms"][name] for name in self._terms]
        step = [reward, torch.ones_like(reward), over * info["success"], *terms]
        step = torch.stack([row.to(self._running.dtype) for row in step])
        if self._next_step:  # the step after an end begins the next episode and belongs to none
            step = step * ~self._pending
            self._pending = ended
        running = self._running + step
        new = torch.cat([over.sum().reshape(1), running @ over]).to(torch.float64)
        self._running = running * ~ended
        self._taken = self._taken + new
        self._recent = self._recent * self._forget ** new[0] + new
