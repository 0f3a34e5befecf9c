"""Scenes: what the verbs build, against MuJoCo's own compiler; what they refuse, unchanged."""

import re
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest

from alloy.scene import Randomization, Scene, UnknownName
from alloy.scene_targets import nominal, targets

GYM_MODELS = Path(gymnasium.__file__).parent / "envs/mujoco/assets"

ARM = """
<mujoco model="arm">
  <compiler angle="degree"/>
  <default><joint damping="2"/><geom friction="0.7"/></default>
  <worldbody>
    <body name="base" pos="0 0 0.1">
      <geom name="foot" type="box" size=".1 .1 .1"/>
      <body name="link" pos="0 0 .2">
        <joint name="hinge" axis="0 1 0" range="-90 45"/>
        <geom name="rod" type="capsule" fromto="0 0 0 0 0 .3" size=".03"/>
        <geom type="sphere" pos="0 0 .3" size=".05" mass=".2"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position name="servo" joint="hinge" kp="50" kv="5"/>
    <motor name="motor" joint="hinge" gear="3"/>
  </actuator>
  <keyframe><key name="home" qpos="0.3"/></keyframe>
</mujoco>
"""

URDF = """
<robot name="cart">
  <link name="base">
    <inertial><mass value="2"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><box size=".2 .2 .1"/></geometry></collision>
  </link>
  <link name="pole">
    <inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
  </link>
  <joint name="swing" type="revolute">
    <parent link="base"/><child link="pole"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="1" effort="10" velocity="1"/>
  </joint>
</robot>
"""

TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


def table() -> Scene:
    """A scene with a bit of everything."""
    scene = Scene(dt=0.02)
    scene.add_ground()
    scene.add_box("cube", size=(0.04, 0.05, 0.06), pos=(0.3, 0, 0.1), mass=0.1, friction=0.8)
    scene.add_capsule("peg", radius=0.01, length=0.1, density=500)
    scene.add_robot("arm", mjcf=ARM, pos=(0, 1, 0))
    return scene


def differing(a: mujoco.MjModel, b: mujoco.MjModel) -> list[str]:
    """Names of the arrays that two models do not share bit by bit."""
    names = [n for n in dir(a) if isinstance(getattr(a, n), np.ndarray)]
    return [n for n in names if not np.array_equal(getattr(a, n), getattr(b, n))]


# time


@pytest.mark.parametrize(
    ("dt", "physics_dt", "expected"),
    [(0.02, None, 0.005), (0.02, 0.002, 0.002), (1 / 60, None, 1 / 240), (0.004, None, 0.004)],
)
def test_physics_step(dt, physics_dt, expected):
    scene = Scene(dt=dt, physics_dt=physics_dt)
    assert scene.physics_dt == pytest.approx(expected, rel=1e-12)
    assert scene.substeps == round(dt / expected)
    assert scene.compile().opt.timestep == scene.physics_dt


@pytest.mark.parametrize("dt, physics_dt", [(0.02, 0.003), (0.002, 0.02), (0.02, 0.0199)])
def test_steps_that_do_not_fit_are_named(dt, physics_dt):
    with pytest.raises(ValueError, match=rf"dt={dt} .*physics_dt={physics_dt}"):
        Scene(dt=dt, physics_dt=physics_dt)


@pytest.mark.parametrize("steps", [{"dt": 0.0}, {"dt": float("nan")}, {"physics_dt": -0.001}])
def test_steps_are_positive(steps):
    with pytest.raises(ValueError, match=next(iter(steps))):
        Scene(**steps)


@pytest.mark.parametrize(
    ("timestep", "dt"), [("0.01", 0.02), ("0.003", 0.021), ("0.005", 0.02), ("0.05", 0.05)]
)
def test_a_whole_file_keeps_its_timestep(timestep, dt):
    scene = Scene.from_mjcf(f"<mujoco><option timestep='{timestep}'/></mujoco>")
    assert scene.physics_dt == float(timestep)
    assert scene.dt == pytest.approx(dt)


