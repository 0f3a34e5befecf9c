"""Randomized models against MuJoCo's: each world equals a model compiled with its values."""

import copy

import mujoco
import numpy as np
import pytest
import torch

from alloy.envs.robots import gantry_gripper
from alloy.physics import forward, io, io_randomize
from alloy.physics.model import Model, make_data, tensor_fields
from alloy.physics.randomize import apply, draw_count, put_worlds
from alloy.scene import Scene
from alloy.scene_targets import targets
from tests.physics.fixture import GYM_ASSETS

U = torch.tensor([0.0, 1.0, 0.3, 0.71], dtype=torch.float64)  # one draw for each world
MENAGERIE = """
<mujoco>
  <option timestep="0.004" gravity="0 0 -9.81"/>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1" friction="0.4"/>
    <body name="trunk" pos="0 0 1">
      <freejoint name="root"/>
      <geom name="trunk" type="box" size=".2 .1 .05" density="700"/>
      <body name="arm" pos=".2 0 0">
        <joint name="shoulder" type="ball" damping=".1"/>
        <geom name="arm" type="capsule" fromto="0 0 0 .3 0 0" size=".03"/>
        <body name="hand" pos=".3 0 0">
          <joint name="wrist" axis="0 1 0" range="-1 1" frictionloss=".1" stiffness="3"/>
          <geom name="hand" size=".05"/>
          <geom name="thumb" size=".02" pos=".05 0 .05"/>
        </body>
      </body>
    </body>
    <body name="cart" pos="1 0 .5">
      <joint name="rail" type="slide" axis="1 0 0"/>
      <geom name="cart" type="box" size=".1 .1 .1" contype="0" conaffinity="0"/>
      <body name="pole">
        <joint name="pivot" axis="0 1 0"/>
        <inertial pos="0 0 .2" mass=".7" diaginertia=".02 .02 .01" quat=".9 .1 .2 .3"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position name="servo" joint="wrist" kp="20" kv="2"/>
    <velocity name="drive" joint="rail" kv="5"/>
    <motor name="motor" joint="pivot" gear="2"/>
  </actuator>
</mujoco>
"""


def randomized(scene: Scene, dtype: torch.dtype = torch.float64) -> tuple[Model, Model]:
    """The nominal model of a scene and the one with a world for each draw of U."""
    mj = scene.compile()
    found = targets(mj, scene.randomizations)
    m = io_randomize.put_model(mj, found, dtype=dtype)
    draws = U.to(dtype).unsqueeze(-1).expand(-1, draw_count(found))
    return m, apply(m, found, draws)


def assert_worlds(m: Model, models: list[mujoco.MjModel], rtol: float = 1e-9) -> None:
    """Every field of world w equals that of the w-th MuJoCo model."""
    for world, mj in enumerate(models):
        expected = io.put_model(mj, dtype=torch.float64)
        for f in tensor_fields(Model):
            ours, theirs = getattr(m, f.name), getattr(expected, f.name)
            if theirs is None:
                assert ours is None, f.name
                continue
            theirs = theirs[0]
            ours = ours[world if len(ours) > 1 else 0].double()
            scale = max(1e-9, theirs.abs().max().item() if theirs.numel() else 0)
            assert torch.allclose(ours, theirs, rtol=rtol, atol=rtol * scale), (world, f.name)


def lerp(low: float, high: float) -> list[float]:
    return [low + (high - low) * u for u in U.tolist()]


