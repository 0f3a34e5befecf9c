"""Robots written for Alloy: their MJCF texts, and the action terms that drive them.

Both grippers share one hand. Two pads face each other across the palm's y axis, 9 cm apart when
open (finger joints at 0), 5 mm when closed (at 4.25 cm), their lower edges 10 cm below the palm.
Joint positions are zero where the scene puts the palm. Gravity is compensated, so that targets of
zero hold it there. Only the pads collide: with anything but each other.

The numbers hold a 5 cm cube of 0.1 to 0.3 kg at physics steps up to 5 ms, under either friction
cone, with Euler and implicitfast alike (damping is the joints', which both treat implicitly). The
pads' stiff impedance keeps a held cube from creeping: 0.35 mm/s under the pyramidal cone, where
MuJoCo's default impedance gives 2.7 mm/s. Their friction is below MuJoCo's default, so that the
held object's own friction decides (a contact takes the larger of the two).
"""

from __future__ import annotations

from alloy.envs.actions_spec import ActionTerm

CLOSED = 0.0425  # finger travel from open to closed [m]
REACH = 0.10  # from the palm's origin down to the pads' lower edge [m]

_GRIPPER = """<mujoco model="{model}">
  <compiler angle="radian" autolimits="true"/>
  <default>
    <default class="pad">
      <geom type="box" size="0.015 0.006 0.04" mass="0.1" condim="4" friction="0.8 0.01 0.0001"
            solmix="10" solref="0.01 1" solimp="0.99 0.99 0.001" rgba="0.2 0.2 0.2 1"/>
    </default>
    <default class="finger">
      <joint type="slide" range="0 {closed}" damping="12"/>
      <position kp="300" ctrlrange="0 {closed}" forcerange="-8 8"/>
    </default>
    <default class="slide">
      <joint type="slide" damping="40" armature="0.01"/>
      <position kp="800" forcerange="-60 60"/>
    </default>
    <default class="turn">
      <joint type="hinge" damping="1" armature="0.01"/>
      <position kp="25" forcerange="-5 5"/>
    </default>
  </default>
  <worldbody>
    <body name="palm" gravcomp="1">
      {joints}
      <geom name="palm" type="box" size="0.03 0.06 0.02" mass="0.5" contype="0" conaffinity="0"
            rgba="0.7 0.7 0.75 1"/>
      <body name="finger_left" pos="0 0.045 -0.02" gravcomp="1">
        <joint name="finger_left" class="finger" axis="0 -1 0"/>
        <geom name="pad_left" class="pad" pos="0 0.006 -0.04"/>
      </body>
      <body name="finger_right" pos="0 -0.045 -0.02" gravcomp="1">
        <joint name="finger_right" class="finger" axis="0 1 0"/>
        <geom name="pad_right" class="pad" pos="0 -0.006 -0.04"/>
      </body>
    </body>
  </worldbody>
  <contact>
    <exclude body1="finger_left" body2="finger_right"/>
    {excludes}
  </contact>
  <actuator>
    {servos}
    <position name="close_left" joint="finger_left" class="finger"/>
    <position name="close_right" joint="finger_right" class="finger"/>
  </actuator>
</mujoco>
"""

_SLIDE_STEP = 0.01  # target change per control step at an action of 1 [m]; 0.5 m/s at dt = 0.02
_TURN_STEP = 0.05  # [rad]; 2.5 rad/s at dt = 0.02


def _gripper(
    model: str, joints: tuple[tuple[str, str, str, str], ...], meets_world: bool = True
) -> str:
    """MJCF text of the hand on a chain of (name, class, axis, range) joints, each with a servo."""
    apart = () if meets_world else ("finger_left", "finger_right")
    return _GRIPPER.format(
        model=model,
        closed=CLOSED,
        joints="\n      ".join(
            f'<joint name="{name}" class="{kind}" axis="{axis}" range="{span}"/>'
            for name, kind, axis, span in joints
        ),
        servos="\n    ".join(
            f'<position name="{name}" joint="{name}" class="{kind}" ctrlrange="{span}"/>'
            for name, kind, _, span in joints
        ),
        excludes="\n    ".join(f'<exclude body1="world" body2="{name}"/>' for name in apart),
    )


def gantry_gripper() -> str:
    """MJCF text of a two-finger gripper that moves along x, y, z and turns about z.

    Bodies `palm finger_left finger_right`; joints `x y z yaw finger_left finger_right`; position
    actuators `x y z yaw close_left close_right`. Targets: x, y within 0.3 m, z from -0.1 (with the
    palm put 0.2 m above the ground, the pads then just reach it) to 0.3 m, yaw within 1.6 rad.
    """
    return _gripper(
        "gantry_gripper",
        (
            ("x", "slide", "1 0 0", "-0.3 0.3"),
            ("y", "slide", "0 1 0", "-0.3 0.3"),
            ("z", "slide", "0 0 1", "-0.1 0.3"),
            ("yaw", "turn", "0 0 1", "-1.6 1.6"),
        ),
    )


def lift_gripper() -> str:
    """MJCF text of the same two-finger hand that only moves up and down.

    Bodies `palm finger_left finger_right`; joints `lift finger_left finger_right`; position
    actuators `lift close_left close_right`. Targets of lift: -0.1 to 0.3 m, where the pads end on
    the ground if the palm is put 0.2 m above it. They never touch what is fixed in the world: a
    third fewer constraint rows than a check for contacts that its range rules out.
    """
    joints = (("lift", "slide", "0 0 1", "-0.1 0.3"),)
    return _gripper("lift_gripper", joints, meets_world=False)


def gantry_actions(entity: str, yaw: bool = True) -> tuple[ActionTerm, ...]:
    """Actions of a `gantry_gripper` that the scene calls `entity`.

    `x y z` (and `yaw`) move the targets by up to 1 cm (0.05 rad) per control step; `close` goes
    from open at -1 to closed at 1 and drives both fingers.

    Args:
        entity: the robot's name in the scene.
        yaw: whether the hand may turn; False leaves yaw at its target of zero.
    """
    slides = tuple(_delta(entity, axis, _SLIDE_STEP) for axis in "xyz")
    turn = (_delta(entity, "yaw", _TURN_STEP),) if yaw else ()
    fingers = (f"{entity}/close_left", f"{entity}/close_right")
    return (*slides, *turn, ActionTerm(f"{entity}/close", fingers, low=0.0, high=CLOSED))


def lift_actions(entity: str) -> tuple[ActionTerm, ...]:
    """Actions `lift close_left close_right` of a `lift_gripper` that the scene calls `entity`.

    `lift` moves its target by up to 1 cm per control step; each `close` goes from open at -1 to
    closed at 1.
    """
    fingers = (f"{entity}/close_left", f"{entity}/close_right")
    return (
        _delta(entity, "lift", _SLIDE_STEP),
        *(ActionTerm(name, (name,), low=0.0, high=CLOSED) for name in fingers),
    )


def _delta(entity: str, actuator: str, scale: float) -> ActionTerm:
    name = f"{entity}/{actuator}"
    return ActionTerm(name, (name,), mode="delta", scale=scale)
