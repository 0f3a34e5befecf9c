"""A training run: its environment, budget, logs and checkpoints; what a trainer talks to.

A trainer is a module `alloy.envs.wrappers.train_<library>` with one function:

    def train(run: Run) -> Policy:
        env = run.env                          # worlds ready to learn in, see `Run.env`
        agent = ...                            # made of run.recipe, on run.device
        if run.library is not None:            # a run that is resumed
            ...                                # take up the state that `state` below once gave
        run.begin(state=..., policy=...)
        going = True
        while going:
            ...                                # collect run.recipe.steps of every world, and learn
            going = run.report(losses)
        return policy()

`state` gives all that the library needs to go on, as plain values and tensors: networks,
optimisers, normalisers. `policy` gives the present policy, a `Policy` from `run.new_policy` with
the library's weights and normaliser in it: it is what is evaluated, exported and kept. The order
is the same in every run, so that random numbers are drawn alike: the environment first, then the
networks, then `begin`, which puts back a resumed run's generators. A trainer asks no clock and
writes no file. With several processes (`run.processes`) it averages gradients and normalisers over
them, and begins with the leading one's parameters.
"""

from __future__ import annotations

import ctypes
import math
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorWrapper

from alloy.envs.recipes import Recipe
from alloy.envs.registry import make
from alloy.envs.vector_env import VectorEnv
from alloy.envs.wrappers import checkpoint
from alloy.envs.wrappers.evaluate import HELD_OUT
from alloy.envs.wrappers.logs import Logs
from alloy.envs.wrappers.policy import Policy
from alloy.envs.wrappers.processes import Processes
from alloy.envs.wrappers.scaling import ScaledReward, UnitActions, action_bounds
from alloy.envs.wrappers.statistics import EpisodeStatistics

SEEDS = 2**32  # of worlds, for each seed of a training
RESUMED = 2**24  # of worlds, before a training is resumed
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


class Diverged(RuntimeError):
    """A policy that is not finite any more."""


@dataclass(frozen=True)
class Options:
    """What is trained, with what, where.

    Attributes:
        recipe: how.
        lib: "rsl_rl", "torchrl", "sb3" or "skrl".
        seed: of networks, noise and worlds.
        device: of the simulation and the learner.
        engine: as for `alloy.build`.
        threads: of torch, on a CPU.
        log_dir: where logs, checkpoints and results go; None writes nothing.
        save_every: iterations between checkpoints; the last one is always kept.
        progress: show a bar.
    """

    recipe: Recipe
    lib: str = "rsl_rl"
    seed: int = 0
    device: str = "cpu"
    engine: str = "auto"
    threads: int = 2
    log_dir: Path | None = None
    save_every: int = 50
    progress: bool = True


