"""Training with Stable-Baselines3: its PPO over its VecNormalize."""

from __future__ import annotations

import contextlib
import math
import warnings
from typing import Any, cast

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecNormalize

from alloy.envs.vector_env import VectorEnv
from alloy.envs.wrappers.learning import CLIP_OBSERVATIONS, AdaptiveRate, scatter_starts
from alloy.envs.wrappers.policy import ACTIVATIONS, Policy
from alloy.envs.wrappers.run import Run
from alloy.envs.wrappers.sb3 import SB3VecEnv

FOREVER = 2**62  # steps; the run says when to stop
LOGGED = ("policy_gradient_loss", "value_loss", "entropy_loss", "clip_fraction", "std")


def train(run: Run) -> Policy:
    """Train as `run` says; see `alloy.envs.wrappers.run`.

    SB3 has one observation for actor and critic, so a group "critic" is not used. Its learning
    rate is the same throughout an iteration: an adaptive one follows from one to the next, and an
    update that moves the policy too far is cut short (`target_kl`).
    """
    env = SB3VecEnv(run.env, groups=run.groups()["actor"] if _grouped(run) else None)
    recipe = run.recipe
    normal = VecNormalize(
        env,
        norm_obs=recipe.normalize_observations,
        norm_reward=False,
        clip_obs=CLIP_OBSERVATIONS,
        gamma=recipe.gamma,
    )
    with warnings.catch_warnings():  # of a last minibatch that is smaller than the others
        warnings.simplefilter("ignore", UserWarning)
        learner = Learner(run, normal)
    if run.library is not None:
        learner.load(run.library)
    run.begin(learner.state, learner.as_policy)
    with contextlib.suppress(BudgetSpent):
        learner.learn(FOREVER, callback=Scatter(run) if recipe.random_start else None)
    return learner.as_policy()


class BudgetSpent(Exception):
    """Leaves `learn` after an iteration that was the last."""


class Scatter(BaseCallback):
    """Scatters the first episodes, once SB3 has begun them."""

    def __init__(self, run: Run) -> None:
        """Of a run's worlds."""
        super().__init__()
        self._run = run

    def _on_training_start(self) -> None:
        scatter_starts(cast("VectorEnv", self._run.env.unwrapped))

    def _on_step(self) -> bool:
        return True


class Learner(PPO):
    """SB3's PPO, which reports to a run."""

    def __init__(self, run: Run, env: VecNormalize) -> None:
        """Make the networks and the optimiser."""
        recipe = run.recipe
        self._run, self._normal, self._rate = run, env, AdaptiveRate(recipe)
        adaptive = recipe.schedule == "adaptive"
        super().__init__(
            "MlpPolicy",
            env,
            learning_rate=lambda left: self._rate.value,
            n_steps=recipe.steps,
            batch_size=max(recipe.worlds * recipe.steps // recipe.minibatches, 2),
            n_epochs=recipe.epochs,
            gamma=recipe.gamma,
            gae_lambda=recipe.lam,
            clip_range=recipe.clip,
            clip_range_vf=recipe.clip if recipe.clip_value else None,
            ent_coef=recipe.entropy_coef,
            vf_coef=recipe.value_coef,
            max_grad_norm=recipe.max_grad_norm,
            target_kl=2.0 * recipe.desired_kl if adaptive else None,
            policy_kwargs={
                "net_arch": {"pi": list(recipe.actor), "vf": list(recipe.critic)},
                "activation_fn": ACTIVATIONS[recipe.activation],
                "log_std_init": math.log(recipe.init_noise_std),
            },
            device=run.device,
        )

    def train(self) -> None:
        """Learn from what was collected, and report.

        Raises:
            BudgetSpent: this was the last iteration.
        """
        super().train()
        said = self.logger.name_to_value
        kl = float(said["train/approx_kl"])
        losses = {name: float(said[f"train/{name}"]) for name in LOGGED}
        self._rate.after(kl)
        if not self._run.report(losses | {"kl": kl, "learning_rate": self._rate.value}):
            raise BudgetSpent

    def state(self) -> dict[str, Any]:
        """All that learning needs to go on, as plain values and tensors."""
        moments = self._normal.obs_rms if self._run.recipe.normalize_observations else None
        return {
            "policy": self.policy.state_dict(),
            "optimizer": self.policy.optimizer.state_dict(),
            "learning_rate": self._rate.value,
            "moments": None
            if moments is None
            else {
                "mean": torch.from_numpy(np.array(moments.mean)),
                "var": torch.from_numpy(np.array(moments.var)),
                "count": float(moments.count),
            },
        }

    def load(self, state: dict[str, Any]) -> None:  # type: ignore[override]
        """Take up what `state` gave."""
        self.policy.load_state_dict(state["policy"])
        self.policy.optimizer.load_state_dict(state["optimizer"])
        self._rate.value = state["learning_rate"]
        if state["moments"] is not None:
            moments = cast("Any", self._normal.obs_rms)
            moments.mean = state["moments"]["mean"].cpu().numpy()
            moments.var = state["moments"]["var"].cpu().numpy()
            moments.count = state["moments"]["count"]

    def as_policy(self) -> Policy:
        """The present policy, for use without SB3."""
        theirs = cast("Any", self.policy)
        clip = CLIP_OBSERVATIONS if self._run.recipe.normalize_observations else math.inf
        policy = self._run.new_policy(clip_observations=clip)
        policy.copy_layers([*theirs.mlp_extractor.policy_net, theirs.action_net])
        if self._run.recipe.normalize_observations:
            moments = cast("Any", self._normal.obs_rms)
            mean, var = (torch.as_tensor(x) for x in (moments.mean, moments.var))
            policy.set_normalizer(mean, torch.rsqrt(var + self._normal.epsilon))
        return policy


def _grouped(run: Run) -> bool:
    return hasattr(run.env.single_observation_space, "spaces")