SHAPES = {
    "sphere": (0.1,),
    "capsule": (0.05, 0.3),
    "cylinder": (0.1, 0.3),
    "box": ((0.1, 0.2, 0.3),),
    "ellipsoid": ((0.1, 0.2, 0.3),),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_size_density_and_friction_are_as_compiled(shape):
    def scene(factor: float, density: float, friction: float) -> Scene:
        made = Scene(dt=0.01)
        made.add_ground(friction=0.5)
        size = [np.multiply(s, factor) for s in SHAPES[shape]]
        getattr(made, f"add_{shape}")("it", *size, density=density, friction=friction)
        made.add_sphere("other", 0.1, pos=(1, 0, 0))
        if shape in ("cylinder", "ellipsoid"):  # no collider needed to compare masses
            for geom in made.spec.geoms:
                geom.contype = geom.conaffinity = 0
        return made

    nominal = scene(1, 500, 1)
    nominal.randomize("it", "friction", 0.2, 0.8)
    nominal.randomize("it", "density", 400, 900)
    nominal.randomize("it", "size", 0.5, 1.5, mode="scale")
    _, m = randomized(nominal)
    values = zip(lerp(0.5, 1.5), lerp(400, 900), lerp(0.2, 0.8), strict=True)
    assert_worlds(m, [scene(*v).compile() for v in values])


def test_sizes_by_component():
    scene = Scene(dt=0.01)
    scene.add_box("box", (0.1, 0.1, 0.1))
    scene.add_capsule("rod", radius=0.1, length=0.2)
    scene.add_sphere("ball", 0.1)
    scene.randomize("box", "size", (0.1, 0.2, 0.3), (0.2, 0.2, 0.4))
    scene.randomize("rod", "size", (0.0, -0.1), (0.1, 0.1), mode="add")
    scene.randomize("ball", "size", 0.05, 0.2)
    _, m = randomized(scene)
    models = []
    for u in U.tolist():
        one = Scene(dt=0.01)
        one.add_box("box", (0.1 + 0.1 * u, 0.2, 0.3 + 0.1 * u))
        one.add_capsule("rod", radius=0.1 + 0.1 * u, length=0.1 + 0.2 * u)
        one.add_sphere("ball", 0.05 + 0.15 * u)
        models.append(one.compile())
    assert_worlds(m, models)


def test_a_drawn_mass_is_the_mass_whatever_the_size():
    scene = Scene(dt=0.01)
    scene.add_sphere("ball", 0.1)
    scene.randomize("ball", "mass", 1, 2)
    scene.randomize("ball", "size", 0.1, 0.2)
    _, m = randomized(scene)
    models = []
    for u in U.tolist():
        one = Scene(dt=0.01)
        one.add_sphere("ball", 0.1 + 0.1 * u, mass=1 + u)
        models.append(one.compile())
    assert_worlds(m, models)


def set_const(mj: mujoco.MjModel, change) -> list[mujoco.MjModel]:
    """A copy of a model for each draw, changed and with MuJoCo's own constants."""
    models = []
    for u in U.tolist():
        models.append(copy.copy(mj))
        change(models[-1], u)
        mujoco.mj_setConst(models[-1], mujoco.MjData(models[-1]))
    return models


def scale_mass(m: mujoco.MjModel, bodies: list[int], ratio: float) -> None:
    m.body_mass[bodies] *= ratio
    m.body_inertia[bodies] *= ratio


def menagerie_cases() -> dict:
    mj = mujoco.MjModel.from_xml_string(MENAGERIE)
    body = {mj.body(i).name: i for i in range(mj.nbody)}
    dof = {mj.joint(i).name: list(range(mj.nv))[mj.jnt_dofadr[i] :] for i in range(mj.njnt)}
    servo, drive, motor = range(3)
    arms = [body["arm"], body["hand"]]

    def kv(m, u):
        m.actuator_biasprm[:2, 2] *= 0.5 + u
        m.actuator_gainprm[drive, 0] *= 0.5 + u

    def kp(m, u):
        m.actuator_gainprm[servo, 0] = 10 + u
        m.actuator_biasprm[servo, 1] = -10 - u

    def gravity(m, u):
        m.opt.gravity[:] = (u, 0, -10 + u)

    return {
        "mass": (
            [("arm", "mass", 1, 3, "value")],
            lambda m, u: scale_mass(m, arms[:1], (1 + 2 * u) / mj.body_mass[arms[0]]),
        ),
        "masses": (
            [("[ah]*", "mass", 10, 20, "value")],
            lambda m, u: scale_mass(m, arms, (10 + 10 * u) / mj.body_mass[arms].sum()),
        ),
        "more mass": (
            [("hand", "mass", -0.5, 0.5, "add")],
            lambda m, u: scale_mass(m, arms[1:], 1 + (u - 0.5) / mj.body_mass[arms[1]]),
        ),
        "explicit inertia": (
            [
                ("pole", "mass", 0.5, 1.5, "scale"),
                ("pole", "com", (0, 0, -0.1), (0, 0.1, 0), "add"),
            ],
            lambda m, u: (
                scale_mass(m, [body["pole"]], 0.5 + u),
                m.body_ipos.__setitem__(body["pole"], (0, 0.1 * u, 0.2 - 0.1 + 0.1 * u)),
            ),
        ),
        "armature": (
            [("wrist", "armature", 0, 0.1, "value"), ("root", "armature", 0.1, 0.2, "add")],
            lambda m, u: m.dof_armature.__setitem__(
                [*range(6), *dof["wrist"][:1]], [0.1 + 0.1 * u] * 6 + [0.1 * u]
            ),
        ),
        "kv": ([("servo", "kv", 0.5, 1.5, "scale"), ("drive", "kv", 0.5, 1.5, "scale")], kv),
        "kp": ([("servo", "kp", 10, 11, "value")], kp),
        "gain": (
            [("motor", "gain", 1, 3, "value")],
            lambda m, u: m.actuator_gainprm.__setitem__((motor, 0), 1 + 2 * u),
        ),
        "friction": (
            [
                ("hand", "friction", 0, 1, "add"),
                ("hand", "friction_torsional", 0, 1, "add"),
                ("hand", "friction_rolling", 0, 1, "add"),
            ],
            lambda m, u: m.geom_friction.__setitem__(
                [m.geom("hand").id, m.geom("thumb").id],
                m.geom_friction[[m.geom("hand").id, m.geom("thumb").id]] + u,
            ),
        ),
        "gravity": ([("world", "gravity", (0, 0, -10), (1, 0, -9), "value")], gravity),
        "weaker gravity": (
            [("world", "gravity", 0, 1, "scale")],
            lambda m, u: m.opt.gravity.__imul__(u),
        ),
        "fall": (
            [("world", "gravity", -10, -9, "value")],
            lambda m, u: m.opt.gravity.__setitem__(2, -10 + u),
        ),
        "joint": (
            [
                ("wrist", "stiffness", 1, 2, "value"),
                ("shoulder", "damping", 0, 1, "add"),
                ("wrist", "frictionloss", 0.5, 1.5, "scale"),
            ],
            lambda m, u: (
                m.jnt_stiffness.__setitem__(m.joint("wrist").id, 1 + u),
                m.dof_damping.__setitem__(dof["shoulder"][:3], 0.1 + u),
                m.dof_frictionloss.__setitem__(dof["wrist"][:1], 0.1 * (0.5 + u)),
            ),
        ),
        "untouched": ([("*a*", "mass", 1, 1, "scale")], lambda m, u: None),
    }


CASES = menagerie_cases()


@pytest.mark.parametrize("calls, change", CASES.values(), ids=CASES.keys())
def test_fields_are_as_set_and_derived_by_mujoco(calls, change):
    scene = Scene.from_mjcf(MENAGERIE)
    for call in calls:
        scene.randomize(*call)
    _, m = randomized(scene)
    assert_worlds(m, set_const(scene.compile(), change))


@pytest.mark.parametrize("name", ["half_cheetah", "ant", "humanoid", "inverted_pendulum"])
def test_inverse_weights_of_whole_robots(name):
    scene = Scene.from_mjcf(GYM_ASSETS / f"{name}.xml")
    scene.randomize("*", "mass", 0.5, 2, mode="scale")
    scene.randomize("*", "armature", 0.01, 0.1, mode="add")
    _, m = randomized(scene)

    def change(mj, u):
        scale_mass(mj, list(range(mj.nbody)), 0.5 + 1.5 * u)
        mj.dof_armature[:] += 0.01 + 0.09 * u

    assert_worlds(m, set_const(scene.compile(), change))


def gripper_scene() -> Scene:
    scene = Scene(dt=0.02)
    scene.add_ground()
    scene.add_box("cube", (0.05, 0.05, 0.05), pos=(0, 0, 0.025), mass=0.1)
    scene.add_robot("gripper", gantry_gripper(), pos=(0, 0, 0.2))
    scene.randomize("cube", "size", 0.04, 0.06)
    scene.randomize("cube", "friction", 0.5, 1.2)
    scene.randomize("gripper", "mass", 0.8, 1.2, mode="scale")
    scene.randomize("gripper", "kp", 0.8, 1.2, mode="scale")
    return scene


def test_float32_and_layout():
    nominal, m = randomized(gripper_scene(), torch.float32)
    _, exact = randomized(gripper_scene(), torch.float64)
    for f in tensor_fields(Model):
        ours, theirs = getattr(m, f.name), getattr(exact, f.name)
        assert ours.dtype == torch.float32, f.name
        if ours.numel():
            error = (ours.double() - theirs).abs().max() / theirs.abs().max().clamp(min=1e-6)
            assert error < 1e-5, f.name
    assert m.body_mass.stride() == (1, len(U))
    assert m.jnt_range is nominal.jnt_range  # what is not drawn stays shared


def test_nothing_compounds_and_worlds_are_independent():
    scene = gripper_scene()
    nominal, once = randomized(scene)
    found = targets(scene.compile(), scene.randomizations)
    before = {f.name: getattr(nominal, f.name).clone() for f in tensor_fields(Model)}
    draws = U.unsqueeze(-1).expand(-1, draw_count(found))
    apply(nominal, found, 1 - draws)
    again, last = apply(nominal, found, draws), apply(nominal, found, draws[-1:])
    for f in tensor_fields(Model):
        assert torch.equal(before[f.name], getattr(nominal, f.name)), f.name
        assert torch.equal(getattr(again, f.name), getattr(once, f.name)), f.name
        assert torch.allclose(getattr(last, f.name), getattr(once, f.name)[-1:], rtol=1e-12)
    with pytest.raises(ValueError, match=rf"expected shape \(W, {draw_count(found)}\)"):
        apply(nominal, found, draws[:, :-1])
    assert apply(nominal, [], draws[:, :0]) is nominal


@pytest.mark.parametrize("drawn", [[2, 0], [3], [0, 1, 2, 3], []])
def test_some_worlds_are_drawn_anew(drawn):
    scene = gripper_scene()
    nominal, m = randomized(scene)
    found = targets(scene.compile(), scene.randomizations)
    draws = U.unsqueeze(-1).repeat(1, draw_count(found))
    worlds = torch.tensor(drawn, dtype=torch.int64)
    draws[worlds] = 0.5 * draws[worlds] + 0.1
    mended = put_worlds(m, worlds, apply(nominal, found, draws[worlds]))
    expected = apply(nominal, found, draws)
    for f in tensor_fields(Model):
        ours, theirs = getattr(mended, f.name), getattr(expected, f.name)
        assert ours.stride() == theirs.stride(), f.name
        assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-15), f.name


