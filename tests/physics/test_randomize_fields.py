"""Every field that may be randomized, against MuJoCo with it changed and mj_setConst called.

Each world's model is MuJoCo's field by field, and its acceleration from a random state MuJoCo's.
"""

import copy
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

import alloy
from alloy.physics import forward, io, io_randomize
from alloy.physics.model import Model, make_data, tensor_fields
from alloy.physics.randomize import apply, draw_count
from alloy.scene import Scene
from alloy.scene_randomization import FIELDS, REFUSED
from alloy.scene_targets import targets
from tests.physics.fixture import random_state, tighten

U = (0.0, 1.0, 0.37)  # one draw for each world
WORKSHOP = """
<mujoco>
  <option density="1.2" wind="1 0 0"/>
  <worldbody>
    <geom name="floor" type="plane" size="3 3 1" solref=".03 1" priority="0"/>
    <geom name="shelf" type="box" size=".3 .3 .02" pos="0 0 .3" priority="1"
      solimp=".8 .9 .01 .5 2"/>
    <site name="hook" pos="0 .3 1.4"/>
    <body name="trunk" pos="0 0 .45">
      <freejoint name="root"/>
      <geom name="trunk" type="box" size=".2 .1 .05" solmix="2"/>
      <body name="arm" pos=".2 0 0">
        <joint name="shoulder" type="ball" damping=".1" range="0 .3"/>
        <geom name="arm" type="capsule" fromto="0 0 0 .3 0 0" size=".03" solref=".01 1.2"/>
        <site name="elbow" pos=".1 0 .05"/>
        <body name="hand" pos=".3 0 0">
          <joint name="wrist" axis="0 1 0" range="-.2 .1" margin=".05" frictionloss=".1"
            stiffness="3" actuatorfrcrange="-1 1"/>
          <geom name="hand" size=".05" mass=".4"/>
        </body>
      </body>
    </body>
    <body name="cart" pos="1 0 .5">
      <joint name="rail" type="slide" axis="1 0 0" range="-.1 .1"/>
      <geom name="cart" type="box" size=".1 .1 .1" contype="0" conaffinity="0"/>
      <body name="pole" pos="0 .1 .1">
        <joint name="pivot" axis="0 1 0"/>
        <inertial pos="0 0 .2" mass=".7" diaginertia=".02 .02 .01" quat=".9 .1 .2 .3"/>
        <site name="tip" pos="0 0 .4"/>
      </body>
    </body>
    <body name="gate" pos="-1 0 .5"><joint name="gate" axis="0 0 1"/>
      <geom size=".05 .2 .2" type="box" pos=".3 0 0" contype="0" conaffinity="0"/></body>
  </worldbody>
  <tendon>
    <spatial name="rope" range=".1 .5" limited="true" frictionloss=".2" stiffness="4"
      springlength=".1 .3"><site site="hook"/><site site="tip"/></spatial>
    <fixed name="belt"><joint joint="rail" coef="2"/><joint joint="pivot" coef="-1"/></fixed>
  </tendon>
  <equality>
    <connect name="pin" body1="pole" body2="gate" anchor="0 0 .3"/>
    <weld name="glue" body1="gate" body2="cart"/>
    <weld name="given" body1="hand" body2="cart" relpose="1 0 0 1 0 0 0"/>
    <joint name="cam" joint1="wrist" joint2="pivot" polycoef=".1 .2 .3 0 0"/>
    <tendon name="loop" tendon1="belt" tendon2="rope"/>
  </equality>
  <actuator>
    <position name="servo" joint="wrist" kp="20" kv="2" forcerange="-2 2"/>
    <velocity name="drive" joint="rail" kv="5"/>
    <motor name="motor" joint="pivot" gear="2"/>
    <general name="slow" joint="gate" dyntype="filter" dynprm=".2"/>
    <muscle name="muscle" tendon="rope" lengthrange=".2 2"/>
    <motor name="thruster" site="tip" refsite="hook" gear="1 0 2 0 .5 0"/>
  </actuator>
</mujoco>
"""
MJ = mujoco.MjModel.from_xml_string(WORKSHOP)
SIMPLE = {  # (entity, field, low, high, mode), MuJoCo's field, element and columns there
    "friction": ("trunk", 0.1, 2, "value", "geom_friction", "geom", 0),
    "friction_torsional": ("trunk", 0.1, 2, "scale", "geom_friction", "geom", 1),
    "friction_rolling": ("trunk", 0.1, 2, "add", "geom_friction", "geom", 2),
    "geom_pos": ("trunk", (0, 0, -0.1), (0.1, 0.1, 0.1), "add", "geom_pos", "geom", ...),
    "geom_solref": ("trunk", (0.01, 0.8), (0.05, 1.5), "value", "geom_solref", "geom", ...),
    "geom_solimp": ("hand", (0.7, 0.9, 0.001, 0.4, 2), (0.8, 0.95, 0.01, 0.6, 3), "value",
                    "geom_solimp", "geom", ...),
    "inertia": ("pole", 0.5, 2, "scale", "body_inertia", "body", ...),
    "com": ("hand", (-0.01, 0, 0), (0.01, 0, 0.1), "add", "body_ipos", "body", ...),
    "body_pos": ("pole", (0, 0.1, 0), (0.2, 0.1, 0.3), "value", "body_pos", "body", ...),
    "gravcomp": ("hand", 0, 1, "value", "body_gravcomp", "body", ...),
    "site_pos": ("tip", (-0.1, 0, 0), (0.1, 0.1, 0.1), "add", "site_pos", "site", ...),
    "armature": ("wrist", 0, 0.1, "value", "dof_armature", "dof", ...),
    "damping": ("pivot", 0, 1, "value", "dof_damping", "dof", ...),
    "frictionloss": ("pivot", 0, 1, "value", "dof_frictionloss", "dof", ...),
    "solreffriction": ("wrist", (0.01, 0.8), (0.05, 1.5), "value", "dof_solref", "dof", ...),
    "solimpfriction": ("wrist", (0.8, 0.9, 0.001, 0.5, 2), (0.8, 0.95, 0.01, 0.5, 2), "value",
                       "dof_solimp", "dof", ...),
    "stiffness": ("pivot", 0, 5, "value", "jnt_stiffness", "joint", ...),
    "springref": ("wrist", -1, 1, "add", "qpos_spring", "qpos", ...),
    "joint_range": ("wrist", (-0.2, 0), (0, 0.3), "value", "jnt_range", "joint", ...),
    "actuatorfrcrange": ("wrist", 0.1, 2, "scale", "jnt_actfrcrange", "joint", ...),
    "solreflimit": ("wrist", (0.01, 0.8), (0.05, 1.5), "value", "jnt_solref", "joint", ...),
    "solimplimit": ("wrist", (0.8, 0.9, 0.001, 0.5, 1.5), (0.8, 0.95, 0.1, 0.6, 2.5), "value",
                    "jnt_solimp", "joint", ...),
    "gain": ("motor", 0.5, 2, "scale", "actuator_gainprm", "actuator", 0),
    "gear": ("motor", 1, 3, "value", "actuator_gear", "actuator", 0),
    "forcerange": ("servo", (-2, 0.5), (-1, 1), "value", "actuator_forcerange", "actuator", ...),
    "timeconst": ("slow", 0.1, 0.5, "value", "actuator_dynprm", "actuator", 0),
    "tendon_stiffness": ("belt", 0, 3, "value", "tendon_stiffness", "tendon", ...),
    "tendon_damping": ("*", 0, 3, "value", "tendon_damping", "tendon", ...),
    "tendon_armature": ("*", 0, 0.5, "value", "tendon_armature", "tendon", ...),
    "tendon_frictionloss": ("belt", 0, 3, "value", "tendon_frictionloss", "tendon", ...),
    "tendon_range": ("rope", (-0.1, 0), (0.05, 0.4), "add", "tendon_range", "tendon", ...),
    "tendon_springlength": ("rope", (0.1, 0.3), (0.2, 0.5), "value", "tendon_lengthspring",
                            "tendon", ...),
    "tendon_solreflimit": ("rope", (0.01, 0.8), (0.05, 1.5), "value", "tendon_solref_lim",
                           "tendon", ...),
    "tendon_solimplimit": ("rope", (0.8, 0.9, 0.001, 0.5, 2), (0.8, 0.95, 0.1, 0.5, 2), "value",
                           "tendon_solimp_lim", "tendon", ...),
    "tendon_solreffriction": ("rope", 0.5, 2, "scale", "tendon_solref_fri", "tendon", ...),
    "tendon_solimpfriction": ("rope", (0, 0, 0, 0, 1), (0, 0, 0.1, 0, 1), "add",
                              "tendon_solimp_fri", "tendon", ...),
    "equality_solref": ("pin", (0.01, 0.8), (0.05, 1.5), "value", "eq_solref", "equality", ...),
    "equality_solimp": ("*", (0.8, 0.9, 0.001, 0.5, 1.5), (0.8, 0.95, 0.1, 0.6, 2.5), "value",
                        "eq_solimp", "equality", ...),
    "polycoef": ("cam", (0, 0, 0, 0, 0), (0.5, 0.4, 0.3, 0.2, 0.1), "value", "eq_data", "equality",
                 slice(5)),
    "anchor": ("pin", (-0.1, 0, 0), (0.1, 0.1, 0), "add", "eq_data", "equality", slice(3)),
}  # fmt: skip


