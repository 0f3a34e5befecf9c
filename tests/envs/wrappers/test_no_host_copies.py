"""rsl_rl's runner and torchrl's learning loop work on the tensors: no array anywhere in between."""

import pytest
import torch
from rsl_rl.runners import OnPolicyRunner

from alloy.envs.recipes import Recipe
from alloy.envs.wrappers import train_rsl_rl
from alloy.envs.wrappers.rsl_rl import RslRlVecEnv
from alloy.envs.wrappers.run import Options, Run
from alloy.envs.wrappers.torchrl import TorchRLEnv
from alloy.envs.wrappers.train_torchrl import Collector, Learner
from tests.envs.wrappers.hosts import forbid_arrays


@pytest.fixture
def training():
    filled = torch.utils.deterministic.fill_uninitialized_memory
    sizes = {"worlds": 4, "steps": 12, "actor": (8,), "critic": (8,), "iterations": 2}
    recipe = Recipe("InvertedPendulum-v5", env={"max_episode_steps": 10}, **sizes)
    run = Run(Options(recipe, threads=1, progress=False))
    yield run
    run.close()
    torch.utils.deterministic.fill_uninitialized_memory = filled


def test_c31_rsl_rls_runner_makes_no_array(training, monkeypatch):
    env = RslRlVecEnv(training.env)
    config = train_rsl_rl.configuration(training.recipe, training.groups())
    runner = OnPolicyRunner(env, config | {"check_for_nan": True}, log_dir=None)
    before = [p.clone() for p in runner.alg.actor.parameters()]
    forbid_arrays(monkeypatch)
    runner.learn(2, init_at_random_ep_len=True)
    monkeypatch.undo()
    after = [*runner.alg.actor.parameters()]
    assert not all(map(torch.equal, before, after))
    assert all(p.isfinite().all() for p in after)
    assert training.statistics.summary(training.statistics.take())["episodes"] > 4


def test_c32_torchrls_loop_makes_no_array(training, monkeypatch):
    learner = Learner(training, None)
    frames = training.recipe.worlds * training.recipe.steps
    forbid_arrays(monkeypatch)
    env = TorchRLEnv(training.env)
    losses = [
        learner.learn(batch)
        for batch in Collector(env, learner.actor, frames_per_batch=frames, total_frames=2 * frames)
    ]
    monkeypatch.undo()
    assert len(losses) == 2
    assert all(torch.tensor([*said.values()]).isfinite().all() for said in losses)
    assert training.statistics.summary(training.statistics.take())["episodes"] > 4


def test_the_hook_fails(monkeypatch):
    forbid_arrays(monkeypatch)
    for leave in (torch.Tensor.numpy, torch.Tensor.cpu, torch.Tensor.tolist):
        with pytest.raises(AssertionError, match="became an array"):
            leave(torch.zeros(2))