def test_the_smallest_timestep_stated_by_a_robot_counts():
    scene = Scene(dt=0.02)
    for name, timestep in (("a", "0.004"), ("b", "0.002"), ("c", None)):
        option = f'<option timestep="{timestep}"/>' if timestep else ""
        scene.add_robot(name, ARM.replace("<compiler", option + "<compiler"))
    assert scene.physics_dt == 0.002

    given = Scene(dt=0.02, physics_dt=0.01)
    given.add_robot("b", ARM.replace("<compiler", '<option timestep="0.002"/><compiler'))
    assert given.compile().opt.timestep == 0.01


# bodies


def test_bodies_are_what_a_hand_written_file_says():
    scene = Scene(dt=0.01)
    scene.add_ground(height=-0.1)
    scene.add_box("box", (0.2, 0.4, 0.6), pos=(1, 0, 0), mass=3, friction=(0.5, 0.02), fixed=True)
    scene.add_sphere("ball", 0.1, density=200)
    scene.add_capsule("capsule", radius=0.1, length=0.4, quat=(0, 1, 0, 0))
    scene.add_cylinder("can", radius=0.1, length=0.4, mocap=True)
    scene.add_ellipsoid("egg", (0.2, 0.4, 0.6), rgba=(1, 0, 0))
    half = "size='.1 .2 .3'"
    rod = "size='.1 .2'"
    by_hand = f"""
    <mujoco><option timestep="0.005"/><worldbody>
      <geom name="ground" type="plane" size="0 0 .05" pos="0 0 -.1"/>
      <body name="box" pos="1 0 0"><geom type="box" {half} mass="3" friction=".5 .02"/></body>
      <body name="ball"><freejoint/><geom size=".1" density="200"/></body>
      <body name="capsule" quat="0 1 0 0"><freejoint/><geom type="capsule" {rod}/></body>
      <body name="can" mocap="true"><geom type="cylinder" {rod}/></body>
      <body name="egg"><freejoint/><geom type="ellipsoid" {half}/></body>
    </worldbody></mujoco>"""
    m = scene.compile()
    drawn = {"geom_rgba", "geom_matid", "mat_texid", "names", "names_map"}
    named = {"name_geomadr", "name_jntadr"}
    ours = [n for n in differing(m, mujoco.MjModel.from_xml_string(by_hand))]
    physics = ("body_", "geom_", "jnt_", "dof_", "qpos", "opt")
    assert [n for n in ours if n.startswith(physics) and n not in drawn | named] == []
    assert m.geom("egg").rgba.tolist() == [1, 0, 0, 1]
    assert [m.joint(i).name for i in range(m.njnt)] == ["ball", "capsule", "egg"]


def test_mesh_body(tmp_path):
    (tmp_path / "tetra.obj").write_text(TETRAHEDRON)
    scene = Scene()
    scene.add_mesh("rock", tmp_path / "tetra.obj", scale=0.3, density=600)
    volume = 0.3**3 / 6
    assert scene.compile().body("rock").mass == pytest.approx(600 * volume)


def test_a_file_with_its_own_defaults_does_not_colour_new_bodies():
    scene = Scene.from_mjcf(GYM_MODELS / "half_cheetah.xml")
    scene.add_sphere("ball", 0.1, pos=(0, 0, 3))
    ball, plain = scene.compile().geom("ball"), mujoco.MjSpec().worldbody.add_geom()
    assert ball.contype == ball.conaffinity == 1
    assert np.array_equal(ball.friction, plain.friction)
    assert np.array_equal(ball.solimp, plain.solimp)


# robots


