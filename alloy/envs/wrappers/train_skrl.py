"""Training with skrl's PPO, versions 1.4 and 2."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from importlib import metadata
from typing import Any, cast

import torch
from skrl.agents.torch.ppo import PPO
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
from skrl.resources.preprocessors.torch import RunningStandardScaler
from skrl.resources.schedulers.torch import KLAdaptiveLR
from torch import Tensor, nn

from alloy.envs.vector_env import VectorEnv
from alloy.envs.wrappers.learning import FACTOR, FASTEST, SLOWEST, perceptron, scatter_starts
from alloy.envs.wrappers.policy import Policy
from alloy.envs.wrappers.run import Run
from alloy.envs.wrappers.skrl import FinalObservations, SkrlWrapper

MAJOR = int(metadata.version("skrl").split(".")[0])
CLIP = 5.0  # of normalised observations: RunningStandardScaler's own


def train(run: Run) -> Policy:
    """Train as `run` says; see `alloy.envs.wrappers.run`.

    skrl 1.4 has one observation for actor and critic, so a group "critic" is not used there.
    """
    env = SkrlWrapper(run.env)
    agent = make_agent(run, env)
    if run.library is not None:
        _load(agent, run.library)
    run.begin(lambda: _state(agent), lambda: _policy(run, agent))
    agent.init()
    observations, _ = env.reset()
    if run.recipe.random_start:
        scatter_starts(cast("VectorEnv", run.env.unwrapped))
    going = True
    while going:
        began = time.monotonic()
        for _ in range(run.recipe.steps - 1):
            observations = _interact(agent, env, observations)
        collected = time.monotonic()
        observations = _interact(agent, env, observations)  # and learns, after this one
        said = _tracked(agent.tracking_data)
        agent.tracking_data.clear()
        said["learning_rate"] = agent.optimizer.param_groups[0]["lr"]
        now = time.monotonic()
        said |= {"collect_seconds": collected - began, "learn_seconds": now - collected}
        going = run.report(said)
    return _policy(run, agent)


class Actor(GaussianMixin, Model):
    """The mean of an action from layers, and a standard deviation that is the same everywhere."""

    def __init__(self, env: SkrlWrapper, layers: nn.Sequential, std: float, device: Any) -> None:
        """Begin with that standard deviation."""
        Model.__init__(self, **_spaces(env, device))
        GaussianMixin.__init__(self, clip_actions=False)
        self.layers = layers
        self.log_std = nn.Parameter(torch.full((env.action_space.shape[0],), math.log(std)))

    def compute(self, inputs: Mapping[str, Any], role: str = "") -> tuple:
        """Mean and logarithm of the standard deviation of an action."""
        if MAJOR > 1:
            return self.layers(inputs["observations"]), {"log_std": self.log_std}
        return self.layers(inputs["states"]), self.log_std, {}


class Critic(DeterministicMixin, Model):
    """The value of what the critic sees."""

    def __init__(self, env: SkrlWrapper, layers: nn.Sequential, device: Any) -> None:
        """Take over the layers."""
        Model.__init__(self, **_spaces(env, device))
        DeterministicMixin.__init__(self, clip_actions=False)
        self.layers = layers

    def compute(self, inputs: Mapping[str, Any], role: str = "") -> tuple:
        """The value, [W, 1]."""
        states = inputs.get("states")
        return self.layers(inputs["observations"] if states is None else states), {}


class Agent(FinalObservations, PPO):
    """skrl's PPO with the true last observations."""


def _spaces(env: SkrlWrapper, device: Any) -> dict[str, Any]:
    states = {"state_space": env.state_space} if MAJOR > 1 else {}
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    return spaces | states | {"device": device}


def make_agent(run: Run, env: SkrlWrapper) -> Agent:
    """The agent of a run's recipe."""
    recipe = run.recipe
    critic = run.sizes("critic")
    if MAJOR == 1:
        critic = [run.sizes("actor")[0], *critic[1:]]
    actor_layers = perceptron(run.sizes("actor"), recipe.activation)
    models = {
        "policy": Actor(env, actor_layers, recipe.init_noise_std, run.device),
        "value": Critic(env, perceptron(critic, recipe.activation), run.device),
    }
    memory = RandomMemory(memory_size=recipe.steps, num_envs=recipe.worlds, device=run.device)
    agent = Agent(
        models=models, memory=memory, cfg=configuration(run, env), **_spaces(env, run.device)
    )
    agent.enable_training_mode(True) if MAJOR > 1 else agent.set_running_mode("train")
    return agent


