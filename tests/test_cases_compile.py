"""Cases from the field about MJCF: what the file says is what the simulator has, or is refused.

The expected numbers are those of docs/cases.md's sources, measured with MuJoCo.
"""

import itertools
import math

import mujoco
import pytest
import torch

import alloy

WORLD = "<mujoco>{}<worldbody>{}</worldbody>{}</mujoco>"


def build(text: str) -> alloy.Simulator:
    return alloy.build(text, dtype=torch.float64)


def assert_near(actual: torch.Tensor, expected: list[float], atol: float = 1e-6) -> None:
    expected = torch.tensor(expected, dtype=torch.float64).expand_as(actual)
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("compilers", "euler", "quat"),
    [
        ("", "30 40 50", [0.785221, 0.360042, 0.196628, 0.463827]),
        ('<compiler eulerseq="xyz"/>', "30 40 50", [0.785221, 0.360042, 0.196628, 0.463827]),
        ('<compiler eulerseq="XYZ"/>', "30 40 50", [0.860042, 0.080805, 0.402198, 0.303372]),
        ('<compiler eulerseq="zyx"/>', "30 40 50", [0.860042, 0.303372, 0.402198, 0.080805]),
        (
            '<compiler angle="radian"/><compiler eulerseq="XYZ"/>',
            ".5 .6 .7",
            [0.894589, 0.123842, 0.350019, 0.248719],
        ),
    ],
)
def test_c02_euler_angles_in_every_order(compilers, euler, quat):
    sim = build(WORLD.format(compilers, f'<body name="b" euler="{euler}"/>', ""))
    assert_near(sim.body("b").quat[0], quat)


def test_c03_fromto_of_capsules_and_sites():
    sim = build(
        WORLD.format(
            "",
            """<geom name="slanted" type="capsule" size=".1" fromto="0 0 0 1 1 1"/>
               <geom name="down" type="capsule" size=".1" fromto="0 0 1 0 0 0"/>
               <geom name="up" type="capsule" size=".1" fromto="0 0 0 0 0 1"/>
               <site name="s" type="cylinder" size=".1" fromto="0 0 0 0 0 2"/>""",
            "",
        )
    )
    axis = 1 / math.sqrt(3)
    for name, centre, half, z in (
        ("slanted", [0.5, 0.5, 0.5], 0.866025, [-axis, -axis, -axis]),
        ("down", [0, 0, 0.5], 0.5, [0, 0, 1]),
        ("up", [0, 0, 0.5], 0.5, [0, 0, -1]),
    ):
        geom = sim.geom(name)
        assert_near(geom.pos[0], centre)
        assert_near(geom.size[0, :2], [0.1, half])
        assert_near(geom.mat[0, :, 2], z)
    assert_near(sim.site("s").pos[0], [0, 0, 1])
    assert sim.mj_model.site_size[0, 1] == pytest.approx(1)


DEFAULTS = """
<default>
  <default class="pairs"><pair friction=".2 .3 .4 .5 .6" margin=".1"/></default>
  <default class="tendons"><tendon stiffness="12" damping="3" {limit}/></default>
  <equality solref=".005 1"/>
</default>"""
BODIES = """
<body name="a" pos="0 0 1"><joint name="j" type="slide"/><geom name="a" size=".1"/></body>
<body name="b" pos="0 0 2"><joint type="slide"/><geom name="b" size=".1"/></body>"""
USES = """
<contact><pair class="pairs" geom1="a" geom2="b"/>
  <pair class="pairs" geom1="a" geom2="b" margin="2"/></contact>
<tendon><fixed class="tendons" name="t"><joint joint="j" coef="1"/></fixed></tendon>
<equality><connect body1="a" body2="b" anchor="0 0 0"/>
  <connect body1="a" anchor="0 0 0" solref=".03 2"/></equality>"""


def test_c04_default_classes_are_inherited_and_overridden():
    model = build(WORLD.format(DEFAULTS.format(limit=""), BODIES, USES)).model
    assert_near(model.con_friction[0], [0.2, 0.3, 0.4, 0.5, 0.6], 0)
    assert model.con_margin[0].tolist() == [0.1, 2]
    assert (model.tendon_stiffness.item(), model.tendon_damping.item()) == (12, 3)
    assert model.eq_solref[0].tolist() == [[0.005, 1], [0.03, 2]]


def test_c04_a_limit_that_a_class_gives_a_tendon_is_seen():
    text = WORLD.format(DEFAULTS.format(limit='limited="true" range="0 2"'), BODIES, USES)
    model = build(text).model
    assert model.efc.n_tendon_limits == 1
    assert model.tendon_range[0].tolist() == [[0, 2]]


SPHERES = """
<geom name="fixed" size=".1" contype="0" conaffinity="0"/>
<body pos="0 0 .19"><freejoint/><geom name="free" size=".1" contype="0" conaffinity="0"/></body>"""


def test_c06_explicit_pair_with_zero_masks():
    pair = '<contact><pair geom1="fixed" geom2="free" friction=".9 .8 .07 .06 .05"/></contact>'
    sim = build(WORLD.format("", SPHERES, pair))
    contacts = sim.contacts()
    assert contacts.active.tolist() == [[True]]
    assert_near(contacts.dist[0], [-0.01])
    assert_near(sim.model.con_friction[0, 0], [0.9, 0.8, 0.07, 0.06, 0.05], 0)
    assert build(WORLD.format("", SPHERES, "")).contacts().active.shape == (1, 0)