def test_robot_keeps_its_model_under_a_prefix():
    m, alone = table().compile(), mujoco.MjModel.from_xml_string(ARM)
    assert [m.body(i).name for i in range(m.nbody)][-2:] == ["arm/base", "arm/link"]
    assert m.joint("arm/hinge").damping == alone.joint("hinge").damping == 2
    assert np.array_equal(m.joint("arm/hinge").range, alone.joint("hinge").range)
    assert m.body("arm/base").pos.tolist() == [0, 1, 0.1]
    assert m.geom("arm/rod").friction[0] == 0.7
    assert m.geom("cube").friction[0] == 0.8  # not the robot's default
    assert m.key("arm/home").qpos[m.joint("arm/hinge").qposadr] == 0.3
    assert [m.actuator(i).name for i in range(m.nu)] == ["arm/servo", "arm/motor"]


def test_robot_from_path_spec_and_text_are_the_same(tmp_path):
    (tmp_path / "arm.xml").write_text(ARM)
    spec = mujoco.MjSpec.from_string(ARM)
    models = []
    for mjcf in (tmp_path / "arm.xml", str(tmp_path / "arm.xml"), "\n " + ARM, spec, spec):
        scene = Scene()
        scene.add_robot("arm", mjcf)
        models.append(scene.compile())
    assert all(differing(m, models[0]) == [] for m in models)
    assert [b.name for b in spec.bodies] == ["world", "base", "link"]


def test_relative_assets_of_two_robots_resolve(tmp_path):
    files = []
    for name in ("a", "b"):
        (tmp_path / name / "meshes").mkdir(parents=True)
        (tmp_path / name / "meshes/part.obj").write_text(TETRAHEDRON)
        files.append(tmp_path / name / "robot.xml")
        files[-1].write_text(
            '<mujoco><compiler meshdir="meshes"/><asset><mesh file="part.obj"/></asset>'
            '<worldbody><body name="p"><geom type="mesh" mesh="part"/></body></worldbody></mujoco>'
        )
    scene = Scene()
    for file in files:
        scene.add_robot(file.parent.name, file)
    m = scene.compile()
    assert [m.mesh(i).name for i in range(m.nmesh)] == ["a/part", "b/part"]
    assert differing(m, Scene.from_mjcf(scene.to_mjcf()).compile()) == []


def test_settings_of_the_robots_compiler_are_carried_out():
    scene = Scene(dt=0.05)
    scene.add_robot("cheetah", GYM_MODELS / "half_cheetah.xml", pos=(0, 3, 0))
    m = scene.compile()
    alone = mujoco.MjModel.from_xml_path(str(GYM_MODELS / "half_cheetah.xml"))
    assert m.body_mass.sum() == pytest.approx(14, rel=1e-12)
    assert np.allclose(m.body_inertia, alone.body_inertia, rtol=1e-12)
    assert scene.physics_dt == alone.opt.timestep == 0.01


def test_options_meet():
    scene = Scene()
    spheres = '<worldbody><body name="b"><geom size=".1"/></body></worldbody>'
    for name, option in (
        ("a", 'cone="elliptic" iterations="20" tolerance="1e-6"'),
        ("b", 'integrator="implicitfast" iterations="10" tolerance="1e-10"'),
        ("c", ""),
    ):
        scene.add_robot(name, f"<mujoco><option {option}/>{spheres}</mujoco>")
    opt = scene.compile().opt
    assert opt.cone == mujoco.mjtCone.mjCONE_ELLIPTIC
    assert opt.integrator == mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    assert (opt.iterations, opt.tolerance) == (20, 1e-10)
    with pytest.raises(ValueError, match="sets option integrator"):
        scene.add_robot("d", f'<mujoco><option integrator="RK4"/>{spheres}</mujoco>')


def test_urdf():
    scene = Scene()
    scene.add_robot("cart", URDF, pos=(0, 0, 1), floating=True)
    m = scene.compile()
    assert [m.body(i).name for i in range(m.nbody)] == ["world", "cart/base", "cart/pole"]
    assert m.nq == 8 and m.qpos0[:3].tolist() == [0, 0, 1]
    assert Scene.from_mjcf(URDF).compile().nq == 1  # a whole file's base is the world's


# cameras and lights