def rows(kind: str, entity: str) -> np.ndarray:
    if entity == "*":
        return np.arange({"tendon": MJ.ntendon, "equality": MJ.neq}[kind])
    if kind in ("dof", "qpos"):
        joint = MJ.joint(entity)
        return np.atleast_1d(joint.dofadr if kind == "dof" else joint.qposadr)
    return np.array([getattr(MJ, kind)(entity).id])


def simple(field: str):
    """The call of a row of SIMPLE, and the same change of MuJoCo's model."""
    entity, low, high, mode, name, kind, columns = SIMPLE[field]

    def change(m: mujoco.MjModel, u: float) -> None:
        draw = np.array(low) + (np.array(high) - np.array(low)) * u
        array = getattr(m, name)
        for row in rows(kind, entity):
            at = row if array.ndim == 1 else (row, columns)
            old = array[at]
            array[at] = {"value": draw, "scale": old * draw, "add": old + draw}[mode]

    return [(entity, field, low, high, mode)], change


def turned(kind: str, entity: str):
    low, high = np.array([-0.3, 0, 0.1]), np.array([0.3, 0.2, 0.4])

    def change(m: mujoco.MjModel, u: float) -> None:
        turn, out = np.zeros(4), np.zeros(4)
        vector = low + (high - low) * u
        angle = np.linalg.norm(vector)
        mujoco.mju_axisAngle2Quat(turn, vector / angle, angle)
        quat = getattr(m, f"{kind}_quat")[getattr(m, kind)(entity).id]
        mujoco.mju_mulQuat(out, quat, turn)
        quat[:] = out

    return [(entity, f"{kind}_quat", low, high, "add")], change


