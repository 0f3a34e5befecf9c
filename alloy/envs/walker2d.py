"""Walker2d-v5: Gymnasium's environment of that name, on the file of the installed package."""

from __future__ import annotations

from alloy.envs import gymnasium_suite as suite
from alloy.envs.task import Task
from alloy.scene import Scene


def walker2d(
    xml_file: str = "walker2d_v5.xml",
    frame_skip: int = 4,
    forward_reward_weight: float = 1.0,
    ctrl_cost_weight: float = 1e-3,
    healthy_reward: float = 1.0,
    terminate_when_unhealthy: bool = True,
    healthy_z_range: suite.Range = (0.8, 2.0),
    healthy_angle_range: suite.Range = (-1.0, 1.0),
    reset_noise_scale: float = 5e-3,
    exclude_current_positions_from_observation: bool = True,
) -> tuple[Scene, Task]:
    """Scene and task; the arguments are those of Gymnasium's `Walker2dEnv`.

    Args:
        xml_file: MJCF file, by its name in Gymnasium's assets or by its path.
        frame_skip: physics steps per control step.
        forward_reward_weight: of the velocity along x.
        ctrl_cost_weight: of the squared action.
        healthy_reward: of every step that ends healthy.
        terminate_when_unhealthy: whether an episode ends where it is not.
        healthy_z_range: of the height.
        healthy_angle_range: of the pitch.
        reset_noise_scale: half width of the uniform noise at the start of an episode.
        exclude_current_positions_from_observation: leave the position along x out.
    """
    healthy = suite.within(healthy_z_range, slice(1, 2)) & suite.within(
        healthy_angle_range, slice(2, 3)
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
