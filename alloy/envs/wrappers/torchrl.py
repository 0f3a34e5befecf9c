"""TorchRL: an environment as a native `EnvBase`, tensors from end to end.

env = TorchRLEnv(alloy.envs.make("HalfCheetah-v5", num_envs=1024))
collector = Collector(env, policy, frames_per_batch=32 * 1024, total_frames=10_000_000)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import gymnasium as gym
import torch
from gymnasium.vector import VectorWrapper
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Binary, Bounded, Composite, Unbounded
from torchrl.envs import EnvBase

from alloy.envs.vector_env import VectorEnv
from alloy.envs.wrappers.restarts import Restarts, base_of, by_group, merged

DONE = ("done", "terminated", "truncated")
FLAGS = ("success", "invalid", "bad_action")


class TorchRLEnv(EnvBase):
    """A vector environment as torchrl takes it: the worlds are the batch, `batch_size == [W]`.

    Observations come under "observation", or under the names of their groups; "action" is in the
    units of the action space, and values outside it count as its bounds. `("next", ...)` always
    holds the true last observation, also where an episode ended, and the root of the step after it
    the first one of the next episode. So "terminated" is where nothing is to be bootstrapped, and
    "done" where a trace ends, as in torchrl's value estimators.

    A restart costs no second call of the engine: it happens within the step that ends an episode,
    and `reset` with a "_reset" mask hands out what that step has found. Where a mask names worlds
    that have not ended, they are reset too; the others stay. "_step" masks are honoured as well.

    Attributes:
        vector_env: the environment underneath.
    """

    def __init__(self, env: VectorEnv | VectorWrapper, info: Sequence[str] = ()) -> None:
        """Take over an environment; the first `reset` begins its episodes.

        Args:
            env: with autoreset "same_step" and backend "torch" or "tensordict", on any device.
            info: what else to report of a step, as entries beside the observations: names of
                reward terms, of the task's own info, "success", "invalid" or "bad_action". After
                a reset they are zero.

        Raises:
            TypeError: this is no vector environment of Alloy's.
            ValueError: another backend or autoreset mode, or an unknown name in `info`.
        """
        self._base = base_of(env, "torchrl", ("torch", "tensordict"))
        self.vector_env = env
        super().__init__(device=self._base.device, batch_size=(env.num_envs,))
        self._worlds = Restarts(env)
        self._next_seed: int | None = None
        self._done: Tensor | None = None  # of the latest step
        self._info = tuple(info)
        self._blank = _blank_info(self._base, info)
        self._make_specs()

    def _make_specs(self) -> None:
        device, dtype, W = self._base.device, self._base.sim.dtype, self.batch_size
        flag = Binary(1, torch.Size([*W, 1]), device=device, dtype=torch.bool)
        space = self.vector_env.single_observation_space
        spaces = dict(space) if isinstance(space, gym.spaces.Dict) else {"observation": space}
        sizes = {name: (torch.Size([*W, *(s.shape or ())]), dtype) for name, s in spaces.items()}
        sizes |= {name: (rows.shape, rows.dtype) for name, rows in self._blank.items()}
        shown = {
            name: flag.clone() if kind == torch.bool else Unbounded(size, device=device, dtype=kind)
            for name, (size, kind) in sizes.items()
        }
        self.observation_spec = Composite(shown, shape=W, device=device)
        actions = cast("gym.spaces.Box", self.vector_env.single_action_space)
        low, high = (torch.as_tensor(b, device=device) for b in (actions.low, actions.high))
        low, high = low.expand(*W, -1), high.expand(*W, -1)
        self.action_spec = Bounded(low, high, low.shape, device=device, dtype=torch.float32)
        self.reward_spec = Unbounded(torch.Size([*W, 1]), device=device, dtype=dtype)
        flags = {name: flag.clone() for name in DONE}
        self.full_done_spec = Composite(flags, shape=W, device=device)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        mask = tensordict.get("_step", None)
        before = None if mask is None else (self._base._state(), self._worlds.obs)
        reward, terminated, truncated, info = self._worlds.step(tensordict.get("action"))
        out = by_group(info["final_obs"]) | self._told(info) | {"reward": reward.unsqueeze(-1)}
        flags = (terminated | truncated, terminated, truncated)
        out |= {name: flag.unsqueeze(-1) for name, flag in zip(DONE, flags, strict=True)}
        if before is not None:
            out = self._hold(mask.reshape(-1), before, out, tensordict)
        said = TensorDict(out, batch_size=self.batch_size, device=self.device)
        self._done = said.get("done")
        return said

    def maybe_reset(self, tensordict: TensorDictBase) -> TensorDictBase:
        """What to go on from after a step, as in `EnvBase.maybe_reset`.

        If the flags in it are the latest step's own, which is so in rollouts and collectors, no
        value of a tensor is looked at: the worlds have restarted and show what they show.
        """
        done = tensordict.get("done", None)
        if done is None or done is not self._done:
            return super().maybe_reset(tensordict)
        for name, rows in self._worlds.reset(done.reshape(-1), all_begun=True).items():
            tensordict.set(name, rows)
        for name, blank in self._blank.items():
            tensordict.set(name, torch.where(done, blank, tensordict.get(name)))
        for name in DONE:
            tensordict.set(name, torch.zeros_like(done))
        return tensordict

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        mask = None if tensordict is None else tensordict.get("_reset", None)
        seed = kwargs.get("seed", self._next_seed)
        if mask is None:
            self._next_seed = None  # the seed is that of a reset of all worlds
        obs = self._worlds.reset(*((mask.reshape(-1),) if mask is not None else (None, seed)))
        return TensorDict(
            obs | {name: rows.clone() for name, rows in self._blank.items()},
            batch_size=self.batch_size,
            device=self.device,
        )

    def _set_seed(self, seed: int | None) -> None:
        """With the next reset of all worlds these get the seeds seed, seed + 1, ..."""
        self._next_seed = seed

    def _told(self, info: Any) -> dict[str, Tensor]:
        """What is to be reported of a step, each entry [W, k]."""
        found = {}
        for name in self._info:
            rows = info["terms"][name] if name in self._base.task.reward else info[name]
            found[name] = rows.reshape(rows.shape[0], -1)
        return found

    def _hold(
        self, mask: Tensor, before: tuple, out: dict[str, Tensor], given: TensorDictBase
    ) -> dict[str, Tensor]:
        """Undo a step in the worlds where the mask is false: they go on showing what was given."""
        state, obs = before
        self._base._set(merged(mask, self._base._state(), state))
        self._worlds.obs = merged(mask, self._worlds.obs, obs)
        self._worlds.begun = out["done"].reshape(-1) & mask
        old = {name: given.get(name, torch.zeros_like(new)) for name, new in out.items()}
        return merged(mask, out, old | {"reward": torch.zeros_like(out["reward"])})

    def to(self, device: torch.device | str) -> TorchRLEnv:
        """The environment itself; its simulation stays on the device it was built on.

        Raises:
            ValueError: another device.
        """
        wanted = torch.device(device)
        here = self._base.device
        if (wanted.type, wanted.index or 0) != (here.type, here.index or 0):
            raise ValueError(
                f"the simulation was built on {here} and cannot move to {wanted}; make the "
                f"environment with device={str(wanted)!r}"
            )
        return self

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Release what the environment holds."""
        self.vector_env.close()
        self.is_closed = True


def _blank_info(env: VectorEnv, names: Iterable[str]) -> dict[str, Tensor]:
    """Zeros [W, k] of the kind and width of each entry that a step reports.

    Raises:
        ValueError: a name that no step reports.
    """
    task, W = env.task, env.num_envs
    known = [*FLAGS, *task.reward, *task.info]
    for name in names:
        if name not in known:
            raise ValueError(f"info names {name!r}; a step of this environment reports {known}")
    start = env.program.first(torch.zeros(W, dtype=torch.int64, device=env.device))
    told = env.program.task.info(env.program.view(start), [n for n in names if n in task.info])
    blank = {}
    for name in names:
        kind = torch.bool if name in FLAGS else env.sim.dtype
        rows = told.get(name, torch.empty(W, dtype=kind, device=env.device))
        blank[name] = torch.zeros_like(rows.reshape(W, -1))
    return blank
