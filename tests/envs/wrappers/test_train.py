"""The command: what it writes, that it repeats itself bit for bit, goes on, and refuses."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict

from alloy.envs import registry
from alloy.envs.recipes import Recipe
from alloy.envs.wrappers import checkpoint, train
from alloy.envs.wrappers.evaluate import HELD_OUT
from alloy.envs.wrappers.policy import Policy
from alloy.envs.wrappers.run import Options, Run, check_env
from tests.envs import toy
from tests.envs.wrappers.short import ENV, rows, run


def test_c31_a_short_run_learns_and_leaves_everything(tmp_path):
    assert run(tmp_path, "--iterations", "5") == 0
    said = rows(tmp_path)
    assert [int(row["iteration"]) for row in said] == [1, 2, 3, 4, 5]
    assert [int(row["env_steps"]) for row in said] == [64 * i for i in range(1, 6)]
    for name in ("learn/value", "learn/surrogate", "learn/learning_rate", "env_steps_per_s"):
        assert all(torch.tensor(float(row[name])).isfinite() for row in said), name
    assert len({row["learn/value"] for row in said}) == 5
    assert list(tmp_path.glob("events.out.tfevents.*"))
    saved = checkpoint.load(tmp_path / "checkpoint.pt")
    assert Recipe.from_dict(saved["recipe"]).actor == (8,)
    assert saved["versions"]["torch"] == torch.__version__
    assert (saved["iteration"], saved["env_steps"]) == (5, 320)
    result = json.loads((tmp_path / "evaluation.json").read_text())
    assert result["episodes"] == 4
    assert result["seed"] == HELD_OUT
    assert result["trained"]["env_steps"] == 320


def test_same_seed_same_bits(tmp_path):
    """However often it is saved on the way."""
    for name, seed, every in (("a", "3", "50"), ("b", "3", "1"), ("c", "4", "50")):
        flags = ("--iterations", "2", "--seed", seed, "--save-every", every)
        assert run(tmp_path / name, *flags) == 0
    a, b, c = ((tmp_path / name / "checkpoint.pt").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_resumes_where_it_stopped(tmp_path):
    assert run(tmp_path, "--iterations", "2") == 0
    first = checkpoint.load(tmp_path / "checkpoint.pt")
    assert run(tmp_path, "--iterations", "3", "--resume", str(tmp_path / "checkpoint.pt")) == 0
    second = checkpoint.load(tmp_path / "checkpoint.pt")
    assert [int(row["iteration"]) for row in rows(tmp_path)] == [1, 2, 3]
    assert (second["iteration"], second["env_steps"], second["resumes"]) == (3, 192, 1)
    steps = [s["library"]["optimizer"]["state"][0]["step"].item() for s in (first, second)]
    assert steps == [16, 24]  # 2 epochs of 4 minibatches in every iteration


def test_a_policy_that_diverges_ends_the_run_and_spares_the_checkpoint(
    tmp_path, monkeypatch, caplog
):
    from alloy.envs.wrappers import train_rsl_rl

    def diverge(run):
        policy = run.new_policy()
        run.begin(dict, lambda: policy)
        run.save()
        policy.mean[0] = torch.nan
        run.save()

    monkeypatch.setattr(train_rsl_rl, "train", diverge)
    assert run(tmp_path) == 1
    assert "turned non-finite by iteration 0, in ['mean']" in caplog.text
    saved = checkpoint.load(tmp_path / "checkpoint.pt")
    assert saved["policy"]["state"]["mean"].tolist() == [0.0] * 4


def test_minutes_end_a_training(tmp_path):
    assert run(tmp_path, "--iterations", "1000", "--minutes", "0") == 0
    assert len(rows(tmp_path)) == 1


def test_evaluates_a_checkpoint_alone(tmp_path, caplog):
    assert run(tmp_path, "--iterations", "1") == 0
    before = json.loads((tmp_path / "evaluation.json").read_text())
    (tmp_path / "evaluation.json").unlink()
    file = tmp_path / "checkpoint.pt"
    again = [ENV, "--eval", str(file), "--no-video", "--threads", "1"]
    assert train.main(again) == 0
    after = json.loads((tmp_path / "evaluation.json").read_text())
    assert after["return"] == before["return"]
    assert len(rows(tmp_path)) == 1


def test_the_policy_is_rsl_rls_own(tmp_path):
    """Normaliser, layers, bounds: what is evaluated is what rsl_rl would do."""
    from alloy.envs.wrappers import train_rsl_rl
    from alloy.envs.wrappers.rsl_rl import RslRlVecEnv

    recipe = Recipe(ENV, worlds=8, steps=8, actor=(8,), critic=(4,), iterations=2)
    training = Run(Options(recipe, threads=1, progress=False))
    env = RslRlVecEnv(training.env)
    config = train_rsl_rl.configuration(recipe, training.groups())
    runner = train_rsl_rl.Runner(env, config, training)
    training.begin(lambda: {}, lambda: training.new_policy())
    runner.learn(1)
    theirs = runner.get_inference_policy()
    obs = torch.randn(20, 4)
    with torch.no_grad():
        expected = theirs(TensorDict({"policy": obs}, batch_size=[20])).clamp(-1, 1) * 3.0
    mine = train_rsl_rl._policy(training, runner.alg)
    torch.testing.assert_close(mine.act(obs), expected)
    assert mine.mean.abs().max() > 0
    training.close()


def test_training_never_meets_the_held_out_seeds():
    recipe = Recipe(ENV, worlds=4)
    last = Options(recipe, seed=2**30 - 1, threads=1, progress=False)
    training = Run(last, {"resumes": 2})
    training.env.reset()
    seeds = training.env.unwrapped._episode.seed
    assert (seeds < HELD_OUT).all()
    assert (seeds > HELD_OUT - 2**32).all()
    training.close()
    with pytest.raises(ValueError, match="seed must be from 0"):
        Run(Options(recipe, seed=2**30, threads=1))


def test_plays_in_gymnasiums_own_environment():
    """A policy that does nothing falls as fast there as in a loop over one environment."""
    import gymnasium as gym

    path = Path(__file__).parents[3] / "scripts" / "transfer.py"
    spec = importlib.util.spec_from_file_location("transfer", path)
    transfer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(transfer)
    recipe = Recipe(ENV, episodes=3, env={"reset_noise_scale": 0.02})
    got = transfer.gymnasium_returns(Policy([4, 1], "elu"), recipe)
    expected = []
    for i in range(3):
        env = gym.make(ENV, reset_noise_scale=0.02)
        env.reset(seed=transfer.SEED + i)
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step([0.0])
            total, over = total + reward, terminated or truncated
        expected.append(total)
    assert got.tolist() == expected
    assert len(set(expected)) > 1


@pytest.mark.parametrize("lib", ["rsl_rl"])
def test_two_processes_learn_the_same_from_different_worlds(tmp_path, lib):
    program = Path(__file__).with_name("two_processes.py")
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    command = [sys.executable, *launch, str(program), lib, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert first["seeds"] != second["seeds"]
    assert first["env_steps"] == second["env_steps"] == 2 * 2 * 8 * 8
    mine, other = (Policy.unpacked(side["policy"]).state_dict() for side in (first, second))
    for name in mine:
        assert torch.equal(mine[name], other[name]), name
    assert mine["mean"].abs().max() > 0
    assert [int(row["iteration"]) for row in rows(tmp_path)] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["HalfCheeta-v5"], "environment 'HalfCheeta-v5' is not known; did you mean 'HalfCheetah"),
        ([ENV, "--lib", "rslrl"], "library 'rslrl' is not known; did you mean 'rsl_rl'"),
        ([ENV, "--set", "gamma"], "--set takes NAME=VALUE, not 'gamma'"),
        ([ENV, "--set", "gama=0.9"], "a recipe has no 'gama'"),
        ([ENV, "--worlds", "0"], "worlds must be a whole number"),
        ([ENV, "--env", "gravity=0"], "takes no argument 'gravity'"),
        ([ENV, "--env", "xml_file=no.xml"], "there is no file"),
        ([ENV, "--env", "max_episode_steps=None"], "has no time limit"),
        ([ENV, "--resume", "nowhere.pt"], "there is no checkpoint 'nowhere.pt'"),
    ],
)
def test_refuses_before_training(arguments, says, tmp_path, caplog):
    assert train.main([*arguments, "--log-dir", str(tmp_path / "log")]) == 2
    assert says in caplog.text
    assert not (tmp_path / "log").exists()


def test_refuses_a_missing_package_with_the_line_for_pip(monkeypatch, caplog):
    real = train.importlib.util.find_spec
    monkeypatch.setattr(
        train.importlib.util, "find_spec", lambda name: None if name == "rsl_rl" else real(name)
    )
    assert train.main([ENV]) == 2
    assert "pip install 'rsl-rl-lib>=3.0'" in caplog.text


@pytest.mark.parametrize("lib", ["sb3", "skrl"])
def test_refuses_several_processes_where_the_library_has_none(lib, monkeypatch, caplog):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert train.main([ENV, "--lib", lib]) == 2
    assert f"--lib {lib} trains in one process" in caplog.text
    assert "'rsl_rl', 'torchrl'" in caplog.text


def test_refuses_a_checkpoint_of_another_task_and_a_folder_in_use(tmp_path, caplog):
    assert run(tmp_path, "--iterations", "1") == 0
    file = str(tmp_path / "checkpoint.pt")
    for flag in ("--resume", "--eval"):
        caplog.clear()
        assert train.main(["HalfCheetah-v5", flag, file]) == 2
        assert "environment 'InvertedPendulum-v5', and 'HalfCheetah-v5'" in caplog.text
    assert run(tmp_path) == 2
    assert "--overwrite" in caplog.text


def test_refuses_a_robot_without_actuators(monkeypatch, caplog):
    body = toy.CART.split("<actuator>")[0] + "</mujoco>"
    task = toy.task(info={}, reset_info=[])
    monkeypatch.setitem(registry._FACTORIES, "Still-v0", lambda: (body, task))
    assert train.main(["Still-v0"]) == 2
    assert "its robot has no actuators" in caplog.text


def test_refuses_pictures():
    import gymnasium as gym

    env = toy.env(1)
    picture = gym.spaces.Box(0, 255, (8, 8, 3))
    env.single_observation_space = gym.spaces.Dict({"policy": picture})
    with pytest.raises(ValueError, match=r"seen through cameras.*'policy': \(8, 8, 3\)"):
        check_env(env, "Seen-v0")