def mass(m: mujoco.MjModel, body: int, ratio: float) -> None:
    m.body_mass[body] *= ratio
    m.body_inertia[body] *= ratio


def all_gears(m, u):
    m.actuator_gear[5] *= 0.5 + u


def resized(m, u):
    hand, body = m.geom("hand").id, m.body("hand").id
    ratio = 0.5 + u
    m.geom_size[hand, 0] *= ratio
    m.geom_rbound[hand] *= ratio
    m.body_mass[body] *= ratio**3
    m.body_inertia[body] *= ratio**5


def kp(m, u):
    m.actuator_gainprm[0, 0], m.actuator_biasprm[0, 1] = 10 + u, -10 - u


def kv(m, u):
    m.actuator_gainprm[1, 0], m.actuator_biasprm[1, 2] = 1 + u, -1 - u


HAND, ARM = MJ.body("hand").id, MJ.body("arm").id
CASES = {field: simple(field) for field in SIMPLE} | {
    "geom_quat": turned("geom", "trunk"),
    "body_quat": turned("body", "hand"),
    "site_quat": turned("site", "hook"),
    "size": ([("hand", "size", 0.5, 1.5, "scale")], resized),
    "mass": ([("hand", "mass", 0.5, 1.5, "scale")], lambda m, u: mass(m, HAND, 0.5 + u)),
    "density": ([("hand", "density", 0.5, 1.5, "scale")], lambda m, u: mass(m, HAND, 0.5 + u)),
    "kp": ([("servo", "kp", 10, 11, "value")], kp),
    "kv": ([("drive", "kv", 1, 2, "value")], kv),
    "all gears": ([("thruster", "gear", 0.5, 1.5, "scale")], all_gears),
    "gravity": (
        [("world", "gravity", (0, 0, -10), (1, 0, -9), "value")],
        lambda m, u: m.opt.gravity.__setitem__(slice(None), (u, 0, -10 + u)),
    ),
    "wind": (
        [("world", "wind", (0, 0, -1), (1, 2, 0), "add")],
        lambda m, u: m.opt.wind.__iadd__((u, 2 * u, -1 + u)),
    ),
    "limit of a ball": (
        [("shoulder", "joint_range", (0, 0.1), (0, 0.5), "value")],
        lambda m, u: m.jnt_range.__setitem__(m.joint("shoulder").id, (0, 0.1 + 0.4 * u)),
    ),
}


