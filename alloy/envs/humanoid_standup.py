"""HumanoidStandup-v5: Gymnasium's environment, on the file of the installed package."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from alloy.envs import checks, resets
from alloy.envs import gymnasium_suite as suite
from alloy.envs.task import Task
from alloy.scene import Scene

if TYPE_CHECKING:
    from torch import Tensor

    from alloy.envs.view import EnvView


def height_by_timestep(sim: EnvView) -> Tensor:
    """Height of the root divided by the physics step, [W], m/s."""
    return sim.qpos[:, 2] / sim.model.opt.timestep


def humanoid_standup(
    xml_file: str = "humanoidstandup.xml",
    frame_skip: int = 5,
    uph_cost_weight: float = 1.0,
    ctrl_cost_weight: float = 0.1,
    impact_cost_weight: float = 0.5e-6,
    impact_cost_range: suite.Range = (-math.inf, 10.0),
    reset_noise_scale: float = 1e-2,
    exclude_current_positions_from_observation: bool = True,
    include_cinert_in_observation: bool = True,
    include_cvel_in_observation: bool = True,
    include_qfrc_actuator_in_observation: bool = True,
    include_cfrc_ext_in_observation: bool = True,
) -> tuple[Scene, Task]:
    """Scene and task; the arguments are those of Gymnasium's `HumanoidStandupEnv`.

    Args:
        xml_file: MJCF file, by its name in Gymnasium's assets or by its path.
        frame_skip: physics steps per control step.
        uph_cost_weight: accepted and without effect, as in Gymnasium, whose reward for height has
            no weight.
        ctrl_cost_weight: of the squared action.
        impact_cost_weight: of the squared external forces.
        impact_cost_range: that their cost is kept within.
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
    impact = (impact_cost_weight * suite.squared_forces()).clip(*impact_cost_range)
    reward = {
        "reward_linup": (1.0, height_by_timestep),
        "reward_quadctrl": (-ctrl_cost_weight, checks.action_size()),
        "reward_impact": (-1.0, impact),
    }
    where = {
        "x_position": suite.x_position,
        "y_position": suite.y_position,
        "z_distance_from_origin": suite.raised(2),
        **suite.TENDONS,
    }
    return suite.gymnasium_scene(xml_file, frame_skip), Task(
        obs=obs,
        reward=reward | {"one": (1.0, 1.0)},
        max_steps=1000,
        reset=[resets.qpos_uniform(reset_noise_scale), suite.qvel_uniform(reset_noise_scale)],
        info=where | suite.reported(reward),
        reset_info=[*where],
        after_step=[*dict.fromkeys([*fields, "cfrc_ext", "ten_length", "ten_velocity"])],
    )
