"""Training with torchrl: its collector, advantage estimator and PPO loss."""

from __future__ import annotations

import inspect
import math
import time
from typing import Any, cast

import gymnasium as gym
import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torch import Tensor, distributed, nn
from torch.distributions import kl_divergence
from torchrl.modules import IndependentNormal, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from alloy.envs.wrappers.learning import (
    CLIP_OBSERVATIONS,
    AdaptiveRate,
    perceptron,
    scatter_starts,
)
from alloy.envs.wrappers.normalize import NormalizeObservation
from alloy.envs.wrappers.policy import Policy
from alloy.envs.wrappers.run import Run
from alloy.envs.wrappers.torchrl import TorchRLEnv

try:
    from torchrl.collectors import Collector
except ImportError:  # before 0.11
    from torchrl.collectors import SyncDataCollector as Collector

KEPT = ("action", "sample_log_prob", "loc", "scale", "advantage", "value_target", "state_value")


def train(run: Run) -> Policy:
    """Train as `run` says; see `alloy.envs.wrappers.run`."""
    recipe, normal = run.recipe, None
    env: Any = run.env
    if recipe.normalize_observations:
        env = normal = NormalizeObservation(env, clip=CLIP_OBSERVATIONS)
    learner = Learner(run, normal)
    if run.library is not None:
        learner.load(run.library)
    learner.agree()
    run.begin(learner.state, learner.policy)
    # what nobody here asks for, and what takes time; not every version has all of it
    spared = {"track_traj_ids": False, "auto_register_policy_transforms": False}
    known = inspect.signature(Collector.__init__).parameters
    options: Any = {name: value for name, value in spared.items() if name in known}
    frames = recipe.worlds * recipe.steps
    options |= {"frames_per_batch": frames, "total_frames": -1}
    collector = Collector(TorchRLEnv(env), learner.actor, **options)
    if recipe.random_start:
        scatter_starts(env.unwrapped)
    began = time.monotonic()
    for batch in collector:
        collected = time.monotonic()
        said = learner.learn(batch)
        now = time.monotonic()
        said |= {"collect_seconds": collected - began, "learn_seconds": now - collected}
        if not run.report(said):
            break
        began = time.monotonic()
    collector.shutdown(close_env=False)
    return learner.policy()


