"""Gymnasium's MuJoCo v5 environments against Gymnasium's own, in float64.

Gymnasium's environments are the oracle; their models are told to solve constraints to the minimum
(Newton without tolerance), since MuJoCo's default stops early, and the humanoids' files ask for 50
sweeps of PGS, which end well short of it.
"""

import inspect
from dataclasses import dataclass, replace

import gymnasium as gym
import mujoco
import numpy as np
import pytest
import torch

import alloy
from alloy.envs.registry import _FACTORIES

ROBOTS = (
    "Hopper", "Walker2d", "Swimmer", "InvertedPendulum", "InvertedDoublePendulum", "Reacher",
    "Ant", "Humanoid", "HumanoidStandup", "Pusher",
)  # fmt: skip
ALL = 1000  # steps of a walk; the dear ones take fewer where tests must be quick
STEPS = dict.fromkeys(ROBOTS, ALL) | {
    "Hopper": 400, "Walker2d": 400, "Ant": 150, "Humanoid": 50, "HumanoidStandup": 40,
}  # fmt: skip


def oracle(robot, **kwargs):
    env = gym.make(f"{robot}-v5", **kwargs).unwrapped
    env.model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    env.model.opt.tolerance, env.model.opt.ls_tolerance = 0, 1e-10
    env.model.opt.iterations = 200
    return env


def make(robot, worlds, **kwargs):
    options = {"dtype": torch.float64, "engine": "reference", "backend": "numpy"}
    return alloy.envs.make(f"{robot}-v5", worlds, **options | kwargs)


@dataclass
class Moment:
    """The oracle before a step, the action, and what it said of the step."""

    state: dict
    action: np.ndarray
    obs: np.ndarray
    reward: float
    terminated: bool
    info: dict


def walk(robot, steps, seed=0, env=None):
    """A random walk of the oracle, or of `env`, through as many episodes as it takes."""
    env = env or oracle(robot)
    env.action_space.seed(seed)
    env.reset(seed=seed)
    moments = []
    for _ in range(steps):
        names = ("qpos", "qvel", "qacc_warmstart", "xpos", "xipos")
        state = {name: getattr(env.data, name).copy() for name in names}
        action = env.action_space.sample()
        moments.append(Moment(state, action, *(x := env.step(action))[:3], x[4]))
        if moments[-1].terminated:
            env.reset()
    return moments


def put(env, states):
    """Take over the oracle's states, with what its last step left in mjData."""
    env.reset(seed=0)
    rows = {name: np.stack([s[name] for s in states]) for name in states[0]}
    env.sim.qpos, env.sim.qvel = rows["qpos"], rows["qvel"]
    env.sim.data.qacc_warmstart.copy_(torch.as_tensor(rows["qacc_warmstart"]))
    left = {k: torch.as_tensor(rows[k]) if k in rows else v for k, v in env._episode.last.items()}
    env._episode = replace(env._episode, last=left)


def one_step(env, moments):
    """What we and the oracle make of one step from its states: pairs of arrays by name."""
    put(env, [m.state for m in moments])
    obs, reward, terminated, truncated, info = env.step(np.stack([m.action for m in moments]))
    obs = np.where(terminated[:, None], np.stack(list(info.get("final_obs", obs))), obs)
    assert not truncated.any()
    pairs = {key: (info[key], np.stack([m.info[key] for m in moments])) for key in moments[0].info}
    pairs["obs"] = obs, np.stack([m.obs for m in moments])
    pairs["reward"] = reward, np.array([m.reward for m in moments])
    pairs["terminated"] = terminated, np.array([m.terminated for m in moments])
    return pairs


def agree(env, moments):
    pairs = one_step(env, moments)
    np.testing.assert_array_equal(*pairs.pop("terminated"))
    for key, (ours, theirs) in pairs.items():
        np.testing.assert_allclose(ours, theirs, atol=1e-6, rtol=1e-6, err_msg=key)


def free_run(robot, seed=3, steps=20):
    """Pairs of what we and the oracle return, step by step from its first state."""
    theirs, ours = oracle(robot), make(robot, 1, autoreset="disabled")
    first, _ = theirs.reset(seed=seed)
    ours.reset(seed=0)
    ours.sim.qpos, ours.sim.qvel = theirs.data.qpos[None], theirs.data.qvel[None]
    view = ours.program.view(ours._state())
    ours._episode = replace(ours._episode, last=ours.program.task.start_last(view))
    obs = ours._export(ours.program.observe(ours._state()))["policy"][0]
    np.testing.assert_allclose(obs, first, atol=1e-9, rtol=1e-9)
    theirs.action_space.seed(seed)
    for _ in range(steps):
        action = theirs.action_space.sample()
        a, b = ours.step(action[None]), theirs.step(action)
        yield (a[0][0], a[1][0], a[2][0]), b[:3]
        if b[2]:
            return


@pytest.mark.parametrize("robot", ROBOTS)
def test_one_step_from_every_state_of_a_walk(robot):
    moments = walk(robot, STEPS[robot])
    agree(make(robot, len(moments)), moments)


@pytest.mark.slow
@pytest.mark.parametrize("robot", [r for r, steps in STEPS.items() if steps < ALL])
def test_one_step_from_every_state_of_a_long_walk(robot):
    moments = walk(robot, ALL, seed=1)
    env = make(robot, 100)
    for start in range(0, ALL, 100):
        agree(env, moments[start : start + 100])


@pytest.mark.parametrize("robot", ROBOTS)
def test_a_free_run_stays_with_gymnasium(robot):
    for ours, theirs in free_run(robot):
        np.testing.assert_allclose(ours[0], theirs[0], atol=1e-4, rtol=1e-4)
        assert ours[2] == theirs[2]