def test_c07_repeated_sections_and_includes(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes" / "tip.obj").write_text(
        "v 0 0 0\nv .1 0 0\nv 0 .1 0\nv 0 0 .1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
    )
    (tmp_path / "parts" / "second.xml").write_text(
        """<mujoco><asset><mesh name="tip" file="tip.obj"/></asset>
        <worldbody><body name="b"><joint name="y" type="slide" axis="0 1 0"/>
        <geom type="mesh" mesh="tip" contype="0" conaffinity="0"/></body></worldbody>
        <actuator><motor name="second" joint="y"/></actuator>
        <equality><joint joint1="y"/></equality>
        <contact><exclude body1="a" body2="b"/></contact>
        <default><geom density="500"/></default></mujoco>"""
    )
    main = tmp_path / "main.xml"
    main.write_text(
        """<mujoco><compiler meshdir="meshes"/><default><geom rgba="1 0 0 1"/></default>
        <asset><material name="m"/></asset>
        <worldbody><body name="a"><joint name="x" type="slide" axis="1 0 0"/>
        <geom size=".1"/></body></worldbody><actuator><motor name="first" joint="x"/></actuator>
        <equality><joint joint1="x"/></equality><include file="parts/second.xml"/></mujoco>"""
    )
    sim = alloy.build(main)
    assert sim.names()["actuators"] == ["first", "second"]
    assert sim.names()["joints"] == ["x", "y"]
    assert sim.model.neq == 2
    assert sim.ctrl.shape == (1, 2)


CHAIN = """
<body name="1">{root}<geom size=".5"/>
  <body name="2" pos=".25 0 0"><joint type="slide"/><geom size=".5"/>
    <body name="3" pos=".25 0 0"><joint type="slide"/><geom size=".5"/></body></body></body>"""


@pytest.mark.parametrize(
    ("root", "exclude", "colliding"),
    [
        ("<freejoint/>", None, ["13"]),
        ("<freejoint/>", "13", []),
        ("", None, ["12", "13"]),
        ("", "13", ["12"]),
        ("", "12", ["13"]),
    ],
)
def test_c11_exclude_and_parent_filter(root, exclude, colliding):
    contact = '<contact><exclude body1="{}" body2="{}"/></contact>'.format(*exclude or "  ")
    sim = build(WORLD.format("", CHAIN.format(root=root), contact if exclude else ""))
    contacts = sim.contacts()
    bodies = sim.mj_model.geom_bodyid
    touching = {
        "".join(sorted(sim.body(int(bodies[g])).name for g in pair))
        for pair, active in zip(
            zip(contacts.geom1, contacts.geom2, strict=True), contacts.active[0], strict=True
        )
        if active
    }
    assert sorted(touching) == colliding


SHAPES = {
    "sphere": 'type="sphere" size=".1"',
    "capsule": 'type="capsule" size=".1 .05" euler="0 90 0"',
    "ellipsoid": 'type="ellipsoid" size=".1 .1 .1"',
    "cylinder": 'type="cylinder" size=".1 .1"',
    "box": 'type="box" size=".1 .1 .1"',
}
BASES = SHAPES | {
    "plane": 'type="plane" size="1 1 1" pos="0 0 .1"',
    "hfield": 'type="hfield" hfield="flat" pos="0 0 .1"',
    "mesh": 'type="mesh" mesh="cube"',
}
ASSETS = """<asset><hfield name="flat" nrow="10" ncol="10" size="1 1 .1 .1"/>
<mesh name="cube" vertex="-.1 -.1 -.1 .1 -.1 -.1 -.1 .1 -.1 .1 .1 -.1
  -.1 -.1 .1 .1 -.1 .1 -.1 .1 .1 .1 .1 .1"/></asset>"""


@pytest.mark.parametrize(("base", "shape"), [*itertools.product(BASES, SHAPES)])
def test_c17_a_pair_collides_as_in_mujoco(base, shape):
    bodies = f"""<geom name="base" {BASES[base]} {{mask}}/>
        <body pos="0 0 .19"><freejoint/><geom name="shape" {SHAPES[shape]}/></body>"""
    text = WORLD.format(ASSETS, bodies, "")
    mj = mujoco.MjModel.from_xml_string(text.format(mask=""))
    data = mujoco.MjData(mj)
    mujoco.mj_forward(mj, data)
    assert data.ncon >= 1
    assert build(text.format(mask="")).contacts().active.sum() == data.ncon
    apart = build(text.format(mask='contype="0" conaffinity="0"'))
    assert not apart.contacts().active.any()


@pytest.mark.parametrize(
    ("body", "rest", "named"),
    [
        (
            '<body><joint name="j"/><geom size=".1"/></body>',
            '<actuator><general name="motor" joint="j" gaintype="user"/></actuator>',
            "actuator 'motor'",
        ),
        (
            '<flexcomp name="cloth" type="grid" count="3 3 1" spacing=".1 .1 .1" dim="2">'
            '<edge equality="true"/></flexcomp>',
            "",
            "<flex>",
        ),
        (
            '<body name="late" sleep="init"><joint/><geom size=".1"/></body>',
            '<option><flag energy="enable" sleep="enable"/></option>',
            "body 'late' sleep='init'",
        ),
    ],
)
def test_c17_what_is_not_supported_is_refused_by_name(body, rest, named):
    with pytest.raises(NotImplementedError, match=named):
        build(WORLD.format("", body, rest))
