"""Ant-v5: Gymnasium's environment of that name, on the file of the installed package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alloy.envs import checks, resets
from alloy.envs import gymnasium_suite as suite
from alloy.envs.checks import Check
from alloy.envs.task import Task
from alloy.scene import Scene

if TYPE_CHECKING:
    from torch import Tensor

    from alloy.envs.view import EnvView


def body_velocity(body: int | str, axis: int) -> Check:
    """Mean velocity of a body along an axis between the last physics steps of two control steps."""

    def value(sim: EnvView) -> Tensor:
        place = sim.body(body).id
        now, before = sim.last("xpos"), sim.previous.last("xpos")
        return (now[:, place, axis] - before[:, place, axis]) / sim.dt

    return Check(value, f"body_velocity({body!r}, {axis})")


def ant(
    xml_file: str = "ant.xml",
    frame_skip: int = 5,
    forward_reward_weight: float = 1.0,
    ctrl_cost_weight: float = 0.5,
    contact_cost_weight: float = 5e-4,
    healthy_reward: float = 1.0,
    main_body: int | str = 1,
    terminate_when_unhealthy: bool = True,
    healthy_z_range: suite.Range = (0.2, 1.0),
    contact_force_range: suite.Range = (-1.0, 1.0),
    reset_noise_scale: float = 0.1,
    exclude_current_positions_from_observation: bool = True,
    include_cfrc_ext_in_observation: bool = True,
) -> tuple[Scene, Task]:
    """Scene and task; the arguments are those of Gymnasium's `AntEnv`.

    Args:
        xml_file: MJCF file, by its name in Gymnasium's assets or by its path.
        frame_skip: physics steps per control step.
        forward_reward_weight: of the velocity along x.
        ctrl_cost_weight: of the squared action.
        contact_cost_weight: of the squared external forces.
        healthy_reward: of every step that ends healthy.
        main_body: the body whose velocity is rewarded, by id or name.
        terminate_when_unhealthy: whether an episode ends where it is not.
        healthy_z_range: of the height.
        contact_force_range: that external forces are kept within.
        reset_noise_scale: half width of the uniform noise on qpos, and standard deviation of the
            normal noise on qvel, at the start of an episode.
        exclude_current_positions_from_observation: leave the positions along x and y out.
        include_cfrc_ext_in_observation: whether external forces are observed.
    """
    low, high = healthy_z_range
    healthy = Check(lambda sim: (low <= sim.qpos[:, 2]) & (sim.qpos[:, 2] <= high), "healthy")
    forces = suite.last("cfrc_ext", 1).clip(*contact_force_range).named("cfrc_ext")
    speed = {"x_velocity": body_velocity(main_body, 0), "y_velocity": body_velocity(main_body, 1)}
    reward = {
        "reward_forward": (forward_reward_weight, speed["x_velocity"]),
        "reward_survive": (healthy_reward, healthy),
        "reward_ctrl": (-ctrl_cost_weight, checks.action_size()),
        "reward_contact": (-contact_cost_weight, suite.squared_forces(contact_force_range)),
    }
    skip = 2 if exclude_current_positions_from_observation else 0
    return suite.gymnasium_scene(xml_file, frame_skip), Task(
        obs=[
            suite.positions(skip),
            suite.velocities(),
            *([forces] if include_cfrc_ext_in_observation else []),
        ],
        reward=reward,
        failure=~healthy if terminate_when_unhealthy else None,
        max_steps=1000,
        reset=[resets.qpos_uniform(reset_noise_scale), resets.qvel_normal(reset_noise_scale)],
        info=suite.WHERE | speed | suite.reported(reward),
        reset_info=[*suite.WHERE],
        after_step=["xpos", "cfrc_ext"],
    )
