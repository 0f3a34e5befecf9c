"""Stable-Baselines3's contract, and its own wrappers over Alloy beside single environments."""

import warnings

import numpy as np
import pytest
import torch
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from alloy.envs.wrappers import NormalizeObservation
from alloy.envs.wrappers.sb3 import SB3VecEnv
from tests.envs import toy

ENDED = {"terminal_observation", "TimeLimit.truncated", "episode", "position", "alive", "x"}


def singles(worlds):
    """As many single environments, one after the other in Python."""
    return DummyVecEnv([toy.single for _ in range(worlds)])


def test_it_is_the_dummy_of_single_environments():
    ours, theirs = SB3VecEnv(toy.env(6)), singles(6)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    for env in (ours, theirs):
        env.seed(11)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    ends = []
    for action in toy.actions(6, 16).numpy():
        obs, reward, done, infos = ours.step(action)
        their_obs, their_reward, their_done, their_infos = theirs.step(action)
        np.testing.assert_array_equal(obs, their_obs)
        np.testing.assert_array_equal(reward, their_reward)
        np.testing.assert_array_equal(done, their_done)
        assert (obs.dtype, reward.dtype, done.dtype) == (np.float32, np.float32, bool)
        for ended, info, expected in zip(done, infos, their_infos, strict=True):
            if not ended:
                assert info == {}
                continue
            assert ENDED <= info.keys()
            ends.append(info["TimeLimit.truncated"])
            assert info["TimeLimit.truncated"] is expected["TimeLimit.truncated"]
            last = info["terminal_observation"]
            np.testing.assert_array_equal(last, expected["terminal_observation"])
            assert info["x"] == last[0]
    assert {*ends} == {True, False}


@pytest.mark.parametrize("worlds", [1, 4])
def test_vec_normalize_and_vec_monitor_agree_with_single_environments(worlds):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The environment is already wrapped with a `Monitor`")
        ours = VecNormalize(VecMonitor(SB3VecEnv(toy.env(worlds))), gamma=0.9)
    theirs = VecNormalize(VecMonitor(singles(worlds)), gamma=0.9)
    for env in (ours, theirs):
        env.seed(1)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    episodes = 0
    for action in toy.actions(worlds, 24).numpy():
        obs, reward, done, infos = ours.step(action)
        their_obs, their_reward, their_done, their_infos = theirs.step(action)
        np.testing.assert_array_equal(obs, their_obs)
        np.testing.assert_array_equal(reward, their_reward)
        np.testing.assert_array_equal(done, their_done)
        for i in np.flatnonzero(done):
            mine, expected = infos[i]["episode"], their_infos[i]["episode"]
            assert (mine["r"], mine["l"]) == (expected["r"], expected["l"])
            np.testing.assert_array_equal(
                infos[i]["terminal_observation"], their_infos[i]["terminal_observation"]
            )
            episodes += 1
    assert episodes >= 2 * worlds
    for mine, expected in ((ours.obs_rms, theirs.obs_rms), (ours.ret_rms, theirs.ret_rms)):
        np.testing.assert_array_equal(mine.mean, expected.mean)
        np.testing.assert_array_equal(mine.var, expected.var)
        assert mine.count == expected.count


def test_episodes_are_what_a_monitor_records():
    env = SB3VecEnv(toy.env(3))
    env.seed(0)
    env.reset()
    total, length, seen = np.zeros(3, np.float32), np.zeros(3, int), 0
    for action in toy.actions(3, 25).numpy():
        _, reward, done, infos = env.step(action)
        total, length = total + reward, length + 1
        for i in np.flatnonzero(done):
            assert (infos[i]["episode"]["r"], infos[i]["episode"]["l"]) == (total[i], length[i])
            assert infos[i]["episode"]["t"] >= 0
            total[i], length[i], seen = 0, 0, seen + 1
    assert seen > 3
    assert env.env_is_wrapped(Monitor, indices=[0, 2]) == [True, True]
    assert env.env_is_wrapped(NormalizeObservation) == [False] * 3