def configuration(run: Run, env: SkrlWrapper) -> dict[str, Any]:
    """The agent's configuration, in the words of the installed version."""
    recipe = run.recipe
    cfg = {
        "rollouts": recipe.steps,
        "learning_epochs": recipe.epochs,
        "mini_batches": recipe.minibatches,
        "discount_factor": recipe.gamma,
        "gae_lambda" if MAJOR > 1 else "lambda": recipe.lam,
        "learning_rate": recipe.learning_rate,
        "grad_norm_clip": recipe.max_grad_norm,
        "ratio_clip": recipe.clip,
        "value_clip": recipe.clip if recipe.clip_value else 0.0,
        "entropy_loss_scale": recipe.entropy_coef,
        "value_loss_scale": recipe.value_coef,
        "time_limit_bootstrap": True,
        "experiment": {"write_interval": 0, "checkpoint_interval": 0},
    }
    if MAJOR == 1:
        cfg["clip_predicted_values"] = recipe.clip_value
    if recipe.schedule == "adaptive":
        cfg["learning_rate_scheduler"] = KLAdaptiveLR
        cfg["learning_rate_scheduler_kwargs"] = {
            "kl_threshold": recipe.desired_kl,
            "min_lr": SLOWEST,
            "max_lr": FASTEST,
            "lr_factor": FACTOR,
        }
    if recipe.normalize_observations:
        spaces = {"observation" if MAJOR > 1 else "state": env.observation_space}
        if MAJOR > 1 and env.state_space is not None:
            spaces["state"] = env.state_space
        for name, space in spaces.items():
            cfg[f"{name}_preprocessor"] = RunningStandardScaler
            cfg[f"{name}_preprocessor_kwargs"] = {"size": space, "device": run.device}
    return cfg


def _interact(agent: Agent, env: SkrlWrapper, observations: Tensor) -> Tensor:
    """One step of every world, as skrl's trainers make it; what they show after it."""
    about = {"timestep": 0, "timesteps": 1}
    with torch.no_grad():
        states = env.state()
        seen = (observations, states) if MAJOR > 1 else (observations,)
        actions = cast("Any", agent).act(*seen, **about)[0]
        following, rewards, terminated, truncated, infos = env.step(actions)
        step = {
            "actions": actions,
            "rewards": rewards,
            "terminated": terminated,
            "truncated": truncated,
            "infos": infos,
            **about,
        }
        if MAJOR > 1:
            step |= {"observations": observations, "states": states}
            step |= {"next_observations": following, "next_states": env.state()}
        else:
            step |= {"states": observations, "next_states": following}
        agent.record_transition(**step)
    agent.post_interaction(**about)
    return following


def _tracked(data: Mapping[str, list[float]]) -> dict[str, float]:
    """What skrl says of an update: losses, and the actions' standard deviation."""
    kept = {"Loss / ": "", "Policy / ": "policy_"}
    return {
        prefix + name.removeprefix(start).lower().replace(" ", "_"): float(values[-1])
        for name, values in data.items()
        for start, prefix in kept.items()
        if name.startswith(start)
    }


def _modules(agent: Agent) -> dict[str, nn.Module]:
    return {n: m for n, m in agent.checkpoint_modules.items() if isinstance(m, nn.Module)}


def _state(agent: Agent) -> dict[str, Any]:
    modules = {name: module.state_dict() for name, module in _modules(agent).items()}
    return {"modules": modules, "optimizer": agent.optimizer.state_dict()}


def _load(agent: Agent, state: dict[str, Any]) -> None:
    for name, module in _modules(agent).items():
        module.load_state_dict(state["modules"][name])
    agent.optimizer.load_state_dict(state["optimizer"])


def _policy(run: Run, agent: Agent) -> Policy:
    """The present policy, for use without skrl."""
    normalize = run.recipe.normalize_observations
    policy = run.new_policy(clip_observations=CLIP if normalize else math.inf)
    policy.copy_layers([*cast("Actor", agent.policy).layers])
    if normalize:
        name = "observation_preprocessor" if MAJOR > 1 else "state_preprocessor"
        scaler = agent.checkpoint_modules[name]
        std = torch.sqrt(scaler.running_variance.float()) + scaler.epsilon
        policy.set_normalizer(scaler.running_mean.float(), 1.0 / std)
    return policy
