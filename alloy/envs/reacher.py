"""Reacher-v5: Gymnasium's environment of that name, on the file of the installed package."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from alloy.envs import checks, resets
from alloy.envs import gymnasium_suite as suite
from alloy.envs.task import Task
from alloy.scene import Scene

if TYPE_CHECKING:
    from torch import Tensor

    from alloy.envs.resets import Rng
    from alloy.envs.view import EnvView

TIP, TARGET = "fingertip", "target"
RADIUS = 0.2  # of the disc around the origin that the targets are in, m


def observation(sim: EnvView) -> Tensor:
    """Cosines and sines of the arm's angles, target, the arm's velocities, tip from target."""
    angles = sim.qpos[:, :2]
    offset = suite.gap(TIP, TARGET)(sim)[:, :2]
    return torch.cat(
        [torch.cos(angles), torch.sin(angles), sim.qpos[:, 2:], sim.qvel[:, :2], offset], -1
    )


def target_in_disc(sim: EnvView, rng: Rng) -> dict[str, Tensor]:
    """Put the target anywhere in the disc, at rest, every place as likely."""
    angle, share = rng.uniform(0.0, 2.0 * math.pi), rng.uniform()
    place = RADIUS * share.sqrt() * torch.cat([torch.cos(angle), torch.sin(angle)], -1)
    rest = torch.zeros_like(place)
    return {
        "qpos": torch.cat([sim.qpos[:, :-2], place], -1),
        "qvel": torch.cat([sim.qvel[:, :-2], rest], -1),
    }


def reacher(
    xml_file: str = "reacher.xml",
    frame_skip: int = 2,
    reward_dist_weight: float = 1.0,
    reward_control_weight: float = 1.0,
) -> tuple[Scene, Task]:
    """Scene and task; the arguments are those of Gymnasium's `ReacherEnv`.

    Args:
        xml_file: MJCF file, by its name in Gymnasium's assets or by its path.
        frame_skip: physics steps per control step.
        reward_dist_weight: of the distance of the fingertip from the target.
        reward_control_weight: of the squared action.
    """
    reward = {
        "reward_dist": (-reward_dist_weight, suite.distance(TIP, TARGET)),
        "reward_ctrl": (-reward_control_weight, checks.action_size()),
    }
    return suite.gymnasium_scene(xml_file, frame_skip), Task(
        obs=[observation],
        reward=reward,
        max_steps=50,
        reset=[resets.qpos_uniform(0.1), suite.qvel_uniform(0.005), target_in_disc],
        info=suite.reported(reward),
        after_step=["xpos"],
    )
