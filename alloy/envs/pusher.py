"""Pusher-v5: Gymnasium's environment of that name, on the file of the installed package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from alloy.envs import checks
from alloy.envs import gymnasium_suite as suite
from alloy.envs.task import Task
from alloy.scene import Scene

if TYPE_CHECKING:
    from torch import Tensor

    from alloy.envs.resets import Rng
    from alloy.envs.view import EnvView

TIP, OBJECT, GOAL = "tips_arm", "object", "goal"
NEAREST = 0.17  # the object begins no closer to the goal, m
TRIES = 24  # 2 of 5 places are too close; that all are has a chance below 1e-9


def observation(sim: EnvView) -> Tensor:
    """Positions and velocities of the arm, then where its tip, the object and the goal are."""
    xpos = sim.last("xpos")
    places = [xpos[:, sim.body(name).id] for name in (TIP, OBJECT, GOAL)]
    return torch.cat([sim.qpos[:, :7], sim.qvel[:, :7], *places], -1)


def object_off_the_goal(sim: EnvView, rng: Rng) -> dict[str, Tensor]:
    """Put the object in a rectangle but not at the goal, and the goal at its origin; at rest."""
    along = rng.uniform(-0.3, 0.0, TRIES)
    across = rng.uniform(-0.2, 0.2, TRIES)
    place = torch.stack([along[:, 0] - 0.3, across[:, 0]], -1) * 0.5  # good enough if none is
    for k in reversed(range(TRIES)):
        draw = torch.stack([along[:, k], across[:, k]], -1)
        far = torch.linalg.vector_norm(draw, dim=-1, keepdim=True) > NEAREST
        place = torch.where(far, draw, place)
    rest = torch.zeros_like(place)
    return {
        "qpos": torch.cat([sim.qpos[:, :-4], place, rest], -1),
        "qvel": torch.cat([sim.qvel[:, :-4], rest, rest], -1),
    }


def pusher(
    xml_file: str = "pusher_v5.xml",
    frame_skip: int = 5,
    reward_near_weight: float = 0.5,
    reward_dist_weight: float = 1.0,
    reward_control_weight: float = 0.1,
) -> tuple[Scene, Task]:
    """Scene and task; the arguments are those of Gymnasium's `PusherEnv`.

    Args:
        xml_file: MJCF file, by its name in Gymnasium's assets or by its path.
        frame_skip: physics steps per control step.
        reward_near_weight: of the distance of the arm's tip from the object.
        reward_dist_weight: of the distance of the object from the goal.
        reward_control_weight: of the squared action.
    """
    reward = {
        "reward_dist": (-reward_dist_weight, suite.distance(OBJECT, GOAL)),
        "reward_ctrl": (-reward_control_weight, checks.action_size()),
        "reward_near": (-reward_near_weight, suite.distance(OBJECT, TIP)),
    }
    return suite.gymnasium_scene(xml_file, frame_skip), Task(
        obs=[observation],
        reward=reward,
        max_steps=100,
        reset=[suite.qvel_uniform(0.005), object_off_the_goal],
        info=suite.reported(reward),
        after_step=["xpos"],
    )