def test_camera_looks_at_its_target():
    scene = table()
    scene.add_camera("front", pos=(1, 1, 1), lookat=(0, 0, 0.5))
    scene.add_camera("top", pos=(0, 0, 2), lookat=(0, 0, 0))
    scene.add_camera("eye", pos=(0, 0, 0.1), quat=(1, 0, 0, 0), body="arm/link")
    scene.add_camera("chase", pos=(1, 0, 1), lookat="cube")
    scene.add_light("sun", directional=True)
    m = scene.compile()
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    back = d.camera("front").xmat.reshape(3, 3)[:, 2]
    assert np.allclose(back, np.array((1, 1, 0.5)) / 1.5)
    assert np.allclose(d.camera("top").xmat.reshape(3, 3), np.eye(3))
    assert m.camera("eye").bodyid == m.body("arm/link").id
    assert m.camera("chase").targetbodyid == m.body("cube").id
    assert m.nlight == 1


# text


def test_mjcf_text_is_the_same_model():
    scene = table()
    text = scene.to_mjcf()
    again = Scene.from_mjcf(text, dt=0.02)
    assert differing(scene.compile(), again.compile()) == []
    assert again.physics_dt == scene.physics_dt == 0.005


@pytest.mark.parametrize("name", ["half_cheetah", "ant", "humanoid", "reacher"])
def test_gymnasium_files_survive(name):
    scene = Scene.from_mjcf(GYM_MODELS / f"{name}.xml")
    alone = mujoco.MjModel.from_xml_path(str(GYM_MODELS / f"{name}.xml"))
    m = scene.compile()
    assert differing(m, Scene.from_mjcf(scene.to_mjcf()).compile()) == []
    assert scene.physics_dt == alone.opt.timestep
    assert m.names == alone.names
    for array in differing(m, alone):  # half_cheetah's `settotalmass` is equal up to rounding
        assert name == "half_cheetah", array
        assert np.allclose(getattr(m, array), getattr(alone, array), rtol=1e-12, atol=1e-15), array


# refusals

