"""GripperLift-v0: what it shows, and that a scripted hand solves it."""

import pytest
import torch

import alloy


def script(step, worlds):
    """Down with open fingers, close, lift."""
    lift = -1.0 if step < 12 else 0.0 if step < 24 else 1.0
    close = -1.0 if step < 12 else 1.0
    return torch.tensor([lift, close, close]).expand(worlds, 3)


def test_observation_is_laid_out_as_said():
    env = alloy.envs.make("GripperLift-v0", num_envs=3, engine="reference")
    obs, _ = env.reset(seed=0)
    sim = env.sim
    assert torch.equal(obs[:, :3], sim.qpos[:, [*range(7, 10)]])
    assert torch.equal(obs[:, 3:6], sim.qvel[:, [*range(6, 9)]])
    assert torch.equal(obs[:, 6:9], sim.body("gripper/palm").pos)
    assert torch.equal(obs[:, 9:16], sim.qpos[:, :7])
    assert torch.equal(obs[:, 16:], sim.qvel[:, :6])
    assert env.action_names() == ["gripper/lift", "gripper/close_left", "gripper/close_right"]


def test_a_scripted_hand_lifts_the_cube():
    env = alloy.envs.make("GripperLift-v0", num_envs=8, autoreset="disabled", engine="reference")
    env.reset(seed=0)
    total = torch.zeros(8)
    won = torch.zeros(8, dtype=torch.bool)
    for step in range(60):
        _, reward, terminated, truncated, info = env.step(script(step, 8))
        won |= info["success"]
        assert torch.equal(info["success"], terminated)
        total += reward
        if terminated.any():
            break
    assert won.any()
    assert info["episode"]["r"][won].tolist() == pytest.approx(total[won].tolist(), abs=1e-3)
    assert (info["terms"]["success"] == 10 * info["success"]).all()
    # not one was dropped, turned over or left behind
    assert (env.sim.body("cube").pos[:, 2] > 0.06).all()


def test_the_reward_ranks_lifting_over_touching_over_waiting():
    env = alloy.envs.make("GripperLift-v0", num_envs=3, engine="reference")
    env.reset(seed=[1, 1, 1])
    on_top = torch.tensor([-1.0, 1.0, 1.0])  # closed before it is down: it presses from above
    total, running = torch.zeros(3), torch.ones(3, dtype=torch.bool)
    for step in range(45):
        action = torch.stack([script(step, 1)[0], on_top, torch.zeros(3)])
        _, reward, terminated, _, _ = env.step(action)
        total += torch.where(running, reward, 0)
        running &= ~terminated
    assert running.tolist() == [False, True, True]
    assert total[0] > total[1] + 20
    assert total[1] > total[2] + 2
