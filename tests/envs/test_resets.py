"""Where episodes begin: the reset terms by their numbers, and what a bad one is told."""

import math

import pytest
import torch

from alloy.envs import Task, VectorEnv, resets
from tests.envs.test_checks import SCENE


def start(*terms, worlds=2000, seed=0):
    env = VectorEnv(SCENE, Task(obs=["cube"], reset=terms), worlds, engine="reference")
    env.reset(seed=seed)
    return env.sim


def test_pose_shifts_and_turns_a_free_body():
    term = resets.pose("cube", x=(-0.1, 0.3), z=(1.0, 1.0), yaw=(0.0, math.pi / 2))
    sim = start(term)
    x, y, z = sim.body("cube").pos.unbind(-1)
    assert x.min() >= 0.9
    assert x.max() <= 1.3
    assert x.mean() == pytest.approx(1.1, abs=0.01)
    assert y.unique().tolist() == [2.0]
    assert z.unique().tolist() == [3.0]
    forward = sim.body("cube").mat[:, :, 0]
    angle = torch.atan2(forward[:, 1], forward[:, 0])
    assert angle.min() >= 0
    assert angle.max() <= math.pi / 2
    assert angle.mean() == pytest.approx(math.pi / 4, abs=0.03)
    assert torch.corrcoef(torch.stack([x, angle]))[0, 1].abs() < 0.1
    assert sim.joint("arm").pos.abs().max() == 0


def test_joints_move_by_themselves():
    sim = start(resets.joints_uniform("arm", 0.5))
    angle = sim.joint("arm").pos
    assert angle.abs().max() <= 0.5
    assert angle.std() == pytest.approx(0.5 / math.sqrt(3), abs=0.02)
    assert torch.equal(sim.qpos[:, :7], sim.qpos[:1, :7].expand(2000, 7))


def test_terms_follow_each_other_and_draw_their_own_numbers():
    one = resets.joints_uniform("arm", 0.5)
    twice = start(one, one).joint("arm").pos
    once = start(one).joint("arm").pos
    assert (twice - once).abs().max() <= 0.5
    assert not torch.allclose(twice, 2 * once)


@pytest.mark.parametrize(
    ("term", "error", "message"),
    [
        (resets.pose("arm"), ValueError, "'arm' has no free joint"),
        (resets.pose("kube"), KeyError, "kube"),
        (resets.joints_uniform("cube", 0.1), ValueError, "'cube' has no slide or hinge"),
        (lambda sim, rng: sim.qpos, TypeError, "must return a dict"),
        (lambda sim, rng: {"xpos": sim.qpos}, ValueError, r"'xpos'.*may set.*qpos"),
        (lambda sim, rng: {"qpos": sim.qvel}, ValueError, r"qpos must be.*\(4, 8\), not.*\(4, 7\)"),
        (lambda sim, rng: {"qpos": 1.0}, ValueError, "not float"),
        (lambda sim, rng: {"qpos": sim.qpos.double()}, ValueError, "float64"),
    ],
)
def test_a_bad_term_is_told_what_is_wrong(term, error, message):
    with pytest.raises(error, match=message):
        start(term, worlds=4)
