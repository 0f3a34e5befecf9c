"""Hopper-v5: Gymnasium's environment of that name, on the file of the installed package."""

from __future__ import annotations

import math

from alloy.envs import gymnasium_suite as suite
from alloy.envs.task import Task
from alloy.scene import Scene


def hopper(
    xml_file: str = "hopper.xml",
    frame_skip: int = 4,
    forward_reward_weight: float = 1.0,
    ctrl_cost_weight: float = 1e-3,
    healthy_reward: float = 1.0,
    terminate_when_unhealthy: bool = True,
    healthy_state_range: suite.Range = (-100.0, 100.0),
    healthy_z_range: suite.Range = (0.7, math.inf),
    healthy_angle_range: suite.Range = (-0.2, 0.2),
    reset_noise_scale: float = 5e-3,
    exclude_current_positions_from_observation: bool = True,
) -> tuple[Scene, Task]:
    """Scene and task; the arguments are those of Gymnasium's `HopperEnv`.

    Args:
        xml_file: MJCF file, by its name in Gymnasium's assets or by its path.
        frame_skip: physics steps per control step.
        forward_reward_weight: of the velocity along x.
        ctrl_cost_weight: of the squared action.
        healthy_reward: of every step that ends healthy.
        terminate_when_unhealthy: whether an episode ends where it is not.
        healthy_state_range: of all positions and velocities but the places along x and z.
        healthy_z_range: of the height.
        healthy_angle_range: of the pitch.
        reset_noise_scale: half width of the uniform noise at the start of an episode.
        exclude_current_positions_from_observation: leave the position along x out.
    """
    healthy = (
        suite.within(healthy_state_range, slice(2, None), slice(None))
        & suite.within(healthy_z_range, slice(1, 2))
        & suite.within(healthy_angle_range, slice(2, 3))
    )
    return suite.gymnasium_scene(xml_file, frame_skip), suite.walk_in_a_plane(
        healthy,
        forward_reward_weight,
        ctrl_cost_weight,
        healthy_reward,
        terminate_when_unhealthy,
        reset_noise_scale,
        exclude_current_positions_from_observation,
    )
