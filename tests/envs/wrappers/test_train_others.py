"""The command with torchrl, Stable-Baselines3 and skrl: what holds for rsl_rl holds for them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from alloy.envs import registry
from alloy.envs.recipes import Recipe
from alloy.envs.wrappers import checkpoint, train_sb3, train_skrl, train_torchrl
from alloy.envs.wrappers.learning import FASTEST, SLOWEST, AdaptiveRate, scatter_starts
from alloy.envs.wrappers.policy import Policy
from alloy.envs.wrappers.run import Options, Run
from tests.envs import toy
from tests.envs.wrappers.short import ENV, rows, run

OTHERS = ("torchrl", "sb3", "skrl")
TRAINERS = {"torchrl": train_torchrl, "sb3": train_sb3, "skrl": train_skrl}


@pytest.mark.parametrize("lib", OTHERS)
def test_trains_repeats_itself_and_goes_on(lib, tmp_path):
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        assert run(tmp_path / name, "--iterations", "2", "--seed", seed, lib=lib) == 0
    a, b, c = ((tmp_path / name / "checkpoint.pt").read_bytes() for name in "abc")
    assert a == b
    assert a != c
    said = rows(tmp_path / "a")
    assert [int(row["env_steps"]) for row in said] == [64, 128]
    learned = {n: [float(row[n]) for row in said] for n in said[0] if n.startswith("learn/")}
    assert "learn/learning_rate" in learned
    assert len(learned) >= 4
    assert all(np.isfinite(values).all() for values in learned.values())
    first = checkpoint.load(tmp_path / "a" / "checkpoint.pt")
    more = ("--iterations", "3", "--resume", str(tmp_path / "a" / "checkpoint.pt"))
    assert run(tmp_path / "a", *more, lib=lib) == 0
    second = checkpoint.load(tmp_path / "a" / "checkpoint.pt")
    assert [int(row["iteration"]) for row in rows(tmp_path / "a")] == [1, 2, 3]
    steps = [next(iter(_optimizer(s)["state"].values()))["step"].item() for s in (first, second)]
    assert 0 < steps[0] < steps[1] <= 1.5 * steps[0] + 8
    moved = [saved["policy"]["state"]["mean"] for saved in (first, second)]
    assert moved[0].abs().max() > 0
    assert not torch.equal(*moved)


def _optimizer(saved):
    return saved["library"]["optimizer"]


@pytest.mark.parametrize("lib", OTHERS)
@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("normalize", [True, False])
def test_what_is_loaded_is_what_was_saved(lib, groups, normalize, monkeypatch):
    """A resumed learner has the networks, the normaliser and the learning rate of the first."""
    _register(monkeypatch, groups)
    recipe = Recipe("Cart-v0", worlds=4, steps=8, actor=(8,), critic=(4,))
    recipe = recipe.changed(iterations=2, normalize_observations=normalize)
    kept = []
    library = None
    for iterations in (2, 3):
        options = Options(recipe.changed(iterations=iterations), lib=lib, threads=1, progress=False)
        training = Run(options, library and {"library": _copied(library), "iteration": 2})
        begun = {}
        begin = training.begin

        def watched(state, policy, begin=begin, begun=begun):
            begun["state"], begun["policy"] = state, policy
            kept.append(_copied(state()))
            begin(state, policy)

        monkeypatch.setattr(training, "begin", watched)
        policy = TRAINERS[lib].train(training)
        library = _copied(begun["state"]())
        kept.append(library)
        training.close()
    assert _same(kept[1], kept[2])
    assert not _same(kept[0], kept[1])
    assert not _same(kept[2], kept[3])
    assert policy(torch.zeros(1, 2)).isfinite().all()


def _copied(tree):
    if isinstance(tree, dict):
        return {name: _copied(value) for name, value in tree.items()}
    if isinstance(tree, list):
        return [_copied(value) for value in tree]
    return tree.clone() if isinstance(tree, torch.Tensor) else tree


def _same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[name], b[name]) for name in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def _register(monkeypatch, groups):
    obs = {"policy": ["cart"], "critic": ["cart", toy.position]} if groups else ["cart"]
    made = lambda: (toy.CART, toy.task(obs=obs))  # noqa: E731
    monkeypatch.setitem(registry._FACTORIES, "Cart-v0", made)


@pytest.mark.parametrize("lib", OTHERS)
def test_the_policy_is_the_librarys_own(lib):
    """Normaliser, layers, bounds: what is evaluated is what the library would do."""
    recipe = Recipe(ENV, worlds=8, steps=8, actor=(8,), critic=(4,), iterations=3)
    training = Run(Options(recipe, lib=lib, threads=1, progress=False))
    obs = torch.randn(20, 4) * torch.tensor([0.1, 1.0, 2.0, 30.0])
    seen = {}

    def remembered(kind, name):
        original = getattr(kind, name)

        def made(self, *args, **kwargs):
            seen["learner"] = self
            return original(self, *args, **kwargs)

        return made

    with pytest.MonkeyPatch.context() as patch:
        kind = {
            "torchrl": train_torchrl.Learner,
            "sb3": train_sb3.Learner,
            "skrl": train_skrl.Agent,
        }[lib]
        patch.setattr(kind, "__init__", remembered(kind, "__init__"))
        mine = TRAINERS[lib].train(training)
    theirs = {"torchrl": _torchrl_acts, "sb3": _sb3_acts, "skrl": _skrl_acts}[lib]
    with torch.no_grad():
        expected = theirs(seen["learner"], obs).clamp(-1, 1) * 3.0
    torch.testing.assert_close(mine.act(obs), expected)
    assert mine.mean.abs().max() > 0
    assert expected.std() > 0
    training.close()


def _torchrl_acts(learner, obs):
    rows = learner._normal._scaled(obs, "")
    return learner.actor.get_dist(TensorDict({"observation": rows}, batch_size=[20])).mean


def _sb3_acts(learner, obs):
    rows = learner.get_vec_normalize_env().normalize_obs(obs.numpy())
    return torch.from_numpy(learner.predict(rows, deterministic=True)[0])


def _skrl_acts(agent, obs):
    seen = (obs, None) if train_skrl.MAJOR > 1 else (obs,)
    return agent.act(*seen, timestep=0, timesteps=1)[-1]["mean_actions"]


@pytest.mark.parametrize("lib", OTHERS)
def test_a_pole_is_held_longer_after_a_few_updates(lib):
    """Random play holds it for 5 steps."""
    recipe = Recipe(ENV, worlds=64, steps=32, actor=(32,), critic=(32,), iterations=9)
    options = Options(recipe, lib=lib, seed=1, engine="lanes", threads=1, progress=False)
    training = Run(options)
    returns = []
    take = training.statistics.take

    def watched():
        taken = take()
        returns.append(training.statistics.summary(taken)["return"])
        return taken

    training.statistics.take = watched
    TRAINERS[lib].train(training)
    training.close()
    assert returns[0] < 8.0
    assert returns[-1] > 4.0 * returns[0]


def test_two_processes_of_torchrl_learn_the_same_from_different_worlds(tmp_path):
    program = Path(__file__).with_name("two_processes.py")
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    command = [sys.executable, *launch, str(program), "torchrl", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert first["seeds"] != second["seeds"]
    mine, other = (Policy.unpacked(side["policy"]).state_dict() for side in (first, second))
    for name in mine:
        assert torch.equal(mine[name], other[name]), name
    assert mine["mean"].abs().max() > 0


def test_an_adaptive_rate_follows_the_divergence():
    recipe = Recipe(ENV, learning_rate=1e-3, desired_kl=0.01)
    rate = AdaptiveRate(recipe)
    assert rate.after(0.01) == 1e-3
    assert rate.after(0.03) == pytest.approx(1e-3 / 1.5)
    assert rate.after(0.001) == pytest.approx(1e-3)
    assert [rate.after(1.0) for _ in range(50)][-1] == SLOWEST
    assert [rate.after(1e-9) for _ in range(50)][-1] == FASTEST
    fixed = AdaptiveRate(recipe.changed(schedule="fixed"))
    assert [fixed.after(kl) for kl in (1.0, 0.0)] == [1e-3, 1e-3]


def test_scattered_worlds_do_not_all_end_together():
    torch.manual_seed(0)
    env = toy.env(64, toy.task(failure=None))
    env.reset()
    scatter_starts(env)
    ends = torch.stack([env.step(torch.zeros(64, 1))[3] for _ in range(7)])
    assert ends.sum(0).eq(1).all()
    assert ends.sum(1).max() < 32
