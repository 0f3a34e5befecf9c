"""What the adapters to learning libraries share: worlds that restart by themselves.

All of them run over `same_step` autoreset: a world that ends begins its next episode within the
same step of the engine, and its last observation and the next first one both come out of it. A
library that asks for the reset afterwards is handed what is there already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import torch
from gymnasium.vector import VectorWrapper
from torch import Tensor

from alloy.envs.program import select
from alloy.envs.vector_env import VectorEnv


def base_of(env: Any, library: str, backends: Sequence[str] = ("torch",)) -> VectorEnv:
    """The `VectorEnv` under an environment that an adapter can run.

    Args:
        env: a `VectorEnv`, or a wrapper around one.
        library: whose adapter asks, for the error.
        backends: that the adapter takes.

    Raises:
        TypeError: it is neither.
        ValueError: another autoreset mode or backend.
    """
    base = env.unwrapped if isinstance(env, VectorWrapper) else env
    if not isinstance(base, VectorEnv):
        raise TypeError(
            f"{library} needs a VectorEnv, as alloy.envs.make(id, num_envs=W) gives, or a vector "
            f"wrapper around one; received {type(env).__name__}"
        )
    if base.autoreset != "same_step" or base.backend not in backends:
        wanted = " or ".join(f"backend={name!r}" for name in backends)
        raise ValueError(
            f"{library} needs {wanted} and autoreset='same_step'; the environment has "
            f"backend={base.backend!r} and autoreset={base.autoreset!r}"
        )
    return base


def by_group(obs: Any, name: str = "observation") -> dict[str, Tensor]:
    """Observations by group; under `name` where the environment has no groups."""
    return {name: obs} if isinstance(obs, Tensor) else {key: obs[key] for key in obs.keys()}


class Restarts:
    """An environment for a library that asks for the resets of worlds that restarted by themselves.

    Attributes:
        env: the environment, in "same_step" mode.
        obs: what each world shows now, by group; after the restart where one took place.
        begun: worlds [W] that began an episode within the last step, which nobody asked for yet;
            None before the first reset.
    """

    def __init__(self, env: VectorEnv | VectorWrapper) -> None:
        """Take over an environment; nothing is stepped or reset."""
        self.env = env
        self.obs: dict[str, Tensor] = {}
        self.begun: Tensor | None = None

    def step(self, action: Any) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
        """Reward, terminated, truncated and info of one control step of every world."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.obs, self.begun = by_group(obs), terminated | truncated
        return reward, terminated, truncated, info

    def reset(
        self, mask: Tensor | None = None, seed: int | None = None, *, all_begun: bool = False
    ) -> dict[str, Tensor]:
        """New episodes in every world, or in those of a mask [W]; what all worlds show then.

        A world that began one within the last step keeps that, unless there is a seed.

        Args:
            mask: the worlds; all of them if None.
            seed: they get the seeds seed, seed + 1, ...
            all_begun: the caller knows that the mask names no other worlds, so that nobody need
                look, which would wait for the device.
        """
        begun = self.begun
        if begun is None or (mask is None and seed is not None):
            self._renew(seed)
        elif not all_begun:
            needed = torch.ones_like(begun) if mask is None else mask
            needed = needed & ~begun if seed is None else needed
            if bool(needed.any()):
                self._renew(seed, {"reset_mask": needed})
        if begun is None or mask is None:
            device = self.env.unwrapped.device
            self.begun = torch.zeros(self.env.num_envs, dtype=torch.bool, device=device)
        else:
            self.begun = begun & ~mask
        return {name: rows.clone() for name, rows in self.obs.items()}

    def _renew(self, seed: int | None, options: dict[str, Any] | None = None) -> None:
        self.obs = by_group(self.env.reset(seed=seed, options=options)[0])


def merged(mask: Tensor, new: Any, old: Any) -> Any:
    """`new` in the worlds where the mask [W] is true, `old` elsewhere, of two trees of one shape.

    A tree is a tensor [W, ...], or a dict, a named tuple or a dataclass of trees; what else it
    holds is that of `new`.
    """
    if isinstance(new, Tensor):
        return select(mask, new, old)
    if isinstance(new, Mapping):
        return {name: merged(mask, value, old[name]) for name, value in new.items()}
    if isinstance(new, tuple):
        return type(new)(*(merged(mask, a, b) for a, b in zip(new, old, strict=True)))
    if is_dataclass(new):
        names = [f.name for f in fields(new)]
        parts = {name: merged(mask, getattr(new, name), getattr(old, name)) for name in names}
        return replace(cast("Any", new), **parts)
    return new
