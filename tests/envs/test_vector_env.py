"""The vector API: autoreset modes, aliasing, seeds, reset masks, faults."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.error import ResetNeeded
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import NumpyToTorch, RecordEpisodeStatistics
from tensordict import TensorDict

from alloy.envs import Task, VectorEnv, resets
from alloy.envs import checks as C
from tests.envs import toy

MODES = {
    "same_step": AutoresetMode.SAME_STEP,
    "next_step": AutoresetMode.NEXT_STEP,
    "disabled": AutoresetMode.DISABLED,
}


@pytest.mark.parametrize(
    ("mode", "ends"),
    [("next_step", [2, 6, 10]), ("same_step", [2, 5, 8, 11]), ("disabled", [2, 5, 8, 11])],
)
def test_c21_episode_statistics(mode, ends):
    env = RecordEpisodeStatistics(toy.env(2, toy.always_three(), backend="numpy", autoreset=mode))
    env.reset(seed=0)
    reported = []
    for i in range(12):
        _, _, terminated, truncated, info = env.step(np.zeros((2, 1), np.float32))
        if "episode" in info:
            reported.append(i)
            assert info["episode"]["r"].tolist() == [3, 3]
            assert info["episode"]["l"].tolist() == [3, 3]
        if mode == "disabled" and (terminated | truncated).any():
            env.reset(options={"reset_mask": terminated | truncated})
    assert reported == ends


def _gymnasium_twin(kind, mode, worlds):
    make = [toy.single] * worlds
    if kind == "sync":
        return SyncVectorEnv(make, autoreset_mode=MODES[mode])
    return AsyncVectorEnv(make, autoreset_mode=MODES[mode], shared_memory=kind == "shared")


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("kind", ["sync", "shared", "pipe"])
def test_c22_autoreset_as_gymnasium(kind, mode):
    worlds = 3
    ours = toy.env(worlds, backend="numpy", autoreset=mode)
    theirs = _gymnasium_twin(kind, mode, worlds)
    assert ours.metadata["autoreset_mode"] is MODES[mode]
    np.testing.assert_array_equal(ours.reset(seed=5)[0], theirs.reset(seed=5)[0])
    ended = 0
    for action in toy.actions(worlds, 20).clamp(-1, 1).numpy():
        a, b = ours.step(action), theirs.step(action)
        for mine, other in zip(a[:4], b[:4], strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-6)
        assert ("final_obs" in a[4]) == ("final_obs" in b[4])
        if "final_obs" in b[4]:
            rows = b[4]["_final_obs"]
            ended += rows.sum()
            np.testing.assert_array_equal(a[4]["_final_obs"], rows)
            np.testing.assert_array_equal(a[4]["_final_info"], b[4]["_final_info"])
            for i in np.flatnonzero(rows):
                np.testing.assert_allclose(a[4]["final_obs"][i], b[4]["final_obs"][i], atol=1e-6)
            for key in ("x", "count"):
                mine, other = a[4]["final_info"][key], b[4]["final_info"][key]
                np.testing.assert_allclose(mine[rows], other[rows], atol=1e-6)
    assert (ended > 3) == (mode == "same_step")
    theirs.close()


def test_c22_next_step_ignores_the_action_of_an_ended_row():
    env = toy.env(2, toy.always_three(reset=resets.qpos_uniform(1.0)), autoreset="next_step")
    env.reset(seed=0)
    for _ in range(3):
        obs, _, _, truncated, _ = env.step(torch.zeros(2, 1))
    assert truncated.all()
    fresh, reward, terminated, truncated, info = env.step(torch.full((2, 1), torch.nan))
    assert not torch.equal(fresh, obs)
    assert reward.tolist() == [0, 0]
    assert not (terminated | truncated | info["bad_action"]).any()
    assert torch.equal(fresh[:, 1], torch.zeros(2))  # at rest: a reset, not a step


def test_c22_disabled_refuses_to_step_an_ended_row():
    env = toy.env(2, toy.always_three(), autoreset="disabled")
    with pytest.raises(ResetNeeded, match="reset"):
        env.step(torch.zeros(2, 1))
    env.reset(seed=0)
    for _ in range(3):
        env.step(torch.zeros(2, 1))
    with pytest.raises(ResetNeeded, match=r"\[0, 1\].*reset_mask"):
        env.step(torch.zeros(2, 1))
    env.reset(options={"reset_mask": torch.tensor([True, False])})
    with pytest.raises(ResetNeeded, match=r"\[1\]"):
        env.step(torch.zeros(2, 1))
    env.reset(options={"reset_mask": [False, True]})
    env.step(torch.zeros(2, 1))


def _leaves(tree, path=""):
    if hasattr(tree, "items"):
        for key, value in tree.items():
            yield from _leaves(value, f"{path}/{key}")
    elif isinstance(tree, (tuple, list)):
        for i, value in enumerate(tree):
            yield from _leaves(value, f"{path}/{i}")
    else:
        yield path, tree


@pytest.mark.parametrize("backend", ["torch", "numpy", "tensordict"])
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_c23_what_is_returned_is_never_written_again(backend, mode):
    env = toy.env(3, toy.task(max_steps=4), backend=backend, autoreset=mode)
    kept, copies = [], []

    def keep(result):
        for _, leaf in _leaves(result):
            kept.append(leaf)
            copies.append(leaf.copy() if isinstance(leaf, np.ndarray) else leaf.clone())

    keep(env.reset(seed=1))
    lengths = []
    for i, action in enumerate(toy.actions(3, 12)):
        if i == 6:
            keep(env.reset())
        result = env.step(action)
        keep(result)
        info = result[4]
        if mode == "same_step" and "final_info" in info and info["_final_info"].any():
            rows = info["_final_info"]
            lengths += info["final_info"]["count"][rows].tolist()
            assert (info["final_obs"] != result[0])[rows].any()
    for now, then in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(np.asarray(now), np.asarray(then))
    if mode == "same_step":
        assert len(lengths) > 3
        assert min(lengths) > 0


@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_c23_writing_into_results_does_not_reach_the_simulation(backend):
    def run(spoil):
        env = toy.env(2, backend=backend)
        out = [env.reset(seed=3)[0] + 0]
        for action in toy.actions(2, 10):
            results = env.step(action)
            out += [results[0] + 0, results[1] + 0]
            if spoil:
                for _, leaf in _leaves(results):
                    leaf[...] = 1
                action[...] = 77.0
        return [np.asarray(o) for o in out]

    for clean, spoilt in zip(run(False), run(True), strict=True):
        np.testing.assert_array_equal(clean, spoilt)


def test_c24_numpy_to_torch_in_both_autoreset_modes():
    for mode in ("same_step", "next_step"):
        env = NumpyToTorch(toy.env(3, backend="numpy", autoreset=mode))
        obs, _ = env.reset(seed=0)
        for action in toy.actions(3, 9):
            obs, reward, terminated, truncated, _ = env.step(action)
        assert obs.dtype == reward.dtype == torch.float32
        assert terminated.dtype == truncated.dtype == torch.bool
        assert env.num_envs == 3
        assert env.single_observation_space.shape == (2,)


def _look(sim):
    """What goes stale: body, site and sensor all need a forward pass."""
    return torch.cat([sim.body("cart").pos, sim.site("tip").pos, sim.sensor("tip")], -1)


def test_c27_observation_after_a_reset_is_that_of_the_new_state():
    env = toy.env(4, toy.always_three(obs=[_look, "cart"], reset=resets.qpos_uniform(5.0)))
    env.reset(seed=0)
    for _ in range(3):
        obs, reward, _, truncated, info = env.step(torch.ones(4, 1))
    assert truncated.all()
    x = env.sim.qpos[:, 0]
    tip = x + 0.1
    expected = torch.stack([x, 0 * x, 0 * x, tip, 0 * x, 0 * x, tip, 0 * x, 0 * x], 1)
    torch.testing.assert_close(obs[:, :9], expected, atol=1e-6, rtol=0)
    assert (info["final_obs"][:, 0] - obs[:, 0]).abs().min() > 1e-3
    assert env.sim.data.qacc_warmstart.abs().max() == 0


def test_c27_reward_and_failure_use_the_post_step_state():
    env = toy.env(4, toy.task(max_steps=None))
    env.reset(seed=0)
    seen = 0
    for action in toy.actions(4, 15):
        _, reward, terminated, _, info = env.step(action)
        x = info["final_obs"][:, 0]
        torch.testing.assert_close(info["terms"]["position"], x)
        assert torch.equal(terminated, x > 0.3)
        seen += int(terminated.sum())
        torch.testing.assert_close(reward, sum(info["terms"].values()))
    assert seen > 0


def test_c28_seeds():
    env = toy.env(4, toy.always_three(reset=resets.qpos_uniform(1.0)))

    def episodes(seed, n=2):
        starts = [env.reset(seed=seed)[0]]
        for i in range(3 * n):
            obs = env.step(torch.zeros(4, 1))[0]
            if i % 3 == 2:
                starts.append(obs)
        return torch.stack(starts)

    ten = episodes(0, 10)[..., 0]
    assert len(set(ten.flatten().tolist())) == ten.numel()  # (a), (f)
    assert torch.equal(episodes(7), episodes(7))  # (b)
    assert torch.equal(episodes(7), episodes([7, 8, 9, 10]))  # (c)
    for form in (np.int64(7), np.arange(7, 11), torch.arange(7, 11)):
        assert torch.equal(episodes(7), episodes(form))
    with pytest.raises(ValueError, match="3 entries for 4"):
        env.reset(seed=[1, 2, 3])
    many = toy.env(64, toy.always_three(reset=resets.qpos_uniform(1.0)))
    assert torch.equal(many.reset(seed=7)[0][:4], env.reset(seed=7)[0])  # (d)
    assert env.action_space is env.action_space  # (e)
    samples = []
    for _ in range(2):
        env.action_space.seed(1)
        samples.append(env.action_space.sample())
    np.testing.assert_array_equal(*samples)


def test_seed_of_one_world_restarts_that_world_only():
    env = toy.env(3, toy.always_three(reset=resets.qpos_uniform(1.0)))
    first = env.reset(seed=4)[0]
    second = env.reset(seed=[None, 5, None])[0]
    assert torch.equal(first[1], second[1])
    assert not torch.equal(first[0], second[0])
    mask = torch.tensor([False, False, True])
    third = env.reset(seed=9, options={"reset_mask": mask})[0]
    assert torch.equal(third[:2], second[:2])
    assert torch.equal(third[2], env.reset(seed=9)[0][2])


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"seed": -1}, "negative"),
        ({"seed": 1.5}, "integer"),
        ({"options": {"mask": 1}}, "reset_mask"),
        ({"options": {"reset_mask": np.zeros(3, bool)}}, "no world"),
        ({"options": {"reset_mask": np.ones(2, bool)}}, r"shape \(3,\)"),
        ({"options": {"reset_mask": np.ones(3)}}, "bool"),
    ],
)
def test_a_refused_reset_changes_nothing(kwargs, message):
    env = toy.env(3)
    env.reset(seed=0)
    before = env.sim.qpos.clone()
    with pytest.raises(ValueError, match=message):
        env.reset(**kwargs)
    assert torch.equal(env.sim.qpos, before)


def test_two_unseeded_envs_differ_and_a_seeded_constructor_does_not():
    assert not torch.equal(toy.env().reset()[0], toy.env().reset()[0])
    assert torch.equal(toy.env(seed=3).reset()[0], toy.env().reset(seed=3)[0])


def _run_with(fault, steps=12):
    env = toy.env(8, toy.task(max_steps=None, failure=None))
    env.reset(seed=2)
    history = []
    for i, action in enumerate(toy.actions(8, steps)):
        fault(i, env, action)
        history.append(env.step(action))
    return env, history


def test_c36_bad_actions_zero_the_controls_of_their_world_only():
    bad = {3: torch.nan, 4: torch.inf, 5: 1e12}

    def spoil(i, env, action):
        if i in bad:
            action[3] = bad[i]

    def stand_in(i, env, action):
        if i in bad:
            action[3] = 1.0 if i == 5 else 0.0  # 1e12 is a number and clips to the bound

    _, clean = _run_with(stand_in)
    env, spoilt = _run_with(spoil)
    for i, (a, b) in enumerate(zip(clean, spoilt, strict=True)):
        assert torch.equal(a[0], b[0])
        assert torch.equal(a[1], b[1])
        assert b[4]["bad_action"].tolist() == [False] * 3 + [i in (3, 4)] + [False] * 4
    assert env.sim.health().bad_ctrl.tolist() == [0, 0, 0, 2, 0, 0, 0, 0]


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_c36_a_world_that_blows_up_ends_alone(mode):
    task = toy.task(max_steps=None, failure=None, obs=["cart", _look])

    def run(spoil):
        env = toy.env(8, task, autoreset=mode)
        env.reset(seed=2)
        out = []
        for i, action in enumerate(toy.actions(8, 8)):
            if spoil and i == 4:
                env.sim.qvel[5, 0] = torch.nan
            out.append(env.step(action))
        return env, out

    _, clean = run(False)
    env, spoilt = run(True)
    others = torch.arange(8) != 5
    for a, b in zip(clean, spoilt, strict=True):
        for (_, x), (_, y) in zip(_leaves(a), _leaves(b), strict=True):
            assert torch.equal(x[others], y[others])
            assert torch.isfinite(y).all()
    _, reward, terminated, truncated, info = spoilt[4]
    assert info["invalid"].tolist() == [i == 5 for i in range(8)]
    assert terminated.tolist() == info["invalid"].tolist()
    assert not truncated.any()
    assert reward[5] == 0
    assert not spoilt[5][4]["invalid"].any()
    # after its reset the world runs as a fresh one does
    fresh = toy.env(1, task)
    fresh.reset(seed=7)
    fresh.reset()  # its second episode, as world 5 (seed 2 + 5) is in
    steps = 0 if mode == "same_step" else 1
    mine = [r[0][5] for r in spoilt[4 + steps :]]
    them = [fresh.program.observe(fresh._state())["policy"][0]]
    for action in toy.actions(8, 8)[5 + steps :]:
        them.append(fresh.step(action[5:6])[0][0])
    torch.testing.assert_close(torch.stack(mine), torch.stack(them), atol=0, rtol=0)


def test_strict_raises_on_an_invalid_world():
    env = toy.env(2, strict=True)
    env.reset(seed=0)
    env.sim.qvel[1, 0] = torch.nan
    with pytest.raises(RuntimeError, match=r"\[1\]"):
        env.step(torch.zeros(2, 1))


def test_tensordict_backend_groups_and_nests():
    groups = {"policy": ["cart"], "critic": ["cart", _look]}
    env = toy.env(2, toy.task(obs=groups), backend="tensordict")
    obs, _ = env.reset(seed=0)
    assert obs.batch_size == (2,)
    assert obs["policy"].shape == (2, 2)
    assert obs["critic"].shape == (2, 11)
    obs, _, _, _, info = env.step(toy.actions(2, 1)[0])
    assert info.batch_size == (2,)
    assert sorted(info["terms"].keys()) == ["alive", "position"]
    assert info["final_obs", "policy"].shape == (2, 2)
    assert isinstance(env.single_observation_space, gym.spaces.Dict)


def test_tensordict_backend_without_rewards_or_groups():
    env = toy.env(2, Task(obs=["cart"]), backend="tensordict")
    obs, info = env.reset(seed=0)
    assert obs["policy"].shape == (2, 2)
    assert info.batch_size == (2,)
    assert env.step(TensorDict({"action": torch.zeros(2, 1)}, [2]))[4]["terms"].is_empty()


def test_a_step_that_looks_is_the_one_that_does_not():
    env = toy.env(3, toy.task(max_steps=4))
    env.reset(seed=0)
    state = env._state()
    for action in toy.actions(3, 9).clamp(-1, 1):
        after, said = env.program.step(state, action)
        lazy_after, lazy_said = env.program.step(state, action, lazy=True)
        for (name, a), (_, b) in zip(
            _leaves(said.__dict__), _leaves(lazy_said.__dict__), strict=True
        ):
            assert torch.equal(a, b), name
        assert torch.equal(after.data.qpos, lazy_after.data.qpos)
        state = after


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="same_step"):
        toy.env(autoreset="sometimes")
    with pytest.raises(ValueError, match="tensordict"):
        toy.env(backend="jax")
    with pytest.raises(ValueError, match="differ"):
        VectorEnv(toy.CART, toy.task(), worlds=2, num_envs=3)
    with pytest.raises(KeyError, match="cart"):
        toy.env(the_task=Task(obs=["kart"]))
    with pytest.raises(ValueError, match=r"reward 'wide'.*\(3,\).*\(3, 1\)"):
        toy.env(the_task=toy.task(reward={"wide": (1.0, lambda sim: sim.qpos)}))
    with pytest.raises(TypeError, match=r"failure.*bool"):
        toy.env(the_task=toy.task(failure=toy.position))
    with pytest.raises(ValueError, match=r"obs term.*shape"):
        toy.env(the_task=toy.task(obs=[lambda sim: sim.qpos[0]]))
    with pytest.raises(ValueError, match="info 'odd'"):
        toy.env(the_task=toy.task(info={"odd": lambda sim: sim.qpos[:1, 0]}, reset_info=[]))
    with pytest.raises(ValueError, match="max_steps"):
        toy.task(max_steps=0)
    with pytest.raises(TypeError, match=r"reward 'bare'.*\(weight, check\)"):
        toy.task(reward={"bare": C.alive()})


def test_render_says_what_is_missing_or_draws():
    assert toy.env(2).render() is None
    env = toy.env(2, render_mode="rgb_array")
    env.reset(seed=0)
    try:
        frames = env.render()
    except RuntimeError as error:
        assert "MUJOCO_GL" in str(error)
    else:
        assert [f.shape for f in frames] == [(480, 480, 3)] * 2
        assert frames[0].std() > 0
    env.close()
