"""HalfCheetah-v5: Gymnasium's environment of that name, on the file of the installed package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import gymnasium
from torch import Tensor

from alloy.envs import checks, resets
from alloy.envs.task import Task
from alloy.scene import Scene

if TYPE_CHECKING:
    from alloy.envs.view import EnvView


def x_position(sim: EnvView) -> Tensor:
    """Position of the root along x, [W], m."""
    return sim.qpos[:, 0]


def x_velocity(sim: EnvView) -> Tensor:
    """Mean velocity of the root along x over the control step, [W], m/s."""
    return (sim.qpos[:, 0] - sim.previous.qpos[:, 0]) / sim.dt


def half_cheetah(
    xml_file: str = "half_cheetah.xml",
    frame_skip: int = 5,
    forward_reward_weight: float = 1.0,
    ctrl_cost_weight: float = 0.1,
    reset_noise_scale: float = 0.1,
    exclude_current_positions_from_observation: bool = True,
) -> tuple[Scene, Task]:
    """Scene and task; the arguments are those of Gymnasium's `HalfCheetahEnv`.

    Args:
        xml_file: MJCF file, by its name in Gymnasium's assets or by its path.
        frame_skip: physics steps per control step.
        forward_reward_weight: of the velocity along x.
        ctrl_cost_weight: of the squared action.
        reset_noise_scale: half width of the uniform noise on qpos, and standard deviation of the
            normal noise on qvel, at the start of an episode.
        exclude_current_positions_from_observation: leave the position along x out.
    """
    path = gymnasium_file(xml_file)
    physics_dt = Scene.from_mjcf(path).physics_dt
    scene = Scene.from_mjcf(path, dt=frame_skip * physics_dt)
    skip = 1 if exclude_current_positions_from_observation else 0

    def positions(sim: EnvView) -> Tensor:
        return sim.qpos[:, skip:]

    def velocities(sim: EnvView) -> Tensor:
        return sim.qvel

    forward = (forward_reward_weight, checks.Check(x_velocity, "x_velocity"))
    control = (-ctrl_cost_weight, checks.action_size())
    return scene, Task(
        obs=[positions, velocities],
        reward={"reward_forward": forward, "reward_ctrl": control},
        max_steps=1000,
        reset=[resets.qpos_uniform(reset_noise_scale), resets.qvel_normal(reset_noise_scale)],
        info={
            "x_position": x_position,
            "x_velocity": x_velocity,
            "reward_forward": forward[0] * forward[1],
            "reward_ctrl": control[0] * control[1],
        },
        reset_info=["x_position"],
    )


def gymnasium_file(name: str) -> Path:
    """Path of a file in the assets of Gymnasium's MuJoCo environments, or of any other file.

    Raises:
        FileNotFoundError: there is none of that name.
    """
    if name.startswith((".", "/", "~")):
        path = Path(name).expanduser()
    else:
        path = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / name
    if not path.is_file():
        raise FileNotFoundError(
            f"xml_file {name!r}: there is no file {path}; give a name in Gymnasium's assets, "
            f"or a path that begins with '.', '/' or '~'"
        )
    return path