class Run:
    """One training.

    Attributes:
        env: the worlds: backend "torch", autoreset "same_step", episodes counted, actions from -1
            to 1, rewards times the recipe's scale. A `VectorWrapper`; `env.unwrapped` is the
            `VectorEnv`.
        recipe: how to train.
        library: the library's state in the checkpoint that this run resumes, or None.
        processes: this process among those that train together.
        iteration: updates so far.
        env_steps: steps of single worlds so far, of all processes.
    """

    def __init__(self, options: Options, resumed: Mapping[str, Any] | None = None) -> None:
        """Settle the random numbers and build the worlds.

        Args:
            options: what is trained.
            resumed: a checkpoint to go on from, as `checkpoint.load` gives it.

        Raises:
            ValueError, TypeError: from `alloy.envs.make`, and what `check_env` refuses.
        """
        self.options, self.recipe = options, options.recipe
        self.processes = Processes.join(torch.device(options.device))
        self.device = _device(options.device, self.processes)
        settle(options.seed, self.processes.rank, options.threads)
        resumed = resumed or {}
        self.library: dict[str, Any] | None = resumed.get("library")
        self._rng = resumed.get("rng")
        self.iteration: int = resumed.get("iteration", 0)
        self.env_steps: int = resumed.get("env_steps", 0)
        self.resumes: int = resumed.get("resumes", -1) + 1
        self._base = self._build()
        check_env(self._base, self.recipe.env_id)
        self.statistics = EpisodeStatistics(self._base)
        self.bounds = action_bounds(self._base)
        self.env = _prepared(self.statistics, self.recipe)
        self._state: Callable[[], dict[str, Any]] | None = None
        self._policy: Callable[[], Policy] | None = None
        self._logs: Logs | None = None

    def begin(self, state: Callable[[], dict[str, Any]], policy: Callable[[], Policy]) -> None:
        """Start the clock. See the module's page for `state` and `policy`."""
        self._state, self._policy = state, policy
        if self._rng is not None and self.processes.count == 1:
            checkpoint.set_rng_state(self._rng)
        self._start = self._last = time.monotonic()
        if self.processes.leads:
            o = self.options
            self._logs = Logs(
                o.log_dir, self.recipe, self.iteration, o.progress, self.statistics.has_success
            )

    def report(self, losses: Mapping[str, float], *, steps: int | None = None) -> bool:
        """An iteration is done: log it, and save a checkpoint when one is due.

        Args:
            losses: numbers to log: losses, and what else the library says ("learning_rate").
            steps: steps that every world took, the recipe's if not given.

        Returns:
            Whether to go on.
        """
        now = time.monotonic()
        steps = self.recipe.steps if steps is None else steps
        new = steps * self.recipe.worlds * self.processes.count
        self.iteration += 1
        self.env_steps += new
        minutes = (now - self._start) / 60.0
        episodes = self.statistics.summary(self.processes.total(self.statistics.take()))
        done = self.iteration >= self.recipe.iterations
        if self.recipe.minutes is not None:
            done = done or minutes >= self.recipe.minutes
        done = self.processes.agreed(done, self.device)
        if self._logs is not None:
            rate = new / max(now - self._last, 1e-9)
            row = {"iteration": self.iteration, "env_steps": self.env_steps, "minutes": minutes}
            self._logs.write(row | {"env_steps_per_s": rate}, episodes, losses)
            if done or self.iteration % self.options.save_every == 0:
                self.save()
        self._last = now
        return not done

    def groups(self) -> dict[str, list[str]]:
        """Groups of the observation that "actor" and "critic" see."""
        names = list(self._base.observation_names())
        actor = "policy" if "policy" in names else names[0]
        return {"actor": [actor], "critic": ["critic" if "critic" in names else actor]}

    def sizes(self, who: str) -> list[int]:
        """Widths of the layers of the "actor" or "critic", from its input to its output."""
        observe = self._base.program.task.observe
        inputs = sum(observe.size(group) for group in self.groups()[who])
        outputs = len(self._base.action_names()) if who == "actor" else 1
        return [inputs, *getattr(self.recipe, who), outputs]

    def new_policy(self, *, squash: str = "clip", clip_observations: float = math.inf) -> Policy:
        """A policy of the recipe's sizes with the environment's action bounds, to be filled.

        Args:
            squash: how the library brings the actor's output to +-1: "clip" or "tanh".
            clip_observations: where it cuts off normalised observations.
        """
        policy = Policy(
            self.sizes("actor"),
            self.recipe.activation,
            groups=self.groups()["actor"],
            squash=squash,
            clip_observations=clip_observations,
        )
        policy.set_bounds(*self.bounds)
        return policy.to(self.device).eval()

    def save(self) -> None:
        """Write `checkpoint.pt`, if there is a log directory.

        Raises:
            Diverged: the policy is not finite; an earlier checkpoint is left as it is.
        """
        if self.options.log_dir is None or self._state is None or self._policy is None:
            return
        o, policy = self.options, self._policy().packed()
        bad = [name for name, value in policy["state"].items() if not value.isfinite().all()]
        if bad:
            raise Diverged(
                f"the policy has turned non-finite by iteration {self.iteration}, in {bad}; take a "
                f"lower learning_rate or max_grad_norm. The last checkpoint is untouched"
            )
        checkpoint.save(
            o.log_dir / "checkpoint.pt",
            {
                "env_id": self.recipe.env_id,
                "lib": o.lib,
                "recipe": self.recipe.to_dict(),
                "seed": o.seed,
                "engine": o.engine,
                "device": str(self.device),
                "processes": self.processes.count,
                "versions": checkpoint.versions(),
                "git": checkpoint.git_revision(),
                "iteration": self.iteration,
                "env_steps": self.env_steps,
                "resumes": self.resumes,
                "rng": checkpoint.rng_state(),
                "library": self._state(),
                "policy": policy,
            },
        )

    def close(self) -> None:
        """Close the logs and the worlds, and leave the other processes."""
        if self._logs is not None:
            self._logs.close()
        self.env.close()
        self.processes.leave()

    def _build(self) -> VectorEnv:
        o, rank = self.options, self.processes.rank
        if not 0 <= o.seed < HELD_OUT // SEEDS:
            raise ValueError(f"seed must be from 0 to {HELD_OUT // SEEDS - 1}, not {o.seed}")
        first = o.seed * SEEDS + self.resumes * RESUMED + rank * self.recipe.worlds
        return make(
            self.recipe.env_id,
            self.recipe.worlds,
            seed=first,
            device=str(self.device),
            engine=o.engine,
            **self.recipe.env,
        )