def test_a_policy_is_evaluated_as_over_single_environments():
    class Still:
        def predict(self, obs, state=None, **about):
            return np.zeros((len(obs), 1), np.float32), state

    results = []
    for env in (SB3VecEnv(toy.env(2)), VecMonitor(singles(2))):
        env.seed(3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            returned = evaluate_policy(Still(), env, 10, return_episode_rewards=True)
        results.append(returned)
    assert results[0] == results[1]


def test_a_success_is_reported_at_the_end_alone():
    success = toy.C.Check(lambda sim: sim.qpos[:, 0], "position") > 0.25
    env = SB3VecEnv(toy.env(4, toy.task(success=success, failure=None)))
    env.seed(0)
    env.reset()
    told = []
    for _ in range(14):
        _, _, done, infos = env.step(np.ones((4, 1)))
        assert all(("is_success" in info) == ended for info, ended in zip(infos, done, strict=True))
        told += [(i["is_success"], i["TimeLimit.truncated"]) for i in infos if i]
    assert any(won for won, _ in told)
    assert all(won != late for won, late in told)


def test_infos_of_every_step_are_given_on_request():
    env = SB3VecEnv(toy.env(3), info_keywords=["x", "invalid"])
    env.reset()
    obs, _, _, infos = env.step(np.zeros((3, 1)))
    assert [info["x"] for info in infos] == obs[:, 0].tolist()
    assert not any(info["invalid"] for info in infos)


def test_of_groups_the_policys_is_observed():
    groups = {"critic": [toy.position], "policy": ["cart"]}
    env = SB3VecEnv(toy.env(3, toy.task(obs=groups)))
    assert env.observation_space.shape == (2,)
    assert env.reset().shape == (3, 2)
    both = SB3VecEnv(toy.env(3, toy.task(obs=groups)), groups=["policy", "critic"])
    assert both.observation_space.contains({n: rows[0] for n, rows in both.reset().items()})
    for _ in range(7):
        _, _, done, infos = both.step(np.zeros((3, 1)))
    last = infos[np.flatnonzero(done)[0]]["terminal_observation"]
    assert last["policy"][0] == last["critic"][0]
    with pytest.raises(ValueError, match=r"groups must name some of \['critic', 'policy'\]"):
        SB3VecEnv(toy.env(3, toy.task(obs=groups)), groups=["actor"])


def test_seeds_are_used_once():
    env = SB3VecEnv(toy.env(3))
    assert env.seed(7) == [7, 8, 9]
    first = env.reset()
    np.testing.assert_array_equal(first, toy.env(3).reset(seed=7)[0])
    assert not np.array_equal(env.reset(), first)
    env.seed(7)
    np.testing.assert_array_equal(env.reset(), first)
    env.set_options({"start": 1})
    with pytest.raises(ValueError, match="takes no options"):
        env.reset()


def test_attributes_and_methods_by_world():
    env = SB3VecEnv(toy.env(3))
    env.reset()
    assert env.get_attr("dt") == [env.vector_env.dt] * 3
    assert env.get_attr("action_space", indices=1) == [env.action_space]
    with pytest.raises(AttributeError, match="nothing"):
        env.get_attr("nothing")
    assert env.env_method("action_names") == [["push"]] * 3
    env.vector_env.difficulty = torch.tensor([0.0, 1.0, 2.0])
    assert env.get_attr("difficulty", indices=[2, 0]) == [2.0, 0.0]
    env.set_attr("difficulty", 5)
    assert env.get_attr("difficulty") == [5, 5, 5]
    with pytest.raises(ValueError, match="all 3 worlds share"):
        env.set_attr("difficulty", 1, indices=[0])
    with pytest.raises(ValueError, match="would reach all worlds"):
        env.env_method("reset", indices=[0])
    assert list(env.get_images()) == [None] * 3


def test_pictures_are_one_for_each_world(monkeypatch):
    vector_env = toy.env(2, render_mode="rgb_array")
    frames = tuple(np.full((4, 6, 3), k, np.uint8) for k in range(2))
    monkeypatch.setattr(vector_env, "render", lambda: frames)
    env = SB3VecEnv(vector_env)
    assert env.render_mode == "rgb_array"
    assert env.render().shape == (8, 6, 3)


def test_nothing_given_out_is_written_again():
    env = SB3VecEnv(toy.env(3))
    kept = [env.reset()]
    copies = [kept[0].copy()]
    for action in toy.actions(3, 12).numpy():
        obs, reward, done, infos = env.step(action)
        last = [i["terminal_observation"] for i in infos if i]
        for array in (obs, reward, done, *last):
            kept.append(array)
            copies.append(array.copy())
    for array, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_other_environments_are_refused():
    for options in ({"backend": "numpy"}, {"autoreset": "disabled"}):
        with pytest.raises(ValueError, match=r"stable-baselines3 needs backend='torch'"):
            SB3VecEnv(toy.env(2, **options))
    with pytest.raises(TypeError, match="received SingleEnv"):
        SB3VecEnv(toy.single())
    with pytest.raises(ValueError, match="info_keywords names 'speed'"):
        SB3VecEnv(toy.env(2), info_keywords=["speed"])
