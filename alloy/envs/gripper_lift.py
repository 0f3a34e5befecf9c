"""GripperLift-v0: a hand that moves up and down picks a cube from the ground."""

from __future__ import annotations

from alloy.envs import checks as C
from alloy.envs import observations, resets
from alloy.envs.robots import lift_actions, lift_gripper
from alloy.envs.task import Task
from alloy.scene import Scene

CUBE = 0.05  # edge, m
LIFT = 0.05  # m


def gripper_lift(max_steps: int = 100) -> tuple[Scene, Task]:
    """Scene and task.

    The hand starts open, 20 cm above the ground, over a cube of 5 cm and 0.1 kg that lies within
    its reach, a little off and turned. Every step costs the distance of palm and cube, each pad
    that does not hold the cube (touching it from above does not count), and what is missing of the
    lift. So it pays to finish: success (the cube lifted by 5 cm, and upright) ends the episode with
    a bonus.

    Observation, 22: joint positions 3 and velocities 3 of the gripper, position of the palm 3, pose
    7 and velocity 6 of the cube.

    Args:
        max_steps: control steps of 20 ms after which an episode is truncated.
    """
    scene = Scene(dt=0.02)
    scene.add_ground()
    scene.add_box("cube", size=(CUBE, CUBE, CUBE), pos=(0, 0, CUBE / 2), mass=0.1)
    scene.add_robot("gripper", mjcf=lift_gripper(), pos=(0, 0, 0.2))
    scene.add_light("lamp", pos=(0.5, -0.5, 1.5), direction=(-0.3, 0.3, -1.0))
    scene.add_camera("side", pos=(0.45, -0.22, 0.28), lookat=(0.0, 0.0, 0.1))
    success = C.lifted("cube", by=LIFT) & C.upright("cube")
    low = C.reached("gripper/palm", "cube", within=0.095)  # the pads are beside the cube
    held = [C.in_contact(f"gripper/finger_{side}", "cube") & low for side in ("left", "right")]
    progress = (C.since_start(C.height("cube")) / LIFT).clip(0.0, 1.0)
    return scene, Task(
        obs=["gripper", observations.place("gripper/palm"), "cube"],
        actions=lift_actions("gripper"),
        reward={
            "reach": (-2.0, C.distance("gripper/palm", "cube")),
            "grasp": (-0.25, 2.0 - held[0] - held[1]),
            "lift": (-1.0, 1.0 - progress),
            "success": (10.0, success),
        },
        success=success,
        failure=C.below("cube", -0.1),
        max_steps=max_steps,
        reset=resets.pose("cube", x=(-0.006, 0.006), y=(-0.012, 0.012), yaw=(-0.2, 0.2)),
    )
