"""Environments by id, through Alloy and through Gymnasium, and under Gymnasium's wrappers."""

import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import (
    DictInfoToList,
    NormalizeObservation,
    NormalizeReward,
    NumpyToTorch,
    RecordEpisodeStatistics,
)

import alloy
from alloy.envs import SingleEnv
from tests.envs import toy

IDS = ["GripperLift-v0", "HalfCheetah-v5"]


@pytest.fixture(autouse=True)
def _registered():
    alloy.envs.register_gymnasium()


def test_import_of_alloy_leaves_gymnasium_alone():
    program = "import alloy, sys; print('gymnasium' in sys.modules, 'tensordict' in sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert out.stdout.split() == ["False", "False"]


def test_list_and_make():
    assert set(IDS) <= set(alloy.envs.list())
    env = alloy.envs.make("alloy/GripperLift-v0", num_envs=2)
    assert (env.num_envs, env.backend, env.autoreset) == (2, "torch", "same_step")
    with pytest.raises(ValueError, match=r"GriperLift.*did you mean 'GripperLift-v0'"):
        alloy.envs.make("GriperLift-v0")
    with pytest.raises(TypeError, match=r"autorest.*did you mean 'autoreset'"):
        alloy.envs.make("GripperLift-v0", autorest="disabled")
    with pytest.raises(ValueError, match="registered already"):
        alloy.envs.register("GripperLift-v0", lambda: None)
    with pytest.raises(ValueError, match="version"):
        alloy.envs.register("Mine", lambda: None)


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasium_vector_form(env_id):
    kwargs = {"num_envs": 2, "vectorization_mode": "vector_entry_point", "engine": "reference"}
    env = gym.make_vec(f"alloy/{env_id}", **kwargs)
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert env.spec.id == f"alloy/{env_id}"
    obs, _ = env.reset(seed=0)
    assert isinstance(obs, np.ndarray)
    other = gym.make_vec(f"alloy/{env_id}", **kwargs, autoreset="same_step", backend="torch")
    assert other.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    np.testing.assert_array_equal(obs, other.reset(seed=0)[0])
    sync = gym.make_vec(
        f"alloy/{env_id}", num_envs=2, vectorization_mode="sync", engine="reference"
    )
    np.testing.assert_array_equal(obs, sync.reset(seed=0)[0])
    short = gym.make_vec(f"alloy/{env_id}", **kwargs, max_episode_steps=1)
    short.reset(seed=0)
    assert short.step(short.action_space.sample())[3].all()


def _can_render():
    env = toy.env(1, render_mode="rgb_array")
    env.reset(seed=0)
    try:
        env.render()
    except RuntimeError:
        return False
    env.close()
    return True


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasium_single_form_passes_its_checker(env_id):
    env = gym.make(f"alloy/{env_id}", engine="reference")
    assert isinstance(env.unwrapped, SingleEnv)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(infinity|normalized space).*")
        warnings.filterwarnings("ignore", message=".*settotalmass.*")
        check_env(env.unwrapped, skip_render_check=not _can_render())


def test_single_form_is_world_0_of_the_vector_form():
    single = gym.make("alloy/GripperLift-v0", engine="reference")
    vector = alloy.envs.make("GripperLift-v0", 3, backend="numpy", engine="reference")
    a, b = single.reset(seed=4)[0], vector.reset(seed=4)[0]
    np.testing.assert_array_equal(a, b[0])
    action = np.array([-1, 0.5, 0.25], np.float32)
    one, many = single.step(action), vector.step(np.stack([action] * 3))
    np.testing.assert_allclose(one[0], many[0][0], atol=1e-5)  # products of other sizes
    assert one[1] == pytest.approx(many[1][0], abs=1e-5)
    assert one[2:4] == (False, False)
    assert [f"_{name}" for name in one[4]["terms"]] == [*many[4]["terms"]][4:]
    single.close()
    single.close()


def test_single_form_keeps_gymnasiums_time_limit():
    env = gym.make("alloy/GripperLift-v0", max_episode_steps=2, engine="reference")
    env.reset(seed=0)
    assert [env.step(env.action_space.sample())[3] for _ in range(2)] == [False, True]
    with pytest.raises(ValueError, match="worlds=1"):
        SingleEnv(toy.env(2, backend="numpy", autoreset="disabled"))


def test_c24_gymnasiums_wrappers_over_next_step():
    options = {"backend": "numpy", "autoreset": "next_step", "engine": "reference"}
    env = alloy.envs.make("GripperLift-v0", 2, max_episode_steps=4, **options)
    env = NumpyToTorch(NormalizeReward(NormalizeObservation(RecordEpisodeStatistics(env))))
    env.reset(seed=0)
    lengths = []
    for _ in range(10):
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        if "episode" in info:
            lengths += info["episode"]["l"].tolist()
    assert lengths == [4] * 4
    assert str(obs.dtype) == "torch.float32"
    assert obs.isfinite().all()
    assert reward.isfinite().all()
    assert env.single_observation_space.shape == (22,)


def test_c24_normalising_needs_next_step_as_gymnasium_says():
    env = toy.env(2, backend="numpy", autoreset="same_step")
    with pytest.raises(ValueError, match="NEXT_STEP"):
        NormalizeObservation(env)


def test_dict_info_to_list():
    env = DictInfoToList(toy.env(2, backend="numpy", autoreset="same_step"))
    _, info = env.reset(seed=0)
    assert [sorted(i) for i in info] == [["count", "x"]] * 2
    ended = 0
    for action in toy.actions(2, 9):
        *_, terminated, truncated, info = env.step(action)
        for i, done in enumerate(terminated | truncated):
            ended += done
            assert ("final_obs" in info[i]) == done
            if done:
                assert info[i]["final_info"]["count"] == info[i]["final_info"]["episode"]["l"]
    assert ended > 1