def randomized(calls: list[tuple]) -> tuple[mujoco.MjModel, Model]:
    """The model of the scene, and one with a world for each draw."""
    scene = Scene.from_mjcf(WORKSHOP)
    for call in calls:
        scene.randomize(*call)
    mj = scene.compile()
    tighten(mj)
    found = targets(mj, scene.randomizations)
    nominal = io_randomize.put_model(mj, found, dtype=torch.float64)
    draws = torch.tensor(U, dtype=torch.float64).unsqueeze(-1).expand(-1, draw_count(found))
    return mj, apply(nominal, found, draws)


def assert_fields(m: Model, models: list[mujoco.MjModel]) -> None:
    """Every field of each world is that of its MuJoCo model; rows aside that only draws bring."""
    for world, mj in enumerate(models):
        expected = io.put_model(mj, dtype=torch.float64)
        for f in tensor_fields(Model):
            ours, theirs = getattr(m, f.name), getattr(expected, f.name)
            if theirs is None or (f.name.startswith("efc_") and ours.shape[1] != theirs.shape[1]):
                continue
            ours, theirs = ours[world if len(ours) > 1 else 0], theirs[0]
            scale = max(1e-9, theirs.abs().max().item() if theirs.numel() else 0)
            assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-9 * scale), (world, f.name)


def assert_acceleration(m: Model, models: list[mujoco.MjModel]) -> None:
    start = []
    for world, mj in enumerate(models):
        start.append(mujoco.MjData(mj))
        random_state(mj, start[-1], np.random.default_rng(world))
        mujoco.mj_forward(mj, start[-1])
    names = ("qpos", "qvel", "act", "ctrl", "qfrc_applied", "xfrc_applied")
    state = {n: torch.tensor(np.stack([getattr(mjd, n) for mjd in start])) for n in names}
    d = forward.forward(m, replace(make_data(m, len(models)), **state))
    for world, mjd in enumerate(start):
        for name in ("qacc", "act_dot"):
            expected = getattr(mjd, name)
            error = np.abs(getattr(d, name)[world].numpy() - expected)
            assert (error <= 1e-6 * (1 + np.abs(expected).max())).all(), (world, name)


@pytest.mark.parametrize("calls, change", CASES.values(), ids=CASES.keys())
def test_a_drawn_field_and_what_follows_from_it_are_mujocos(calls, change):
    mj, m = randomized(calls)
    models = []
    for u in U:
        models.append(copy.copy(mj))
        change(models[-1], u)
        mujoco.mj_setConst(models[-1], mujoco.MjData(models[-1]))
    assert_fields(m, models)
    assert_acceleration(m, models)


