"""rsl_rl's VecEnv over a `VectorEnv`, for rsl_rl 3 to 5: tensors all the way."""

from __future__ import annotations

from typing import Any, cast

import torch
from gymnasium.vector import VectorWrapper
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from alloy.envs.vector_env import VectorEnv
from alloy.envs.wrappers.restarts import by_group
from alloy.envs.wrappers.statistics import HEAD, EpisodeStatistics


class RslRlVecEnv(VecEnv):
    """A vector environment as rsl_rl's runners take it.

    Observations are a TensorDict of the environment's groups (one that was given as a list is the
    group "policy"), of batch size [W]. The values of `extras`:

    * `time_outs` [W]: the episode was cut at its time limit, and did not end by itself.
    * `log`: means over the last episodes that ended, numbers on the device (`EpisodeStatistics`):
      "/success", "/episode_length" and the sum of each reward term, "/reward/<term>".
    * `terminated`, `invalid`, `final_observations`: as `VectorEnv.step` says them.

    Attributes:
        env: the environment underneath.
        num_envs: number of worlds, W.
        num_actions: numbers of an action.
        max_episode_length: the task's time limit in steps.
        device: of everything that leaves.
        cfg: what the environment is, for the runner's records.
    """

    def __init__(self, env: VectorEnv | VectorWrapper, cfg: dict[str, Any] | None = None) -> None:
        """Take over an environment and begin an episode in every world.

        Args:
            env: of backend "torch" or "tensordict", with autoreset "same_step".
            cfg: what the runner should record about it.

        Raises:
            ValueError: another backend or autoreset mode, no time limit, or no action.
        """
        base = cast("VectorEnv", env.unwrapped)
        if base.backend == "numpy" or base.autoreset != "same_step":
            raise ValueError(
                "rsl_rl needs backend='torch' or 'tensordict' and autoreset='same_step'; the "
                f"environment has backend={base.backend!r} and autoreset={base.autoreset!r}"
            )
        if base.task.max_steps is None:
            raise ValueError(
                "rsl_rl needs a task with a time limit, and this one has max_steps=None; "
                "make it with max_episode_steps=1000, say"
            )
        self.env, self.statistics = EpisodeStatistics.over(env)
        self._base = base
        self._group = next(iter(base.observation_names()))
        self.num_envs = base.num_envs
        self.num_actions = len(base.action_names())
        self.max_episode_length = base.task.max_steps
        self.device = base.device
        self.cfg = cfg if cfg is not None else {}
        self._obs = self._begin()

    @property
    def unwrapped(self) -> VectorEnv:
        """The vector environment itself."""
        return self._base

    @property
    def episode_length_buf(self) -> Tensor:
        """Steps of every world's episode so far: `VectorEnv.episode_length`.

        `learn(init_at_random_ep_len=True)` writes it, so that the worlds do not all end together.
        """
        return self._base.episode_length

    @episode_length_buf.setter
    def episode_length_buf(self, steps: Tensor) -> None:
        self._base.episode_length = steps

    def get_observations(self) -> TensorDict:
        """The present observation; nothing is stepped or reset."""
        return self._obs

    def reset(self) -> tuple[TensorDict, dict[str, Any]]:
        """Begin the next episode in every world."""
        self._obs = self._begin()
        return self._obs, {}

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """One control step of every world.

        Args:
            actions: [W, A]; values outside the action space count as its bounds.

        Returns:
            Observations, rewards [W], dones [W] (int64: 1 where an episode ended) and extras.
        """
        obs, reward, terminated, truncated, info = self.env.step(actions)
        self._obs = self._grouped(obs)
        extras = {
            "time_outs": truncated & ~terminated,
            "terminated": terminated,
            "invalid": info["invalid"],
            "final_observations": self._grouped(info["final_obs"]),
            "log": self._log(),
        }
        return self._obs, reward, (terminated | truncated).to(torch.int64), extras

    def close(self) -> None:
        """Release what the environment holds."""
        self.env.close()

    def _begin(self) -> TensorDict:
        return self._grouped(self.env.reset()[0])

    def _grouped(self, obs: Any) -> TensorDict:
        if isinstance(obs, TensorDict):
            return obs
        return TensorDict(
            by_group(obs, self._group), batch_size=[self.num_envs], device=self.device
        )

    def _log(self) -> dict[str, Tensor]:
        means = self.statistics.means()
        log = {"/episode_length": means["length"]}
        if self.statistics.has_success:
            log["/success"] = means["success"]
        return log | {f"/{name}": m for name, m in means.items() if name not in HEAD}