REFUSED = {
    "size": (lambda s: s.add_box("x", size=(1, 2)), ValueError, "size.*2 numbers.*must be 3"),
    "zero size": (lambda s: s.add_box("x", size=(1, 0, 1)), ValueError, "above 0"),
    "radius": (lambda s: s.add_sphere("x", radius=-1), ValueError, "radius is -1"),
    "nan": (lambda s: s.add_sphere("x", 1, pos=(0, 0, float("nan"))), ValueError, "pos.*finite"),
    "text": (lambda s: s.add_sphere("x", 1, pos="abc"), ValueError, "pos.*numbers"),
    "zero quat": (lambda s: s.add_sphere("x", 1, quat=(0, 0, 0, 0)), ValueError, "unit quat"),
    "long quat": (lambda s: s.add_sphere("x", 1, quat=(1, 1, 0, 0)), ValueError, "0.707107"),
    "both": (lambda s: s.add_sphere("x", 1, mass=1, density=1), ValueError, "mass=1.*density=1"),
    "mass": (lambda s: s.add_sphere("x", 1, mass=0), ValueError, "mass is 0"),
    "friction": (lambda s: s.add_sphere("x", 1, friction=-1), ValueError, "negative"),
    "colour": (lambda s: s.add_sphere("x", 1, rgba=(2, 0, 0)), ValueError, "between 0 and 1"),
    "fixed": (lambda s: s.add_sphere("x", 1, fixed=True, mocap=True), ValueError, "choose one"),
    "keyword": (lambda s: s.add_sphere("x", 1, weight=1), TypeError, "weight"),
    "taken": (lambda s: s.add_sphere("cube", 1), ValueError, "taken.*'arm', 'cube'"),
    "taken by robot": (lambda s: s.add_sphere("arm", 1), ValueError, "taken"),
    "robot taken": (lambda s: s.add_robot("cube", ARM), ValueError, "taken"),
    "robot twice": (lambda s: s.add_robot("arm", ARM), ValueError, "taken"),
    "ground twice": (lambda s: s.add_ground(), ValueError, "taken"),
    "slash": (lambda s: s.add_sphere("arm/x", 1), ValueError, "without '/'"),
    "empty": (lambda s: s.add_sphere("", 1), ValueError, "not empty"),
    "world": (lambda s: s.add_sphere("world", 1), ValueError, "not 'world'"),
    "no file": (lambda s: s.add_robot("r", "no/such.xml"), FileNotFoundError, "such.xml"),
    "broken": (lambda s: s.add_robot("r", "<mujoco><boddy/></mujoco>"), ValueError, "boddy"),
    "not xml": (lambda s: s.add_robot("r", "<mujoco><worldbody>"), ValueError, "XML"),
    "no body": (lambda s: s.add_robot("r", "<mujoco/>"), ValueError, "no body"),
    "type": (lambda s: s.add_robot("r", 3), TypeError, "got int"),
    "timestep": (
        lambda s: s.add_robot("r", ARM.replace("<comp", '<option timestep=".003"/><comp')),
        ValueError,
        r"timestep=0.003: dt=0.02 .*physics_dt=0.003",
    ),
    "floating": (
        lambda s: s.add_robot("r", ARM.replace('.1">', '.1"><joint name="j"/>', 1), floating=True),
        ValueError,
        "has joints: 'j'",
    ),
    "camera": (lambda s: s.add_camera("c", (0, 0, 1)), ValueError, "either lookat= or quat="),
    "camera on": (lambda s: s.add_camera("c", (0, 0, 1), lookat="cub"), UnknownName, "'cube'"),
    "camera at": (lambda s: s.add_camera("c", (1, 1, 1), lookat=(1, 1, 1)), ValueError, "where"),
    "light": (lambda s: s.add_light("l", direction=(0, 0, 0)), ValueError, "zero"),
    "no mesh": (lambda s: s.add_mesh("m", "no.obj"), FileNotFoundError, "no.obj"),
    "field": (lambda s: s.randomize("cube", "frction", 0, 1), UnknownName, "mean 'friction'"),
    "entity": (lambda s: s.randomize("cub", "friction", 0, 1), UnknownName, "mean 'cube'"),
    "order": (lambda s: s.randomize("cube", "friction", 2, 1), ValueError, "above high"),
    "infinite": (lambda s: s.randomize("cube", "mass", 1, float("inf")), ValueError, "finite"),
    "sign": (lambda s: s.randomize("cube", "mass", 0, 1), ValueError, "above 0"),
    "mode": (lambda s: s.randomize("cube", "mass", 1, 2, mode="times"), ValueError, "'times'"),
    "shape": (lambda s: s.randomize("cube", "mass", 1, (2, 2)), ValueError, "same length"),
    "width": (lambda s: s.randomize("cube", "com", -1, 1), ValueError, "takes 3"),
    "kind": (lambda s: s.randomize("cube", "kp", 1, 2), ValueError, "no actuator"),
    "servo": (lambda s: s.randomize("arm/motor", "kp", 1, 2), ValueError, "position servo"),
    "gravity": (lambda s: s.randomize("cube", "gravity", -9, -8), ValueError, "'world'"),
    "plane": (lambda s: s.randomize("ground", "size", 1, 2), ValueError, "plane has no size"),
    "size length": (lambda s: s.randomize("peg", "size", 1, 2), ValueError, "radius, length"),
    "shared mass": (
        lambda s: s.randomize("arm/link", "size", 1, 2, "scale"),
        ValueError,
        "2 geoms",
    ),
    "no density": (lambda s: s.randomize("arm", "density", 1, 2), ValueError, "'scale'"),
    "below": (
        lambda s: s.randomize("cube", "mass", -0.2, 0, mode="add"),
        ValueError,
        "gives -0.1",
    ),
}