@pytest.mark.parametrize("robot", ROBOTS)
def test_spaces_info_and_time_limit_are_gymnasiums(robot):
    alloy.envs.register_gymnasium()
    theirs = gym.make(f"{robot}-v5")
    ours = gym.make(f"alloy/{robot}-v5", dtype=torch.float64, engine="reference")
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.unwrapped.dt == theirs.unwrapped.dt
    assert ours.metadata["render_fps"] == theirs.unwrapped.metadata["render_fps"]
    assert ours.spec.max_episode_steps == theirs.spec.max_episode_steps
    for seed in (0, 1):
        mine, other = (e.reset(seed=seed)[1] for e in (ours, theirs))
        assert set(mine) == set(other)
        mine, other = (e.step(e.action_space.sample())[4] for e in (ours, theirs))
        assert set(other) <= set(mine)
        for key in other:
            assert np.shape(mine[key]) == np.shape(other[key]), key


@pytest.mark.parametrize("robot", ROBOTS)
def test_episodes_begin_as_gymnasiums(robot):
    theirs, ours = oracle(robot), make(robot, 400)
    ours.reset(seed=0)
    samples = []
    for seed in range(400):
        theirs.reset(seed=seed)
        samples.append(np.concatenate([theirs.data.qpos, theirs.data.qvel]))
    other = np.stack(samples)
    mine = torch.cat([ours.sim.qpos, ours.sim.qvel], -1).numpy()
    spread = other.std(0)
    fixed = spread < 1e-12
    np.testing.assert_allclose(
        mine[:, fixed], np.broadcast_to(other[0, fixed], mine[:, fixed].shape)
    )
    mine, other, spread = mine[:, ~fixed], other[:, ~fixed], spread[~fixed]
    # of 400 samples each: standard errors of 0.07 and 0.05
    np.testing.assert_allclose((mine.mean(0) - other.mean(0)) / spread, 0, atol=0.25)
    np.testing.assert_allclose(mine.std(0) / spread, 1, atol=0.15)
    # a normal number is beyond 1.85 deviations in 6.4 % of the cases, a uniform one never
    tails = [(np.abs(x - x.mean(0)) > 1.85 * spread).mean(0) for x in (mine, other)]
    np.testing.assert_allclose(*tails, atol=0.045)


OPTIONS = {
    "Hopper": {"forward_reward_weight": 2.0, "healthy_z_range": (1.3, 2.0), "frame_skip": 2},
    "Walker2d": {"terminate_when_unhealthy": False, "healthy_angle_range": (0.1, 1.0),
                 "healthy_reward": 3.0},
    "Swimmer": {"ctrl_cost_weight": 0.5, "exclude_current_positions_from_observation": False},
    "InvertedPendulum": {"frame_skip": 3},
    "InvertedDoublePendulum": {"healthy_reward": 2.0, "frame_skip": 2},
    "Reacher": {"reward_dist_weight": 3.0, "reward_control_weight": 0.2},
    "Ant": {"main_body": "aux_1", "contact_force_range": (-0.2, 0.5), "contact_cost_weight": 1.0,
            "include_cfrc_ext_in_observation": False, "healthy_z_range": (0.9, 2.0)},
    "Humanoid": {"contact_cost_range": (0.5, 1.0), "include_cvel_in_observation": False,
                 "include_cinert_in_observation": False, "ctrl_cost_weight": 1.0},
    "Pusher": {"reward_near_weight": 2.0, "reward_dist_weight": 0.1, "reward_control_weight": 1.0},
    "HumanoidStandup": {"impact_cost_weight": 0.1, "include_qfrc_actuator_in_observation": False,
                        "impact_cost_range": (-1.0, 0.3), "frame_skip": 1},
}  # fmt: skip


@pytest.mark.parametrize("robot", ROBOTS)
def test_keyword_arguments_are_gymnasiums(robot):
    options = OPTIONS[robot]
    theirs, ours = oracle(robot, **options), make(robot, 1, **options, autoreset="disabled")
    if "reset_noise_scale" in theirs.__class__.__init__.__code__.co_varnames:
        still = {"reset_noise_scale": 0.0}
        theirs, ours = oracle(robot, **options, **still), make(robot, 1, **options, **still)
        np.testing.assert_allclose(ours.reset(seed=0)[0][0], theirs.reset(seed=0)[0], atol=1e-9)
    else:
        first = theirs.reset(seed=0)[0]
        ours.reset(seed=0)
        ours.sim.qpos, ours.sim.qvel = theirs.data.qpos[None], theirs.data.qvel[None]
        assert first.shape == ours.single_observation_space.shape
    assert ours.single_observation_space == theirs.observation_space
    action = 0.7 * theirs.action_space.high
    a, b = ours.step(action[None]), theirs.step(action)
    obs = a[4]["final_obs"][0] if a[2][0] else a[0][0]
    np.testing.assert_allclose(obs, b[0], atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(a[1][0], b[1], atol=1e-6, rtol=1e-6)
    assert a[2][0] == b[2]
    for key in b[4]:
        np.testing.assert_allclose(a[4][key][0], b[4][key], atol=1e-6, rtol=1e-6, err_msg=key)


def test_every_argument_of_gymnasiums_is_taken():
    for robot in (*ROBOTS, "HalfCheetah"):
        theirs = inspect.signature(type(gym.make(f"{robot}-v5").unwrapped)).parameters
        ours = inspect.signature(_FACTORIES[f"{robot}-v5"]).parameters
        for name in set(theirs) - {"kwargs", "default_camera_config"}:
            assert ours[name].default == theirs[name].default, (robot, name)
