"""Humanoid-v5: Gymnasium's environment of that name, on the file of the installed package."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from alloy.envs import checks, resets
from alloy.envs import gymnasium_suite as suite
from alloy.envs.checks import Check
from alloy.envs.task import Task
from alloy.scene import Scene

if TYPE_CHECKING:
    from torch import Tensor

    from alloy.envs.view import EnvView


def _com(sim: EnvView, axis: int) -> Tensor:
    mass = sim.model.body_mass
    return (mass * sim.last("xipos")[..., axis]).sum(-1) / mass.sum(-1)


def com_velocity(axis: int) -> Check:
    """Mean velocity of the centre of mass between the last physics steps of two control steps."""
    return Check(
        lambda sim: (_com(sim, axis) - _com(sim.previous, axis)) / sim.dt, f"com_velocity({axis})"
    )


def humanoid(
    xml_file: str = "humanoid.xml",
    frame_skip: int = 5,
    forward_reward_weight: float = 1.25,
    ctrl_cost_weight: float = 0.1,
    contact_cost_weight: float = 5e-7,
    contact_cost_range: suite.Range = (-math.inf, 10.0),
    healthy_reward: float = 5.0,
    terminate_when_unhealthy: bool = True,
    healthy_z_range: suite.Range = (1.0, 2.0),
    reset_noise_scale: float = 1e-2,
    exclude_current_positions_from_observation: bool = True,
    include_cinert_in_observation: bool = True,
    include_cvel_in_observation: bool = True,
    include_qfrc_actuator_in_observation: bool = True,
    include_cfrc_ext_in_observation: bool = True,
) -> tuple[Scene, Task]:
    """Scene and task; the arguments are those of Gymnasium's `HumanoidEnv`.

    Args:
        xml_file: MJCF file, by its name in Gymnasium's assets or by its path.
        frame_skip: physics steps per control step.
        forward_reward_weight: of the velocity along x.
        ctrl_cost_weight: of the squared action.
        contact_cost_weight: of the squared external forces.
        contact_cost_range: that their cost is kept within.
        healthy_reward: of every step that ends healthy.
        terminate_when_unhealthy: whether an episode ends where it is not.
        healthy_z_range: of the height.
        reset_noise_scale: half width of the uniform noise at the start of an episode.
        exclude_current_positions_from_observation: leave the positions along x and y out.
        include_cinert_in_observation: whether inertias of the bodies are observed.
        include_cvel_in_observation: whether their velocities are.
        include_qfrc_actuator_in_observation: whether the actuators' forces on the joints are.
        include_cfrc_ext_in_observation: whether external forces on the bodies are.
    """
    obs, fields = suite.joint_and_body_state(
        2 if exclude_current_positions_from_observation else 0,
        cinert=include_cinert_in_observation,
        cvel=include_cvel_in_observation,
        qfrc_actuator=include_qfrc_actuator_in_observation,
        cfrc_ext=include_cfrc_ext_in_observation,
    )
    healthy = suite.within(healthy_z_range, slice(2, 3))
    speed = {"x_velocity": com_velocity(0), "y_velocity": com_velocity(1)}
    contact = (contact_cost_weight * suite.squared_forces()).clip(*contact_cost_range)
    reward = {
        "reward_survive": (healthy_reward, healthy),
        "reward_forward": (forward_reward_weight, speed["x_velocity"]),
        "reward_ctrl": (-ctrl_cost_weight, checks.action_size()),
        "reward_contact": (-1.0, contact),
    }
    where = suite.WHERE | suite.TENDONS
    return suite.gymnasium_scene(xml_file, frame_skip), Task(
        obs=obs,
        reward=reward,
        failure=~healthy if terminate_when_unhealthy else None,
        max_steps=1000,
        reset=[resets.qpos_uniform(reset_noise_scale), suite.qvel_uniform(reset_noise_scale)],
        info=where | speed | suite.reported(reward),
        reset_info=[*where],
        after_step=[*dict.fromkeys([*fields, "xipos", "cfrc_ext", "ten_length", "ten_velocity"])],
    )
