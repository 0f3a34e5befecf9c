"""What Gymnasium's MuJoCo environments share: their files, observations, rewards and resets.

Their functions read mjData right after mj_step: qpos and qvel are then new, and everything else is
as the last physics step computed it from the state before (`sim.last`, see `Task.after_step`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import gymnasium
import torch
from torch import Tensor

from alloy.envs import checks, resets
from alloy.envs.checks import Check, Operand, as_check
from alloy.envs.task import Task
from alloy.scene import Scene

if TYPE_CHECKING:
    from alloy.envs.resets import ResetTerm, Rng
    from alloy.envs.view import EnvView

Range = tuple[float, float]


def gymnasium_scene(xml_file: str, frame_skip: int) -> Scene:
    """The scene of a file, by its name in Gymnasium's assets or by its path.

    Args:
        xml_file: see `gymnasium_file`.
        frame_skip: physics steps per control step.
    """
    path = gymnasium_file(xml_file)
    return Scene.from_mjcf(path, dt=frame_skip * Scene.from_mjcf(path).physics_dt)


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


# observations


def positions(skip: int = 0) -> Check:
    """All of qpos but the first `skip` numbers, [W, nq - skip]."""
    return Check(lambda sim: sim.qpos[:, skip:], "positions")


def velocities(bound: float | None = None) -> Check:
    """All of qvel, [W, nv], kept within +-bound if there is one."""
    if bound is None:
        return Check(lambda sim: sim.qvel, "velocities")
    return Check(lambda sim: torch.clamp(sim.qvel, -bound, bound), "velocities")


def last(field: str, skip: int = 0) -> Check:
    """A field that the last physics step left, without its first `skip` rows, as one row each."""
    return Check(lambda sim: sim.last(field)[:, skip:].flatten(1), field)


def joint_and_body_state(
    skip: int, cinert: bool, cvel: bool, qfrc_actuator: bool, cfrc_ext: bool
) -> tuple[list[Check], list[str]]:
    """The observation of the humanoids: terms, and the fields of `Task.after_step` they need.

    Args:
        skip: numbers of qpos to leave out.
        cinert: whether inertias and masses of the bodies are in it.
        cvel: whether their velocities are.
        qfrc_actuator: whether the actuators' forces on the joints are.
        cfrc_ext: whether the external forces on the bodies are.
    """
    wanted = {"cinert": cinert, "cvel": cvel, "qfrc_actuator": qfrc_actuator, "cfrc_ext": cfrc_ext}
    fields = [name for name, included in wanted.items() if included]
    # neither the world nor the six degrees of freedom of the free joint
    terms = [last(name, 6 if name == "qfrc_actuator" else 1) for name in fields]
    return [positions(skip), velocities(), *terms], fields


# rewards and what they are made of


def x_position(sim: EnvView) -> Tensor:
    """First number of qpos, [W]: the root's position along x, m."""
    return sim.qpos[:, 0]


def y_position(sim: EnvView) -> Tensor:
    """Second number of qpos, [W]: the root's position along y, m."""
    return sim.qpos[:, 1]


def x_velocity(sim: EnvView) -> Tensor:
    """Mean velocity of the root along x over the control step, [W], m/s."""
    return (sim.qpos[:, 0] - sim.previous.qpos[:, 0]) / sim.dt


def y_velocity(sim: EnvView) -> Tensor:
    """Mean velocity of the root along y over the control step, [W], m/s."""
    return (sim.qpos[:, 1] - sim.previous.qpos[:, 1]) / sim.dt


def distance_from_origin(sim: EnvView) -> Tensor:
    """Distance of the root from the world's origin in the plane, [W], m."""
    return torch.linalg.vector_norm(sim.qpos[:, :2], dim=-1)


WHERE = {
    "x_position": x_position,
    "y_position": y_position,
    "distance_from_origin": distance_from_origin,
}
TENDONS = {"tendon_length": last("ten_length"), "tendon_velocity": last("ten_velocity")}


def raised(coordinate: int) -> Check:
    """How much a coordinate of qpos is above its value in the model, [W]."""
    return Check(
        lambda sim: sim.qpos[:, coordinate] - sim.model.qpos0[:, coordinate],
        f"raised({coordinate})",
    )


def within(span: Range, positions: slice, velocities: slice = slice(0)) -> Check:
    """Whether some of qpos and qvel is within a span, its ends not included, [W] bool."""
    low, high = span

    def value(sim: EnvView) -> Tensor:
        x = torch.cat([sim.qpos[:, positions], sim.qvel[:, velocities]], -1)
        return ((low < x) & (x < high)).all(-1)

    return Check(value, f"within({span})")


def gap(a: str, b: str) -> Check:
    """Vector from body `b` to body `a` as the last physics step left them, [W, 3], m."""

    def value(sim: EnvView) -> Tensor:
        xpos = sim.last("xpos")
        return xpos[:, sim.body(a).id] - xpos[:, sim.body(b).id]

    return Check(value, f"gap({a!r}, {b!r})")


def distance(a: str, b: str) -> Check:
    """Length of `gap`, [W], m."""
    vector = gap(a, b)
    return Check(
        lambda sim: torch.linalg.vector_norm(vector(sim), dim=-1), f"distance({a!r}, {b!r})"
    )


def squared_forces(span: Range | None = None) -> Check:
    """Sum of the squared external forces on all bodies, each first kept within a span, [W]."""

    def value(sim: EnvView) -> Tensor:
        force = sim.last("cfrc_ext")
        return (force if span is None else torch.clamp(force, *span)).square().sum((-1, -2))

    return Check(value, f"squared_forces({span})")


def reported(reward: Mapping[str, tuple[float, Operand]]) -> dict[str, Check]:
    """The terms of a reward by name as info shows them: times their weights."""
    return {name: weight * as_check(value) for name, (weight, value) in reward.items()}


# resets


def qvel_uniform(scale: float) -> ResetTerm:
    """Add a uniform number within +-scale to every velocity."""

    def term(sim: EnvView, rng: Rng) -> dict[str, Tensor]:
        return {"qvel": sim.qvel + rng.uniform(-scale, scale, sim.qvel.shape[-1])}

    return term


# tasks


def walk_in_a_plane(
    healthy: Check,
    forward_reward_weight: float,
    ctrl_cost_weight: float,
    healthy_reward: float,
    terminate_when_unhealthy: bool,
    reset_noise_scale: float,
    exclude_current_positions_from_observation: bool,
) -> Task:
    """The task of Hopper and Walker2d: run along x and stay healthy, a bool check."""
    reward = {
        "reward_forward": (forward_reward_weight, x_velocity),
        "reward_survive": (healthy_reward, healthy),
        "reward_ctrl": (-ctrl_cost_weight, checks.action_size()),
    }
    info = {"x_position": x_position, "z_distance_from_origin": raised(1)}
    return Task(
        obs=[positions(1 if exclude_current_positions_from_observation else 0), velocities(10.0)],
        reward=reward,
        failure=~healthy if terminate_when_unhealthy else None,
        max_steps=1000,
        reset=[resets.qpos_uniform(reset_noise_scale), qvel_uniform(reset_noise_scale)],
        info=info | {"x_velocity": x_velocity} | reported(reward),
        reset_info=[*info],
    )
