"""Swimmer-v5: Gymnasium's environment of that name, on the file of the installed package."""

from __future__ import annotations

from alloy.envs import checks, resets
from alloy.envs import gymnasium_suite as suite
from alloy.envs.task import Task
from alloy.scene import Scene


def swimmer(
    xml_file: str = "swimmer.xml",
    frame_skip: int = 4,
    forward_reward_weight: float = 1.0,
    ctrl_cost_weight: float = 1e-4,
    reset_noise_scale: float = 0.1,
    exclude_current_positions_from_observation: bool = True,
) -> tuple[Scene, Task]:
    """Scene and task; the arguments are those of Gymnasium's `SwimmerEnv`.

    Args:
        xml_file: MJCF file, by its name in Gymnasium's assets or by its path.
        frame_skip: physics steps per control step.
        forward_reward_weight: of the velocity along x.
        ctrl_cost_weight: of the squared action.
        reset_noise_scale: half width of the uniform noise at the start of an episode.
        exclude_current_positions_from_observation: leave the positions along x and y out.
    """
    skip = 2 if exclude_current_positions_from_observation else 0
    reward = {
        "reward_forward": (forward_reward_weight, suite.x_velocity),
        "reward_ctrl": (-ctrl_cost_weight, checks.action_size()),
    }
    speed = {"x_velocity": suite.x_velocity, "y_velocity": suite.y_velocity}
    return suite.gymnasium_scene(xml_file, frame_skip), Task(
        obs=[suite.positions(skip), suite.velocities()],
        reward=reward,
        max_steps=1000,
        reset=[resets.qpos_uniform(reset_noise_scale), suite.qvel_uniform(reset_noise_scale)],
        info=suite.WHERE | speed | suite.reported(reward),
        reset_info=[*suite.WHERE],
    )