def test_a_step_with_what_was_zero_before():
    """Springs, dampers and friction losses that only randomization brings to life."""
    text = MENAGERIE
    for name in ('stiffness="3"', 'frictionloss=".1"', 'damping=".1"'):
        text = text.replace(name, "")
    scene = Scene.from_mjcf(text)
    scene.randomize("wrist", "stiffness", 0, 5)
    scene.randomize("root", "damping", 0, 1)
    scene.randomize("pivot", "frictionloss", 0, 0.1)
    nominal, m = randomized(scene)
    for field in ("jnt_stiffness", "dof_damping", "dof_frictionloss"):
        assert not getattr(nominal, field).any()
    d = make_data(m, len(U))
    d.qvel.copy_(torch.linspace(-0.5, 0.7, m.nv).expand_as(d.qvel))
    d.qpos[:, -3:] += 0.1
    for _ in range(5):
        d = forward.step(m, d)
    for world, u in enumerate(U.tolist()):
        mj = scene.compile()
        mj.jnt_stiffness[mj.joint("wrist").id] = 5 * u
        mj.dof_damping[:6] = u
        mj.dof_frictionloss[mj.joint("pivot").dofadr] = 0.1 * u
        mjd = mujoco.MjData(mj)
        mjd.qvel[:] = np.linspace(-0.5, 0.7, mj.nv)
        mjd.qpos[-3:] += 0.1
        for _ in range(5):
            mujoco.mj_step(mj, mjd)
        assert np.allclose(d.qpos[world].numpy(), mjd.qpos, rtol=0, atol=1e-7), world


