"""Training with rsl_rl's own runner and PPO, versions 3 to 5."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from importlib import metadata
from typing import Any

from rsl_rl.runners import OnPolicyRunner
from torch import distributed, nn

from alloy.envs.recipes import Recipe
from alloy.envs.wrappers.policy import Policy
from alloy.envs.wrappers.processes import Processes
from alloy.envs.wrappers.rsl_rl import RslRlVecEnv
from alloy.envs.wrappers.run import Run

MAJOR = int(metadata.version("rsl-rl-lib").split(".")[0])


def train(run: Run) -> Policy:
    """Train as `run` says; see `alloy.envs.wrappers.run`."""
    env = RslRlVecEnv(run.env, cfg=run.recipe.to_dict())
    config = configuration(run.recipe, run.groups())
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its networks
        runner = Runner(env, config, run)
    if run.library is not None:
        _load(runner.alg, run.library)
    run.begin(lambda: _state(runner.alg), lambda: _policy(run, runner.alg))
    runner.current_learning_iteration = run.iteration
    with contextlib.suppress(BudgetSpent), contextlib.redirect_stdout(io.StringIO()):
        runner.learn(run.recipe.iterations, init_at_random_ep_len=run.recipe.random_start)
    return _policy(run, runner.alg)


class BudgetSpent(Exception):
    """Leaves `learn` after an iteration that was the last."""


class Runner(OnPolicyRunner):
    """rsl_rl's runner, which reports to a run instead of writing files of its own."""

    def __init__(self, env: RslRlVecEnv, config: dict[str, Any], run: Run) -> None:
        """Make the networks and the algorithm."""
        self._run = run
        super().__init__(env, config, log_dir=None, device=str(run.device))
        self.logger = Reporter(run, lambda: _networks(self.alg))

    def save(self, path: str, infos: dict | None = None) -> None:
        """Nothing: the run saves."""

    def _configure_multi_gpu(self) -> None:
        """As rsl_rl, but for any device; the run has made the process group already."""
        mine: Processes = self._run.processes
        self.gpu_world_size, self.is_distributed = mine.count, mine.count > 1
        self.gpu_local_rank, self.gpu_global_rank = mine.local_rank, mine.rank
        shared = None
        if self.is_distributed:
            shared = {
                "global_rank": mine.rank,
                "local_rank": mine.local_rank,
                "world_size": mine.count,
            }
        self.cfg["multi_gpu"] = self.multi_gpu_cfg = shared  # of version 4 on, and of version 3


class Reporter:
    """What the runner takes for its logger: it counts nothing, and reports every iteration."""

    writer = None
    log_dir = ""
    disable_logs = True

    def __init__(self, run: Run, networks: Callable[[], list[nn.Module]]) -> None:
        """Report to a run."""
        self._run, self._networks = run, networks

    def init_logging_writer(self) -> None:
        """Nothing to open."""

    def process_env_step(self, *args: Any) -> None:
        """The environment counts its episodes itself."""

    def log(self, **said: Any) -> None:
        """End an iteration.

        Raises:
            BudgetSpent: it was the last one.
        """
        if MAJOR < 5 and self._run.processes.count > 1:
            for network in self._networks():  # normalisers, which these versions do not share
                for buffer in network.buffers():
                    distributed.broadcast(buffer, src=0)
        losses = {
            **said["loss_dict"],
            "learning_rate": said["learning_rate"],
            "noise_std": float(said["action_std"].detach().mean()),
            "collect_seconds": said["collect_time"],
            "learn_seconds": said["learn_time"],
        }
        if not self._run.report(losses):
            raise BudgetSpent


def configuration(recipe: Recipe, groups: dict[str, list[str]]) -> dict[str, Any]:
    """The runner's configuration, in the words of the installed version."""
    algorithm = {
        "class_name": "PPO",
        "num_learning_epochs": recipe.epochs,
        "num_mini_batches": recipe.minibatches,
        "clip_param": recipe.clip,
        "gamma": recipe.gamma,
        "lam": recipe.lam,
        "value_loss_coef": recipe.value_coef,
        "entropy_coef": recipe.entropy_coef,
        "learning_rate": recipe.learning_rate,
        "max_grad_norm": recipe.max_grad_norm,
        "use_clipped_value_loss": recipe.clip_value,
        "schedule": recipe.schedule,
        "desired_kl": recipe.desired_kl,
        "rnd_cfg": None,
        "symmetry_cfg": None,
    }
    config = {
        "num_steps_per_env": recipe.steps,
        "save_interval": recipe.iterations,
        "check_for_nan": False,  # the environment's numbers are finite, and looking takes time
        "algorithm": algorithm,
    }
    normalize, std = recipe.normalize_observations, recipe.init_noise_std
    if MAJOR < 4:
        policy = {
            "class_name": "ActorCritic",
            "actor_hidden_dims": list(recipe.actor),
            "critic_hidden_dims": list(recipe.critic),
            "activation": recipe.activation,
            "actor_obs_normalization": normalize,
            "critic_obs_normalization": normalize,
            "init_noise_std": std,
        }
        sets = {"policy": groups["actor"], "critic": groups["critic"]}
        return config | {"policy": policy, "obs_groups": sets}
    common = {
        "class_name": "MLPModel",
        "activation": recipe.activation,
        "obs_normalization": normalize,
    }
    if MAJOR < 5:
        noise: dict[str, Any] = {"stochastic": True, "init_noise_std": std}
        quiet: dict[str, Any] = {"stochastic": False}
    else:
        noise = {"distribution_cfg": {"class_name": "GaussianDistribution", "init_std": std}}
        quiet = {}
    actor = common | {"hidden_dims": list(recipe.actor)} | noise
    critic = common | {"hidden_dims": list(recipe.critic)} | quiet
    return config | {"actor": actor, "critic": critic, "obs_groups": dict(groups)}


def _networks(alg: Any) -> list[nn.Module]:
    return [alg.policy] if MAJOR < 4 else [alg.actor, alg.critic]


def _state(alg: Any) -> dict[str, Any]:
    return {
        "networks": [network.state_dict() for network in _networks(alg)],
        "optimizer": alg.optimizer.state_dict(),
        "learning_rate": alg.learning_rate,
    }


def _load(alg: Any, state: dict[str, Any]) -> None:
    for network, values in zip(_networks(alg), state["networks"], strict=True):
        network.load_state_dict(values)
    alg.optimizer.load_state_dict(state["optimizer"])
    alg.learning_rate = state["learning_rate"]


def _policy(run: Run, alg: Any) -> Policy:
    """The present policy, for use without rsl_rl."""
    actor = alg.policy if MAJOR < 4 else alg.actor
    normalizer = actor.actor_obs_normalizer if MAJOR < 4 else actor.obs_normalizer
    policy = run.new_policy()
    policy.copy_layers([*(actor.actor if MAJOR < 4 else actor.mlp)])
    if run.recipe.normalize_observations:
        policy.set_normalizer(normalizer.mean, 1.0 / (normalizer.std + normalizer.eps))
    return policy