def check_env(env: VectorEnv, env_id: str) -> None:
    """Refuse worlds in which a policy of vectors cannot be trained.

    Raises:
        ValueError: there is no action, an observation is a picture, or episodes never end.
    """
    if not env.action_names():
        raise ValueError(
            f"{env_id} has nothing to act with: its robot has no actuators; add <actuator> to its "
            f"MJCF, or actions to its task"
        )
    space = env.single_observation_space
    boxes = getattr(space, "spaces", {"policy": space})
    pictures = {name: box.shape for name, box in boxes.items() if len(box.shape or ()) != 1}
    if pictures:
        raise ValueError(
            f"{env_id} is seen through cameras, {pictures}, and these trainers take vectors only. "
            f"They would learn from the state alone, which is another task; make it without "
            f"cameras to do that"
        )
    if env.task.max_steps is None:
        raise ValueError(
            f"{env_id} has no time limit, so an episode may never end; give it one with "
            f"--env max_episode_steps=1000"
        )


def settle(seed: int, rank: int = 0, threads: int | None = None) -> None:
    """Make what follows repeatable: seeds, torch's deterministic algorithms, number of threads.

    On one machine the same seed, options and number of threads then give the same bits.
    """
    number = (seed + 1_000_003 * rank) % 2**32
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    # whoever trains reads no memory that was never written, and filling it takes time
    torch.utils.deterministic.fill_uninitialized_memory = False
    if threads is not None:
        torch.set_num_threads(threads)
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Let glibc keep what is freed: a learner's temporaries come again, minibatch after minibatch.

    Handing them to the system and mapping them anew took a sixth of an update's time with 6,400
    rows through layers of 128. Other C libraries have no such setting, and are left alone.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for setting in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
            mallopt(setting, 2**30)


def _device(name: str, processes: Processes) -> torch.device:
    device = torch.device(name)
    if device.type == "cuda" and processes.count > 1:
        device = torch.device("cuda", processes.local_rank)
        torch.cuda.set_device(device)
    return device


def _prepared(env: VectorWrapper, recipe: Recipe) -> VectorWrapper:
    low, high = action_bounds(env)
    if (low != -1).any() or (high != 1).any():
        env = UnitActions(env)
    return env if recipe.reward_scale == 1.0 else ScaledReward(env, recipe.reward_scale)