@pytest.mark.parametrize("call, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_a_refused_call_says_why_and_changes_nothing(call, error, message):
    scene = table()
    before = (scene.to_mjcf(), scene.physics_dt, scene.randomizations)
    with pytest.raises(error, match=message):
        call(scene)
    assert (scene.to_mjcf(), scene.physics_dt, scene.randomizations) == before


def test_a_broken_file_is_named_with_mujocos_message(tmp_path):
    (tmp_path / "arm.xml").write_text("<mujoco><worldbody><boddy/></worldbody></mujoco>")
    (tmp_path / "mesh.xml").write_text(
        '<mujoco><asset><mesh name="m" file="gone.obj"/></asset><worldbody>'
        '<body name="b"><geom type="mesh" mesh="m"/></body></worldbody></mujoco>'
    )
    for read in (Scene.from_mjcf, lambda file: Scene().add_robot("r", file)):
        with pytest.raises(ValueError, match=r"(?s)arm\.xml.*boddy.*line 1"):
            read(tmp_path / "arm.xml")
        with pytest.raises(ValueError, match=r"mesh\.xml.*gone\.obj"):
            read(tmp_path / "mesh.xml")
        with pytest.raises(FileNotFoundError, match=r"amr\.xml.*near it: arm\.xml"):
            read(tmp_path / "amr.xml")
        with pytest.raises(FileNotFoundError, match="is a folder"):
            read(tmp_path)


def test_what_the_spec_breaks_is_told_at_compile():
    scene = table()
    scene.spec.body("cube").add_geom(name="knob")
    with pytest.raises(ValueError, match=r"(?s)the scene does not compile.*size 0.*knob"):
        scene.compile()


# randomization


def test_randomizations_are_recorded_and_resolved():
    scene = table()
    scene.randomize("cube", "friction", 0.5, 1.0)
    scene.randomize("cube", "size", (0.03, 0.03, 0.05), (0.05, 0.06, 0.07))
    scene.randomize("arm", "mass", 0.9, 1.1, mode="scale")
    scene.randomize("arm/hinge", "damping", -1, 1, mode="add")
    scene.randomize("arm", "kp", 40, 60)
    scene.randomize("*/motor", "gain", 0.8, 1.2, mode="scale")
    scene.randomize("world", "gravity", (0, 0, -10), (0, 0, -9))
    assert scene.randomizations[0] == Randomization("cube", "friction", 0.5, 1.0, "value")
    with pytest.raises(ValueError, match="randomized already"):
        scene.randomize("cube", "friction", 0, 1)

    m = scene.compile()
    found = targets(m, scene.randomizations)
    ids = {t.field: list(t.ids) for t in found}
    assert ids["friction"] == ids["size"] == [m.geom("cube").id]
    assert ids["mass"] == [m.body("arm/base").id, m.body("arm/link").id]
    assert ids["damping"] == [m.joint("arm/hinge").dofadr[0]]
    assert ids["kp"] == [m.actuator("arm/servo").id]
    assert ids["gain"] == [m.actuator("arm/motor").id]
    assert ids["gravity"] == []


def test_values_in_the_scene_are_in_the_units_of_the_verbs():
    scene = table()
    for entity, field, low in (
        ("cube", "size", (0.1, 0.1, 0.1)),
        ("peg", "size", (0.1, 0.1)),
        ("cube", "mass", 1),
        ("peg", "density", 1),
        ("arm/servo", "kv", 1),
        ("arm", "mass", 1),
    ):
        scene.randomize(entity, field, low, low)
    m = scene.compile()
    values = [nominal(m, t).ravel() for t in targets(m, scene.randomizations)]
    total = m.body("arm/base").mass + m.body("arm/link").mass
    expected = [[0.04, 0.05, 0.06], [0.01, 0.1], [0.1], [500], [5], total]
    for value, want in zip(values, expected, strict=True):
        assert np.allclose(value, want, rtol=1e-12)


def test_unknown_name_reads_well():
    with pytest.raises(KeyError) as error:
        table().randomize("cubes", "friction", 0, 1)
    assert re.match(r"no entity.* is called 'cubes'\. Did you mean 'cube'", str(error.value))
