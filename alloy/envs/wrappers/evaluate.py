"""What a policy is worth: whole episodes from starts that no training has seen.

Every world plays one episode and only that one counts, so that short episodes weigh no more than
long ones; what a world does after its end is not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from gymnasium.vector import VectorWrapper
from torch import Tensor

from alloy.envs.recipes import Recipe
from alloy.envs.registry import make
from alloy.envs.vector_env import VectorEnv
from alloy.envs.wrappers.policy import Policy
from alloy.envs.wrappers.restarts import base_of

HELD_OUT = 2**62  # no training's world has this seed, or a greater one
Env = VectorEnv | VectorWrapper
Act = Callable[[Any], Tensor]
Measure = Callable[[VectorEnv, Any], dict[str, Tensor]]
Z95 = 1.959963984540054  # of the normal distribution, two-sided


@dataclass(frozen=True)
class Evaluation:
    """Episodes, one number each, on the CPU.

    Attributes:
        returns: sums of the rewards, [E].
        lengths: control steps, [E].
        success: of the last step, bool [E]; None for a task without success.
        terminated: ended by itself, bool [E].
        invalid: ended because the world turned non-finite, bool [E].
        terms: sum of every reward term, each [E].
        means: mean over the steps of what `measure` gave, each [E].
    """

    returns: Tensor
    lengths: Tensor
    success: Tensor | None
    terminated: Tensor
    invalid: Tensor
    terms: dict[str, Tensor]
    means: dict[str, Tensor] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """Plain numbers, for a JSON file; success with Wilson's interval at 95 %."""
        count = len(self.returns)
        out: dict[str, Any] = {
            "episodes": count,
            "return": _described(self.returns),
            "length": _described(self.lengths),
            "terminated": int(self.terminated.sum()),
            "invalid": int(self.invalid.sum()),
            "terms": {name: float(value.mean()) for name, value in self.terms.items()},
        }
        if self.means:
            out["means"] = {name: _described(value) for name, value in self.means.items()}
        if self.success is not None:
            good = int(self.success.sum())
            out["success"] = {"count": good, "rate": good / count, "wilson95": wilson(good, count)}
        return out


def evaluate(
    act: Act, env: Env, *, seed: int, measure: Measure | None = None, steps: int | None = None
) -> Evaluation:
    """Play one episode in every world, and count that one alone.

    Args:
        act: from observations, as the environment gives them, to actions [W, A].
        env: the worlds, as many as episodes are wanted; backend "torch" or "tensordict", autoreset
            "same_step".
        seed: the worlds get the seeds seed, seed + 1, ...
        measure: further numbers [W] by name, of the environment and info after a step; of a world
            that has ended in this step the environment shows the next episode, `info` this one.
        steps: most steps of an episode; the task's time limit if not given.

    Raises:
        ValueError: another backend or autoreset mode, or no limit to an episode.
    """
    base = base_of(env, "an evaluation", ("torch", "tensordict"))
    limit = steps if steps is not None else base.task.max_steps
    if limit is None:
        raise ValueError("the task has max_steps=None; say steps=, where an episode ends at most")
    obs, _ = env.reset(seed=seed)
    count = _Count(base)
    for step in range(limit):
        obs, reward, terminated, truncated, info = env.step(act(obs))
        count.add(reward, terminated, truncated, info, measure(base, info) if measure else {})
        if step % 32 == 31 and not bool(count.playing.any()):
            break
    return count.result(base.task.success is not None)


def held_out(
    policy: Policy, recipe: Recipe, *, device: str = "cpu", engine: str = "auto"
) -> dict[str, Any]:
    """Evaluate a policy as its recipe says, on seeds that no training uses.

    Returns:
        The summary, the "seed" of the first episode, and whether the recipe's "bar" is reached:
        None where it has none.
    """
    env = make(recipe.env_id, recipe.episodes, device=device, engine=engine, **recipe.env)
    try:
        result = evaluate(policy.act, env, seed=HELD_OUT).summary()
    finally:
        env.close()
    bars = []
    if recipe.success_bar is not None and "success" in result:
        bars.append(result["success"]["rate"] >= recipe.success_bar)
    if recipe.return_bar is not None:
        bars.append(result["return"]["mean"] >= recipe.return_bar)
    return {"env_id": recipe.env_id, "seed": HELD_OUT, "bar": all(bars) if bars else None} | result


class _Count:
    """Sums over the steps of every world's first episode, on the device."""

    def __init__(self, env: VectorEnv) -> None:
        self.playing = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
        self._sums: dict[str, Tensor] = {}
        self._flags = dict.fromkeys(("success", "terminated", "invalid"), ~self.playing)

    def add(
        self, reward: Tensor, terminated: Tensor, truncated: Tensor, info: Any, means: Any
    ) -> None:
        ended = self.playing & (terminated | truncated)
        step = {"return": reward, "length": torch.ones_like(reward)}
        step |= {f"term/{name}": value for name, value in info["terms"].items()}
        step |= {f"mean/{name}": value for name, value in means.items()}
        for name, value in step.items():
            new = torch.where(self.playing, value.to(torch.float64), 0.0)
            self._sums[name] = self._sums[name] + new if name in self._sums else new
        said = {"success": info["success"], "terminated": terminated, "invalid": info["invalid"]}
        self._flags = {n: old | (ended & said[n]) for n, old in self._flags.items()}
        self.playing = self.playing & ~ended

    def result(self, has_success: bool) -> Evaluation:
        sums = {name: value.cpu() for name, value in self._sums.items()}
        flags = {name: value.cpu() for name, value in self._flags.items()}

        def named(kind: str) -> dict[str, Tensor]:
            return {n.removeprefix(kind): v for n, v in sums.items() if n.startswith(kind)}

        return Evaluation(
            returns=sums["return"],
            lengths=sums["length"],
            success=flags["success"] if has_success else None,
            terminated=flags["terminated"],
            invalid=flags["invalid"],
            terms=named("term/"),
            means={name: value / sums["length"] for name, value in named("mean/").items()},
        )


def wilson(good: int, count: int, z: float = Z95) -> list[float]:
    """Wilson's score interval of a share (1927): [low, high].

    Args:
        good: how many succeeded.
        count: of how many, at least 1.
        z: quantile of the normal distribution; that of 95 % by default.
    """
    if not 0 <= good <= count or count < 1:
        raise ValueError(f"{good} of {count} is no share")
    share, tail = good / count, z * z / count
    middle = (share + tail / 2) / (1 + tail)
    half = z / (1 + tail) * math.sqrt(share * (1 - share) / count + tail / (4 * count))
    return [max(middle - half, 0.0), min(middle + half, 1.0)]


def _described(values: Tensor) -> dict[str, float]:
    """Mean with its standard error, and the range."""
    error = values.std() / math.sqrt(len(values)) if len(values) > 1 else torch.tensor(0.0)
    return {
        "mean": float(values.mean()),
        "stderr": float(error),
        "min": float(values.min()),
        "max": float(values.max()),
    }
