"""The models that the lanes engine is measured on, as scenes by name."""

from __future__ import annotations

from collections.abc import Callable

import alloy
from alloy.envs.gripper_lift import gripper_lift
from alloy.envs.gymnasium_suite import gymnasium_file
from alloy.envs.robots_go2 import go2

SUBSTEPS = 5  # of Gymnasium's models, in one control step


def gymnasium(name: str) -> alloy.Scene:
    """One of Gymnasium's files, with a control step of 5 of its physics steps."""
    path = gymnasium_file(name)
    return alloy.Scene.from_mjcf(path, dt=SUBSTEPS * alloy.Scene.from_mjcf(path).physics_dt)


def go2_on_ground() -> alloy.Scene:
    """The Go2-like quadruped on a plane, feet and trunk against it; 4 physics steps of 5 ms."""
    scene = alloy.Scene(dt=0.02, physics_dt=0.005)
    scene.add_ground()
    scene.add_robot("go2", mjcf=go2(collision=("feet", "trunk")))
    return scene


LANES: dict[str, Callable[[], alloy.Scene]] = {
    "HalfCheetah": lambda: gymnasium("half_cheetah.xml"),
    "Hopper": lambda: gymnasium("hopper.xml"),
    "Walker2d": lambda: gymnasium("walker2d_v5.xml"),
    "Ant": lambda: gymnasium("ant.xml"),
    "Go2": go2_on_ground,
    "Humanoid": lambda: gymnasium("humanoid.xml"),
    "GripperLift": lambda: gripper_lift()[0],
}
SUITES = {"lanes": LANES}
START = {"Go2": "go2/stand"}  # keyframes to start from where the model's own pose is no stand
