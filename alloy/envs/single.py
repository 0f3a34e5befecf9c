"""One world as a plain Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from alloy.envs.vector_env import VectorEnv


class SingleEnv(gym.Env):
    """A `VectorEnv` of one world without its leading axis: numpy in and out, no autoreset."""

    def __init__(self, env: VectorEnv) -> None:
        """Take over an env of one world with the numpy backend and autoreset "disabled"."""
        if env.num_envs != 1 or env.backend != "numpy" or env.autoreset != "disabled":
            raise ValueError(
                "SingleEnv needs a VectorEnv with worlds=1, backend='numpy', autoreset='disabled'; "
                f"received worlds={env.num_envs}, backend={env.backend!r}, "
                f"autoreset={env.autoreset!r}"
            )
        self.env = env
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self.render_mode = env.render_mode
        self.metadata = {
            "render_modes": env.metadata["render_modes"],
            "render_fps": env.metadata["render_fps"],
        }

    @property
    def dt(self) -> float:
        """Control step, s."""
        return self.env.dt

    def action_names(self) -> list[str]:
        """Names of the action's components, in order."""
        return self.env.action_names()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode; see `VectorEnv.reset`."""
        super().reset(seed=seed)
        obs, info = self.env.reset(seed=seed, options=options)
        return _first(obs), _first(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One control step; see `VectorEnv.step`."""
        obs, reward, terminated, truncated, info = self.env.step(np.asarray(action)[None])
        return (
            _first(obs),
            float(reward[0]),
            bool(terminated[0]),
            bool(truncated[0]),
            _first(info),
        )

    def render(self) -> np.ndarray | None:
        """A picture [height, width, 3]; None without a render_mode."""
        frames = self.env.render()
        return frames[0] if frames is not None else None

    def close(self) -> None:
        """Release what the env holds."""
        self.env.close()


def _first(tree: Any) -> Any:
    """The only row of every array; the masks of a vector env's info are dropped."""
    if isinstance(tree, dict):
        return {k: _first(v) for k, v in tree.items() if not k.startswith("_")}
    return tree[0].copy() if tree.ndim > 1 else tree[0].item()
