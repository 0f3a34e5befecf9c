"""Go2Velocity-v0: a blind Unitree Go2 follows velocity commands on flat ground."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from alloy.envs import checks as C
from alloy.envs import observations as obs
from alloy.envs import resets
from alloy.envs.actions_spec import ActionTerm
from alloy.envs.checks import Check
from alloy.envs.loco.terms import (
    Commands,
    Feet,
    Range,
    body_angvel,
    body_linvel,
    columns,
    noisy,
    push,
    stand,
)
from alloy.envs.robots_go2 import JOINTS, LEGS, RANGE, STANDING, go2
from alloy.envs.task import Task
from alloy.scene import Scene

if TYPE_CHECKING:
    from torch import Tensor

    from alloy.envs.view import EnvView

ROBOT = "go2"
BASE = f"{ROBOT}/base"
FEET = tuple(f"{ROBOT}/{leg}_foot" for leg in LEGS)
DT = 0.02  # control step, s
TILT = 1.0  # rad, beyond which the robot has fallen
LINEAR_BOUND = 0.25  # m/s: mean error of the planar velocity in an episode that succeeds
TURNING_BOUND = 0.25  # rad/s: and of the turning rate
STARTS = (
    resets.pose(ROBOT, yaw=(-math.pi, math.pi)),
    stand(ROBOT, STANDING, noise=0.1),
    resets.qvel_normal(0.1),
)
ACTION_SCALE = {"hip": 0.4, "thigh": 0.8, "calf": 0.8}  # rad from the standing pose, for 1


def go2_velocity_task(
    vx: Range = Commands.vx,
    vy: Range = Commands.vy,
    yaw: Range = Commands.yaw,
    resample: float | None = 5.0,
    standing: float = Commands.standing,
    push_speed: float = 0.5,
    push_every: float = 4.0,
    randomize: bool = True,
    noise: float = 1.0,
    action_delay: int | tuple[int, int] = 0,
    kp: float = 35.0,
    kd: float = 0.6,
    max_steps: int = 1000,
) -> tuple[Scene, Task]:
    """Scene and task.

    Actions, 12: targets of the joints' position servos, around the standing pose; torques are
    limited as the motors' are. Observation groups:

    * `policy`, 45: angular velocity of the trunk in its frame 3 (rad/s, times 0.25), the vertical
      seen from it 3, command 3, joint angles from the standing pose 12, joint velocities 12 (rad/s,
      times 0.05), last action 12.
    * `critic`, 57: the same without noise, and the trunk's linear velocity in its frame 3, its
      height 1, feet on the ground 4, seconds that each has been in the air 4.

    An episode lasts 20 s. It ends before that as a failure where the trunk touches the ground or
    leans by more than a radian. It succeeds where it reaches the time limit with a mean error of
    the planar velocity of at most 0.25 m/s and of the turning rate of at most 0.25 rad/s, all steps
    counted, also those just after a new command and after pushes. `info` has `command` and the
    velocity errors of each step.

    Args:
        vx: forward velocities asked for, m/s, positive ahead.
        vy: sideways velocities asked for, m/s, positive to the left.
        yaw: turning rates asked for, rad/s.
        resample: seconds after which another command is drawn; None for one per episode.
        standing: share of the commands that say: stand still.
        push_speed: greatest change of the trunk's horizontal velocity by a push, m/s; 0 for none.
        push_every: seconds between pushes.
        randomize: draw friction of the feet, mass and centre of mass of the trunk and gains of the
            servos for each episode.
        noise: scale of the noise on the policy's observation; 0 for none.
        action_delay: control steps by which actions come late, or bounds drawn from per episode.
        kp: gain of the position servos, N m/rad.
        kd: their damping, N m s/rad.
        max_steps: control steps of 20 ms after which an episode is truncated.
    """
    commands = Commands(vx, vy, yaw, None if resample is None else _steps(resample), standing)
    feet = Feet(FEET, DT)
    events = [push(ROBOT, push_speed, _steps(push_every))] if push_speed else []
    fallen = C.in_contact(f"{ROBOT}/trunk") | (C.tilt(BASE) > TILT)
    return _scene(kp, kd, randomize), Task(
        obs=_observations(commands, feet, noise),
        actions=_actions(),
        reward=_reward(commands, feet),
        success=_walked(commands, max_steps) & ~fallen,
        end_on_success=False,
        failure=fallen,
        max_steps=max_steps,
        reset=STARTS,
        after_step=["actuator_force"],
        events=events,
        action_delay=action_delay,
        info={
            "command": commands.followed(),
            "linear_error": commands.linear_error(BASE),
            "turning_error": commands.turning_error(BASE),
        },
    )


def _walked(commands: Commands, max_steps: int) -> Check:
    """Whether the episode is at its time limit and followed its commands."""
    errors = commands.mean_errors(BASE)

    def value(sim: EnvView) -> Tensor:
        linear, turning = errors(sim).unbind(-1)
        near = (linear <= LINEAR_BOUND) & (turning <= TURNING_BOUND)
        return (sim.steps >= max_steps) & near

    return Check(value, "walked as told", errors.memories)


def _steps(seconds: float) -> int:
    return max(1, round(seconds / DT))


def _scene(kp: float, kd: float, randomize: bool) -> Scene:
    scene = Scene(dt=DT, physics_dt=DT / 4)
    scene.add_ground()
    scene.add_robot(ROBOT, mjcf=go2(kp, kd))
    if randomize:
        scene.randomize(f"{ROBOT}/*_foot", "friction", 0.4, 1.2)
        scene.randomize(ROBOT, "kp", 0.85, 1.15, mode="scale")
        scene.randomize(ROBOT, "kv", 0.85, 1.15, mode="scale")
        scene.randomize(BASE, "mass", -1.0, 3.0, mode="add")
        scene.randomize(BASE, "com", (-0.03, -0.03, -0.03), (0.03, 0.03, 0.03), mode="add")
    return scene


def _actions() -> list[ActionTerm]:
    terms = []
    for name in JOINTS:
        leg, part = name.split("_")
        key = part if part != "thigh" else ("front thigh" if leg[0] == "F" else "rear thigh")
        (lowest, highest), middle, reach = RANGE[key], STANDING[name], ACTION_SCALE[part]
        full = f"{ROBOT}/{name}"
        low, high = max(lowest, middle - reach), min(highest, middle + reach)
        terms.append(ActionTerm(full, (full,), low=low, high=high))
    return terms


def _observations(commands: Commands, feet: Feet, noise: float) -> dict[str, list[Check]]:
    rates = columns(obs.joint_velocities(ROBOT), slice(6, None))  # behind the free joint's
    told = [
        (body_angvel(BASE).map(lambda x: 0.25 * x, "angular velocity"), 0.05),
        (obs.up(BASE).named("vertical"), 0.05),
        (commands.now(), 0.0),
        (Check(_off_pose, "joint angles"), 0.01),
        (rates.map(lambda x: 0.05 * x, "joint velocities"), 0.075),
        (obs.last_action().named("last action"), 0.0),
    ]
    policy = [noisy(term, noise * scale) for term, scale in told]
    known = [body_linvel(BASE), C.height(BASE), feet.touching(), feet.air_time()]
    return {"policy": policy, "critic": [*(term for term, _ in told), *known]}


def _off_pose(sim: EnvView) -> Tensor:
    """Angles of the joints from the standing pose, [W, 12]."""
    pose = [STANDING[name] for name in JOINTS]
    return sim.qpos[:, 7:] - sim.qpos.new_tensor(pose)  # behind the free joint's


def _reward(commands: Commands, feet: Feet) -> dict[str, tuple[float, Check]]:
    """Weights are per second: a step's reward is a fiftieth."""
    moving = commands.moving()
    off_pose = Check(lambda sim: _off_pose(sim).square().sum(-1), "off the standing pose")

    def near(error: Check, scale: float) -> Check:
        return (-((error / scale) ** 2)).exp()

    vertical = Check(lambda sim: sim.frame(BASE).linvel[:, 2].square(), "vertical speed")
    rolling = Check(lambda sim: body_angvel(BASE)(sim)[:, :2].square().sum(-1), "rolling")
    leaning = Check(lambda sim: sim.frame(BASE).mat[:, 2, :2].square().sum(-1), "leaning")
    torques = Check(lambda sim: sim.last("actuator_force").square().sum(-1), "torques")
    sinking = (C.height(BASE) - 0.28) ** 2
    terms = {
        "linear": (2.0, near(commands.linear_error(BASE), 0.5)),
        "turning": (1.5, near(commands.turning_error(BASE), 0.5)),
        "vertical": (-1.0, vertical),
        "rolling": (-0.05, rolling),
        "leaning": (-2.0, leaning),
        "height": (-10.0, sinking),
        "torques": (-2e-4, torques),
        "pose": (-0.1, off_pose),
        "action_rate": (-0.04, C.action_rate()),
        "stand": (-1.0, off_pose * ~moving),
        "air_time": (4.0, feet.steps_taken(0.2, 0.5) * moving),
        "clearance": (-20.0, feet.clearance(0.08)),
        "slip": (-0.2, feet.slip()),
        "fall": (-50.0, ~C.alive()),
    }
    return {name: (DT * weight, check) for name, (weight, check) in terms.items()}
