"""The grippers' MJCF texts: names, neutrality, and a grasp in MuJoCo C itself."""

import mujoco
import numpy as np
import pytest

from alloy.envs.actions_spec import ActionTerm
from alloy.envs.robots import CLOSED, gantry_actions, gantry_gripper, lift_actions, lift_gripper
from alloy.scene import Scene


def grasp_scene(robot: str, physics_dt: float | None = None, **cube) -> Scene:
    scene = Scene(dt=0.02, physics_dt=physics_dt)
    scene.add_ground()
    scene.add_box("cube", size=(0.05, 0.05, 0.05), **{"pos": (0, 0, 0.025), "mass": 0.1} | cube)
    scene.add_robot("gripper", mjcf=robot, pos=(0, 0, 0.2))
    return scene


def grasp(scene: Scene, actions: tuple[ActionTerm, ...], down: str) -> mujoco.MjData:
    """Go down, close, and go up by constant actions of 1 or -1; the state after 3 s."""
    m = scene.compile()
    d = mujoco.MjData(m)
    for step in range(150):
        for action in actions:
            away = -1.0 if step < 20 else (0.0 if step < 35 else 1.0)
            value = away if action.name == down else (1.0 if step >= 20 else -1.0)
            if action.mode == "delta" and action.name != down:
                value = 0.0
            for name in action.actuators:
                low, high = m.actuator(name).ctrlrange
                ctrl = d.actuator(name).ctrl
                if action.mode == "delta":
                    ctrl[:] = np.clip(ctrl + action.scale * value, low, high)
                else:
                    ctrl[:] = action.low + (value + 1) / 2 * (action.high - action.low)
        for _ in range(scene.substeps):
            mujoco.mj_step(m, d)
    mujoco.mj_forward(m, d)
    return d


GANTRY = (gantry_gripper(), gantry_actions("gripper"), "gripper/z")
LIFT = (lift_gripper(), lift_actions("gripper"), "gripper/lift")


@pytest.mark.parametrize("robot, actions, down", [GANTRY, LIFT], ids=["gantry", "lift"])
@pytest.mark.parametrize(
    "cube",
    [{}, {"mass": 0.3, "friction": 0.6}, {"pos": (0.01, 0.01, 0.025)},
     {"quat": (0.988771, 0, 0, 0.149438)}],
    ids=["plain", "heavy", "off", "turned"],
)  # fmt: skip
def test_a_cube_is_lifted_and_stays_upright(robot, actions, down, cube):
    scene = grasp_scene(robot, **cube)
    assert scene.physics_dt == 0.005
    d = grasp(scene, actions, down)
    assert d.body("cube").xpos[2] > 0.025 + 0.3
    assert d.body("cube").xmat[8] > 0.99
    assert np.abs(d.joint("cube").qvel).max() < 0.05


@pytest.mark.parametrize("integrator", ["Euler", "implicitfast"])
@pytest.mark.parametrize("cone, impratio", [("pyramidal", 1), ("elliptic", 10)])
@pytest.mark.parametrize("physics_dt", [0.002, 0.005])
def test_the_grasp_holds_under_any_options(integrator, cone, impratio, physics_dt):
    scene = grasp_scene(gantry_gripper(), physics_dt)
    scene.spec.option.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator.upper()}")
    scene.spec.option.cone = getattr(mujoco.mjtCone, f"mjCONE_{cone.upper()}")
    scene.spec.option.impratio = impratio
    d = grasp(scene, *GANTRY[1:])
    assert d.body("cube").xpos[2] > 0.025 + 0.3
    assert d.body("cube").xmat[8] > 0.99


def test_a_held_cube_hardly_creeps():
    scene = grasp_scene(gantry_gripper())
    d = grasp(scene, *GANTRY[1:])
    before = d.body("cube").xpos[2] - d.body("gripper/palm").xpos[2]
    for _ in range(200):  # 1 s
        mujoco.mj_step(d.model, d)
    after = d.body("cube").xpos[2] - d.body("gripper/palm").xpos[2]
    assert abs(after - before) < 0.0005


def test_names():
    m = grasp_scene(gantry_gripper()).compile()
    joints = [m.joint(i).name for i in range(m.njnt)]
    assert joints[1:] == [
        f"gripper/{name}" for name in ("x", "y", "z", "yaw", "finger_left", "finger_right")
    ]
    assert m.body("gripper/palm").parentid == 0
    m = grasp_scene(lift_gripper()).compile()
    assert [m.joint(i).name for i in range(1, m.njnt)] == [
        "gripper/lift", "gripper/finger_left", "gripper/finger_right",
    ]  # fmt: skip
    assert [m.actuator(i).name for i in range(m.nu)] == [a.name for a in lift_actions("gripper")]


def test_action_terms():
    names = [a.name for a in gantry_actions("gripper", yaw=False)]
    assert names == ["gripper/x", "gripper/y", "gripper/z", "gripper/close"]
    assert [a.name for a in gantry_actions("g")] == ["g/x", "g/y", "g/z", "g/yaw", "g/close"]
    close = gantry_actions("gripper")[-1]
    assert close.actuators == ("gripper/close_left", "gripper/close_right")
    assert (close.mode, close.low, close.high) == ("target", 0.0, CLOSED)
    m = grasp_scene(gantry_gripper()).compile()
    for action in gantry_actions("gripper"):
        for actuator in action.actuators:
            assert m.actuator(actuator).ctrlrange[0] <= (action.low or 0.0)


def test_zero_targets_hold_the_palm_still():
    scene = grasp_scene(gantry_gripper())
    m = scene.compile()
    d = mujoco.MjData(m)
    for _ in range(400):
        mujoco.mj_step(m, d)
    assert np.allclose(d.body("gripper/palm").xpos, (0, 0, 0.2), atol=1e-6)


def test_only_pads_touch_the_world():
    scene = grasp_scene(gantry_gripper(), pos=(0, 0, 0.17))  # the cube starts inside the palm
    m = scene.compile()
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    assert d.ncon == 0
    d.joint("gripper/finger_left").qpos = d.joint("gripper/finger_right").qpos = 0.06
    mujoco.mj_forward(m, d)
    pads = {m.geom("gripper/pad_left").id, m.geom("gripper/pad_right").id}
    assert d.ncon > 0
    assert all({int(c.geom1), int(c.geom2)} != pads for c in d.contact)


@pytest.mark.parametrize("robot, expected", [(gantry_gripper(), 2), (lift_gripper(), 0)])
def test_pads_of_the_lift_pass_by_the_ground(robot, expected):
    scene = Scene(dt=0.02)
    scene.add_ground()
    scene.add_robot("gripper", robot, pos=(0, 0, 0.095))  # pads 5 mm deep in the ground
    m = scene.compile()
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    pads = {(int(c.geom1), int(c.geom2)) for c in d.contact}
    assert len(pads) == expected


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"actuators": ()}, "drives no actuator"),
        ({"mode": "speed"}, "'target' or 'delta'"),
        ({"low": 1.0, "high": 1.0}, "not below"),
        ({"scale": float("nan")}, "finite"),
    ],
)
def test_an_action_term_that_cannot_drive_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        ActionTerm(**{"name": "a", "actuators": ("a",)} | fields)