class Gaussian(nn.Module):
    """The mean of an action from layers, and a standard deviation that is the same everywhere."""

    def __init__(self, layers: nn.Sequential, actions: int, std: float) -> None:
        """Begin with that standard deviation."""
        super().__init__()
        self.layers = layers
        self.log_std = nn.Parameter(torch.full((actions,), math.log(std)))

    def forward(self, *obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation, each [..., A]."""
        loc = self.layers(torch.cat(obs, -1))
        return loc, self.log_std.exp().expand_as(loc)


class Critic(nn.Module):
    """The value of what the critic sees."""

    def __init__(self, layers: nn.Sequential) -> None:
        """Take over the layers."""
        super().__init__()
        self.layers = layers

    def forward(self, *obs: Tensor) -> Tensor:
        """Value, [..., 1]."""
        return self.layers(torch.cat(obs, -1))


class Learner:
    """Networks, loss and optimiser.

    Attributes:
        actor: the policy, from observations to actions with noise.
    """

    def __init__(self, run: Run, normal: NormalizeObservation | None) -> None:
        """Make them of the run's recipe, on its device."""
        recipe = self._recipe = run.recipe
        self._run, self._normal = run, normal
        grouped = isinstance(run.env.single_observation_space, gym.spaces.Dict)
        names = run.groups()
        groups: dict[str, Any] = names if grouped else {who: ["observation"] for who in names}
        layers = {who: perceptron(run.sizes(who), recipe.activation) for who in groups}
        self._gaussian = Gaussian(layers["actor"], run.sizes("actor")[-1], recipe.init_noise_std)
        self.actor = ProbabilisticActor(
            TensorDictModule(self._gaussian, in_keys=groups["actor"], out_keys=["loc", "scale"]),
            in_keys=["loc", "scale"],
            distribution_class=IndependentNormal,
            return_log_prob=True,
            log_prob_key="sample_log_prob",
        ).to(run.device)
        critic = ValueOperator(Critic(layers["critic"]), in_keys=groups["critic"]).to(run.device)
        self._critic = critic
        self._keys = [*{*groups["actor"], *groups["critic"]}, *KEPT]
        self._advantage = GAE(
            gamma=recipe.gamma,
            lmbda=recipe.lam,
            value_network=critic,
            average_gae=True,
            deactivate_vmap=True,
        )
        self._loss = ClipPPOLoss(
            cast("Any", self.actor),
            critic,
            clip_epsilon=recipe.clip,
            clip_value=recipe.clip_value,
            entropy_bonus=recipe.entropy_coef > 0,
            entropy_coeff=recipe.entropy_coef,
            critic_coeff=recipe.value_coef,
            loss_critic_type="l2",
            device=run.device,
        )
        self._loss.set_keys(sample_log_prob="sample_log_prob")
        self._parameters = [*self._gaussian.parameters(), *critic.parameters()]
        self._optimizer = torch.optim.Adam(self._parameters, lr=recipe.learning_rate)
        self._rate = AdaptiveRate(recipe)

    def learn(self, batch: TensorDictBase) -> dict[str, float]:
        """Learn from what was collected, [W, T]; what is to be logged of it."""
        recipe = self._recipe
        with torch.no_grad():
            self._advantage(batch)
        data = batch.select(*self._keys).reshape(-1)
        sums: dict[str, Tensor] = {}
        count = recipe.epochs * recipe.minibatches
        kl = 0.0
        for _ in range(recipe.epochs):
            order = torch.randperm(data.shape[0], device=data.device)
            for rows in order.chunk(recipe.minibatches):
                losses = self._update(data[rows])
                sums = {n: sums.get(n, 0.0) + value / count for n, value in losses.items()}
            kl = self._moved(data[rows])
            for group in self._optimizer.param_groups:
                group["lr"] = self._rate.after(kl)
        self.agree(networks=False)
        said = {name.removeprefix("loss_"): float(value) for name, value in sums.items()}
        std = float(self._gaussian.log_std.detach().exp().mean())
        return said | {"kl": kl, "learning_rate": self._rate.value, "noise_std": std}

    def _update(self, rows: TensorDictBase) -> dict[str, Tensor]:
        losses = {n: v for n, v in self._loss(rows).items() if n.startswith("loss_")}
        self._optimizer.zero_grad()
        torch.stack([*losses.values()]).sum().backward()
        count = self._run.processes.count
        if count > 1:
            for gradient in [cast("Tensor", p.grad) for p in self._parameters]:
                distributed.all_reduce(gradient)
                gradient /= count
        nn.utils.clip_grad_norm_(self._parameters, self._recipe.max_grad_norm)
        self._optimizer.step()
        return {name: loss.detach() for name, loss in losses.items()}

    def _moved(self, rows: TensorDictBase) -> float:
        """How far the policy has moved from the one that collected the rows, by KL divergence."""
        with torch.no_grad():
            old = IndependentNormal(rows["loc"], rows["scale"])
            kl = kl_divergence(old, self.actor.get_dist(rows)).mean()
        processes = self._run.processes
        return float(processes.total(kl)) / processes.count

    def agree(self, networks: bool = True) -> None:
        """With several processes, take over what the leading one has."""
        if self._run.processes.count == 1:
            return
        shared = [p.data for p in self._parameters] if networks else []
        for moments in self._normal.moments.values() if self._normal is not None else ():
            shared += [moments.count, moments.mean, moments.var]
        for tensor in shared:
            distributed.broadcast(tensor, src=0)

    def state(self) -> dict[str, Any]:
        """All that learning needs to go on, as plain values and tensors."""
        moments = self._normal.moments if self._normal is not None else {}
        return {
            "actor": self._gaussian.state_dict(),
            "critic": self._critic.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "learning_rate": self._rate.value,
            "moments": {
                n: {"count": m.count, "mean": m.mean, "var": m.var} for n, m in moments.items()
            },
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self._gaussian.load_state_dict(state["actor"])
        self._critic.load_state_dict(state["critic"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._rate.value = state["learning_rate"]
        for name, values in state["moments"].items():
            moments = self._normal.moments[name]  # type: ignore[union-attr]
            for part, value in values.items():
                setattr(moments, part, value.to(self._run.device))

    def policy(self) -> Policy:
        """The present policy, for use without torchrl."""
        policy = self._run.new_policy(clip_observations=CLIP_OBSERVATIONS)
        policy.copy_layers([*self._gaussian.layers])
        if self._normal is not None:
            moments = [*self._normal.moments.values()]
            if len(moments) > 1:
                moments = [self._normal.moments[g] for g in self._run.groups()["actor"]]
            mean = torch.cat([m.mean for m in moments])
            var = torch.cat([m.var for m in moments])
            policy.set_normalizer(mean, torch.rsqrt(var + self._normal.epsilon))
        return policy
