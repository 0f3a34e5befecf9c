"""InvertedDoublePendulum-v5: Gymnasium's environment, on the file of the installed package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from alloy.envs import gymnasium_suite as suite
from alloy.envs import resets
from alloy.envs.checks import Check
from alloy.envs.task import Task
from alloy.scene import Scene

if TYPE_CHECKING:
    from torch import Tensor

    from alloy.envs.view import EnvView


def observation(sim: EnvView) -> Tensor:
    """Cart, sines and cosines of the angles, velocities, and the constraint force on the cart."""
    force = sim.last("qfrc_constraint")[:, :1]
    angles = sim.qpos[:, 1:]
    turns = (torch.sin(angles), torch.cos(angles))
    bounded = (torch.clamp(x, -10.0, 10.0) for x in (sim.qvel, force))
    return torch.cat([sim.qpos[:, :1], *turns, *bounded], -1)


def off_target(sim: EnvView) -> Tensor:
    """How far the tip is from where it should be, [W]: weighted square of the distance, m^2."""
    x, _, z = sim.last("site_xpos")[:, 0].unbind(-1)
    return 0.01 * x**2 + (z - 2.0) ** 2


def turning(sim: EnvView) -> Tensor:
    """Weighted square of the velocities of the two hinges, [W]."""
    return 1e-3 * sim.qvel[:, 1] ** 2 + 5e-3 * sim.qvel[:, 2] ** 2


def fallen(sim: EnvView) -> Tensor:
    """Whether the tip is down to a height of 1 m, [W] bool."""
    return sim.last("site_xpos")[:, 0, 2] <= 1.0


def inverted_double_pendulum(
    xml_file: str = "inverted_double_pendulum.xml",
    frame_skip: int = 5,
    healthy_reward: float = 10.0,
    reset_noise_scale: float = 0.1,
) -> tuple[Scene, Task]:
    """Scene and task; the arguments are those of Gymnasium's `InvertedDoublePendulumEnv`.

    Args:
        xml_file: MJCF file, by its name in Gymnasium's assets or by its path.
        frame_skip: physics steps per control step.
        healthy_reward: of every step that does not end the episode.
        reset_noise_scale: half width of the uniform noise on qpos, and standard deviation of the
            normal noise on qvel, at the start of an episode.
    """
    down = Check(fallen, "fallen")
    reward = {
        "reward_survive": (healthy_reward, ~down),
        "distance_penalty": (-1.0, off_target),
        "velocity_penalty": (-1.0, turning),
    }
    return suite.gymnasium_scene(xml_file, frame_skip), Task(
        obs=[observation],
        reward=reward,
        failure=down,
        max_steps=1000,
        reset=[resets.qpos_uniform(reset_noise_scale), resets.qvel_normal(reset_noise_scale)],
        info=suite.reported(reward),
        after_step=["site_xpos", "qfrc_constraint"],
    )