def test_every_field_has_a_case():
    assert {call[1] for calls, _ in CASES.values() for call in calls} == set(FIELDS)
    assert not set(REFUSED) & set(FIELDS)


BAD = {
    "timestep": ("world", "timestep", 0.001, 0.002, "value", "for each timestep"),
    "ctrlrange": ("servo", "ctrlrange", 0, 1, "value", "range of actions"),
    "mode of a turn": ("arm", "body_quat", (0, 0, 0), (1, 0, 0), "value", "takes add"),
    "order": ("wrist", "joint_range", (0, 1), (2, 3), "value", "above the second"),
    "order of sums": ("wrist", "joint_range", (0, 0), (1, 0), "add", "may come above"),
    "no limits": ("pivot", "joint_range", (0, 1), (0, 2), "value", "a joint with limits"),
    "no force range": ("motor", "forcerange", 0, 1, "scale", "with a force range"),
    "no filter": ("motor", "timeconst", 0, 1, "value", "with a filter"),
    "floating": ("trunk", "body_pos", (0, 0, 0), (0, 0, 1), "add", "floats"),
    "no polynomial": ("pin", "polycoef", [0] * 5, [1] * 5, "value", "joint or tendon equality"),
    "no connect": ("glue", "anchor", [0] * 3, [1] * 3, "value", "connect of bodies"),
    "shared position": ("*_*", "geom_pos", [0] * 3, [1] * 3, "value", "no entity"),
    "no tendon": ("arm", "tendon_damping", 0, 1, "value", "no tendon to randomize"),
}


@pytest.mark.parametrize("entity, field, low, high, mode, message", BAD.values(), ids=BAD.keys())
def test_what_cannot_be_drawn_is_refused(entity, field, low, high, mode, message):
    scene = Scene.from_mjcf(WORKSHOP)
    with pytest.raises((ValueError, KeyError), match=message):
        scene.randomize(entity, field, low, high, mode)
    assert not scene.randomizations


def test_what_the_options_override_is_not_drawn():
    scene = Scene.from_mjcf(
        WORKSHOP.replace("<option", '<option><flag override="enable"/></option><option')
    )
    for field, low, high in (("friction", 0.1, 0.2), ("geom_solref", (0.01, 1), (0.02, 1))):
        with pytest.raises(ValueError, match=r"'cart' takes the options' values .*override"):
            scene.randomize("cart", field, low, high)


@pytest.mark.slow  # a minute of compiling
def test_all_fields_at_once_in_lanes():
    scene, seen = Scene.from_mjcf(WORKSHOP), set()
    for call in (call for calls, _ in CASES.values() for call in calls):
        if call[:2] not in seen:
            seen.add(call[:2])
            scene.randomize(*call)
    lanes = alloy.build(scene, 4, engine="lanes", seed=1)
    exact = alloy.build(scene, 4, engine="reference", dtype=torch.float64, seed=1)
    for sim in (lanes, exact):
        sim.qvel, sim.ctrl = torch.full((4, sim.model.nv), 0.3), torch.full((4, sim.model.nu), 0.2)
        sim.step(substeps=3)
    assert "programs" in lanes.engine_report()
    error = (lanes.qvel.double() - exact.qvel).abs().max() / exact.qvel.abs().max()
    assert error < 5e-4  # float32, and one draw stiffens a constraint a thousandfold


def test_the_page_lists_every_field():
    page = (Path(__file__).parents[2] / "docs" / "randomization.md").read_text()
    for name, about in FIELDS.items():
        numbers = " or ".join(map(str, about.widths))
        modes = "all" if len(about.modes) == 3 else ", ".join(about.modes)
        row = f"| `{name}` | {about.kind} | {about.doc} | {numbers} | {modes} |"
        assert row in page, row
    for name, why in REFUSED.items():
        assert f"* `{name}`: {why}" in page, name
    exec(page.split("```python\n")[1].split("```")[0], {})