def test_tendons_and_muscles_follow_a_drawn_mass():
    text = """<mujoco><worldbody><site name="p" pos="0 0 1"/>
      <body><joint name="j" axis="0 1 0"/><geom size=".1" mass="2" pos=".2 0 0"/>
        <site name="q" pos=".2 0 .1"/>
        <body name="fore" pos=".4 0 0"><joint name="k" axis="0 1 0"/>
          <geom name="rod" size=".1" mass="1" pos=".1 0 0"/></body></body></worldbody>
      <tendon><spatial name="rope" range="0 1" frictionloss=".1"><site site="p"/><site site="q"/>
      </spatial><fixed name="f" range="0 1"><joint joint="j" coef="2"/>
      <joint joint="k" coef="-1"/></fixed></tendon>
      <actuator><muscle joint="j" lengthrange="-1 1"/><motor site="q" refsite="p" gear="1 0 2"/>
      <muscle tendon="rope" lengthrange=".5 1"/></actuator></mujoco>"""
    scene = Scene.from_mjcf(text)
    scene.randomize("fore", "mass", 1, 4)
    _, m = randomized(scene)
    models = []
    for mass in lerp(1, 4):
        spec = mujoco.MjSpec.from_string(text)
        spec.geom("rod").mass = mass
        models.append(spec.compile())
    assert_worlds(m, models)
