"""Unitree Go2 as an MJCF text: primitive shapes, figures of the maker's description (BSD-3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

Vec = tuple[float, ...]

LEGS = ("FL", "FR", "RL", "RR")
JOINTS = tuple(f"{leg}_{part}" for leg in LEGS for part in ("hip", "thigh", "calf"))
STANDING = dict(zip(JOINTS, (0.0, 0.9, -1.8) * 4, strict=True))  # joint angles [rad]
STANDING_HEIGHT = 0.27  # of the trunk's centre [m] in that pose
TORQUE = {"hip": 23.7, "thigh": 23.7, "calf": 45.43}  # [N m]
RANGE = {
    "hip": (-1.0472, 1.0472),
    "front thigh": (-1.5708, 3.4907),
    "rear thigh": (-0.5236, 4.5379),
    "calf": (-2.7227, -0.83776),
}  # [rad]

# mass [kg], centre of mass [m], principal moments [kg m^2], their frame (w x y z)
_Inertial = tuple[float, Vec, Vec, Vec]
_BASE: _Inertial = (
    6.921,
    (0.021112, 0, -0.005366),
    (0.107027, 0.0980771, 0.0244531),
    (-0.000543471, 0.713435, -0.00173769, 0.700719),
)
_HIP: _Inertial = (
    0.678,
    (-0.0054, 0.00194, -0.000105),
    (0.00088403, 0.000596003, 0.000479967),
    (0.497014, 0.499245, 0.505462, 0.498237),
)
_THIGH: _Inertial = (
    1.152,
    (-0.00374, -0.0223, -0.0327),
    (0.00594973, 0.00584149, 0.000878787),
    (0.829533, 0.0847635, -0.0200632, 0.551623),
)
_CALF: _Inertial = (
    0.241352,
    (0.00629595, -0.000622121, -0.141417),
    (0.0014901, 0.00146356, 5.31397e-05),
    (0.710672, 0.00154099, -0.00450087, 0.703508),
)
COLLISION = ("feet", "trunk", "hips", "thighs", "calves")


def _text(values: Sequence[float]) -> str:
    return " ".join(f"{v:.9g}" for v in values)


def _mirrored(inertial: _Inertial, front: bool, left: bool, swap_x: bool) -> _Inertial:
    """The inertial frame of the same part on another leg.

    A reflection through the plane across one axis keeps that component of a rotation vector and
    turns the others round; the centre of mass changes that coordinate's sign.
    """
    mass, pos, moments, (w, x, y, z) = inertial
    if not left:
        pos, (w, x, y, z) = (pos[0], -pos[1], pos[2]), (w, -x, y, -z)
    if not front and swap_x:
        pos, (w, x, y, z) = (-pos[0], pos[1], pos[2]), (w, x, -y, -z)
    return mass, pos, moments, (w, x, y, z)


def _inertial(inertial: _Inertial) -> str:
    mass, pos, moments, quat = inertial
    norm = math.sqrt(sum(v * v for v in quat))
    return (
        f'<inertial mass="{mass:g}" pos="{_text(pos)}" diaginertia="{_text(moments)}" '
        f'quat="{_text([v / norm for v in quat])}"/>'
    )


def _geom(name: str, part: str, collision: Sequence[str], shape: str) -> str:
    """A shape that touches the ground if its part was asked for, and is to be seen otherwise."""
    solid = "solid" if part in collision else "seen"
    return f'<geom name="{name}" class="{solid}" {shape}/>'


def _leg(leg: str, collision: Sequence[str]) -> str:
    front, left = leg[0] == "F", leg[1] == "L"
    x, y = (1 if front else -1), (1 if left else -1)
    thigh_range = RANGE["front thigh" if front else "rear thigh"]

    def part(inertial: _Inertial, swap_x: bool = False) -> str:
        return _inertial(_mirrored(inertial, front, left, swap_x))

    def joint(name: str, axis: str, limits: tuple[float, float]) -> str:
        return f'<joint name="{leg}_{name}" axis="{axis}" range="{_text(limits)}"/>'

    hip = _geom(
        f"{leg}_hip", "hips", collision,
        f'type="cylinder" size="0.046 0.02" pos="0 {0.08 * y:g} 0" euler="1.5707963 0 0"',
    )  # fmt: skip
    thigh = _geom(
        f"{leg}_thigh", "thighs", collision,
        'type="box" size="0.1065 0.01225 0.017" pos="0 0 -0.1065" euler="0 1.5707963 0"',
    )  # fmt: skip
    upper = _geom(
        f"{leg}_calf_upper", "calves", collision,
        'type="capsule" size="0.013" fromto="0 0 -0.02 0.008 0 -0.12"',
    )  # fmt: skip
    lower = _geom(
        f"{leg}_calf_lower", "calves", collision,
        'type="capsule" size="0.011" fromto="0.008 0 -0.12 -0.002 0 -0.195"',
    )  # fmt: skip
    foot = _geom(
        f"{leg}_foot", "feet", collision, 'type="sphere" size="0.022" pos="-0.002 0 -0.213"'
    )
    return f"""
      <body name="{leg}_hip" pos="{0.1934 * x:g} {0.0465 * y:g} 0">
        {part(_HIP, swap_x=True)}
        {joint("hip", "1 0 0", RANGE["hip"])}
        {hip}
        <body name="{leg}_thigh" pos="0 {0.0955 * y:g} 0">
          {part(_THIGH)}
          {joint("thigh", "0 1 0", thigh_range)}
          {thigh}
          <body name="{leg}_calf" pos="0 0 -0.213">
            {part(_CALF)}
            {joint("calf", "0 1 0", RANGE["calf"])}
            {upper}
            {lower}
            {foot}
            <site name="{leg}_foot" pos="-0.002 0 -0.213"/>
          </body>
        </body>
      </body>"""


def _actuator(name: str, kp: float, kd: float) -> str:
    limit = TORQUE[name.split("_")[1]]
    return (
        f'<position name="{name}" joint="{name}" kp="{kp:g}" kv="{kd:g}" '
        f'forcerange="{-limit:g} {limit:g}" inheritrange="1"/>'
    )


def _check(**figures: float) -> None:
    for name, value in figures.items():
        if not isinstance(value, Real) or not 0.0 <= value < math.inf:
            raise ValueError(f"{name} must be a number of at least 0, not {value!r}")


def go2(
    kp: float = 35.0,
    kd: float = 0.6,
    *,
    armature: float = 0.01,
    damping: float = 0.1,
    frictionloss: float = 0.2,
    friction: float = 0.8,
    collision: Sequence[str] = ("feet", "trunk"),
) -> str:
    """The MJCF text of a Unitree Go2: 12 joints with position actuators, base on a free joint.

    Args:
        kp: position gain of every actuator [N m / rad].
        kd: velocity gain [N m s / rad].
        armature: of every joint [kg m^2].
        damping: of every joint [N m s / rad].
        frictionloss: of every joint [N m].
        friction: sliding friction coefficient of the feet.
        collision: parts that touch the ground, of feet, trunk, hips, thighs and calves. No part
            touches another one of the robot.

    Returns:
        A model without a ground: put it into a scene with `Scene.add_robot`, or use it alone.
        Keyframe "stand" holds the standing pose.

    Raises:
        ValueError: an unknown part, or a figure that is no number of at least 0.
    """
    _check(kp=kp, kd=kd, armature=armature, damping=damping)
    _check(frictionloss=frictionloss, friction=friction)
    unknown = [part for part in collision if part not in COLLISION]
    if unknown:
        raise ValueError(f"collision has {unknown}; the parts are {list(COLLISION)}")
    trunk = _geom("trunk", "trunk", collision, 'type="box" size="0.1881 0.04675 0.057"')
    legs = "".join(_leg(leg, collision) for leg in LEGS)
    actuators = "\n    ".join(_actuator(name, kp, kd) for name in JOINTS)
    pose = _text(list(STANDING.values()))
    return f"""<mujoco model="go2">
  <compiler angle="radian" autolimits="true"/>
  <default>
    <joint armature="{armature:g}" damping="{damping:g}" frictionloss="{frictionloss:g}"/>
    <geom rgba="0.75 0.75 0.78 1"/>
    <default class="solid">
      <geom contype="0" conaffinity="1" condim="3" friction="{friction:g} 0.02 0.01"/>
    </default>
    <default class="seen"><geom contype="0" conaffinity="0"/></default>
  </default>
  <worldbody>
    <body name="base" pos="0 0 {STANDING_HEIGHT:g}">
      {_inertial(_BASE)}
      <freejoint name="base"/>
      <camera name="track" mode="trackcom" pos="0.6 -1.6 0.45" xyaxes="1 0.35 0 -0.08 0.22 1"/>
      <light name="lamp" mode="trackcom" pos="0.5 -1 3" dir="-0.1 0.3 -1"/>
      {trunk}
      <site name="imu" pos="-0.02557 0 0.04232"/>{legs}
    </body>
  </worldbody>
  <actuator>
    {actuators}
  </actuator>
  <sensor>
    <gyro name="imu_gyro" site="imu"/>
    <framequat name="imu_quat" objtype="site" objname="imu"/>
  </sensor>
  <keyframe>
    <key name="stand" qpos="0 0 {STANDING_HEIGHT:g} 1 0 0 0 {pose}" ctrl="{pose}"/>
  </keyframe>
</mujoco>
"""
