import math
import pickle
import subprocess
import sys

import mujoco
import numpy as np
import pytest
import torch

import alloy
from alloy.health import SimulationError
from alloy.names import UnknownName
from alloy.physics.model import INPUTS, STATE
from alloy.sim import Simulator
from alloy.views import View
from tests.physics.fixture import oracle_rows

ARM = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom name="floor" type="plane" size="3 3 .1"/>
    <site name="mark" pos="0.1 0.2 0.3" euler="10 20 30"/>
    <body name="arm/base" pos="0 0 0.5" euler="0 0 30">
      <geom name="arm/stand" type="box" size=".05 .05 .1" contype="0" conaffinity="0"/>
      <body name="arm/upper" pos="0 0 0.1">
        <joint name="arm/lift" axis="0 1 0" range="-90 90" limited="true" damping=".1"/>
        <geom name="arm/upper" type="capsule" fromto="0 0 0 .3 0 0" size=".03"/>
        <body name="arm/hand" pos="0.3 0 0" euler="40 0 0">
          <joint name="arm/wrist" type="ball" damping=".05"/>
          <geom name="arm/palm" type="sphere" size=".05" pos=".05 .02 .01" euler="0 50 0"/>
          <site name="arm/tip" pos=".1 0 .02" euler="0 20 70"/>
        </body>
      </body>
    </body>
    <body name="cube" pos="0.5 0.4 0.049">
      <freejoint name="cube"/>
      <geom name="cube" type="box" size=".05 .05 .05" mass=".2"/>
      <body name="knob" pos="0 0 .06"><geom name="knob" type="sphere" size=".02" mass=".01"/></body>
    </body>
    <body name="target" mocap="true" pos="1 0 1"/>
  </worldbody>
  <actuator>
    <position name="arm/lift" joint="arm/lift" kp="20" ctrlrange="-1.5 1.5"/>
    <general name="arm/drive" joint="arm/lift" dyntype="filter" dynprm=".05" gainprm="2"/>
  </actuator>
  <sensor>
    <jointpos name="lift_angle" joint="arm/lift"/>
    <framepos name="tip_pos" objtype="site" objname="arm/tip"/>
    <framelinvel name="tip_vel" objtype="site" objname="arm/tip"/>
  </sensor>
  <keyframe>
    <key name="raised" time="0.4" qpos="1 1 0 0 0 .5 .4 .3 1 0 0 0" ctrl="1 .5" act=".25"
         mpos="0 0 2" mquat="0 1 0 0"/>
  </keyframe>
</mujoco>
"""
HELD = (*STATE, *INPUTS)


def arm(worlds: int = 3, **options) -> Simulator:
    options = {"dtype": torch.float64} | options
    return alloy.build(ARM, worlds=worlds, **options)


def stirred(worlds: int = 3, **options) -> Simulator:
    """An arm in motion, every world another."""
    sim = arm(worlds, **options)
    spread = torch.linspace(0.5, 1.5, worlds, dtype=sim.dtype).unsqueeze(-1)
    sim.qvel = spread * torch.tensor([0.5, 1.0, -0.6, 0.8, 0.1, 0.2, 0.0, 0.5, -0.4, 0.3])
    sim.step(spread * torch.tensor([0.4, -0.8]))
    return sim


def twin(sim: Simulator, world: int) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """MuJoCo's data of the present state of one world, after mj_forward."""
    m, d = sim.mj_model, mujoco.MjData(sim.mj_model)
    for name in ("qpos", "qvel", "act", "ctrl", "mocap_pos", "mocap_quat", "qacc_warmstart"):
        getattr(d, name)[:] = getattr(sim.data, name)[world]
    mujoco.mj_forward(m, d)
    return m, d


def held(sim: Simulator) -> dict[str, torch.Tensor]:
    return {name: getattr(sim.data, name).clone() for name in HELD}


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], worlds=slice(None)) -> None:
    for name in a:
        assert torch.equal(a[name][worlds], b[name][worlds]), name


# views


def test_poses_and_velocities_by_name_are_mujocos():
    sim = stirred()
    for world in range(sim.num_worlds):
        m, d = twin(sim, world)
        for kind, obj, array in (
            ("body", mujoco.mjtObj.mjOBJ_XBODY, "body"),
            ("geom", mujoco.mjtObj.mjOBJ_GEOM, "geom"),
            ("site", mujoco.mjtObj.mjOBJ_SITE, "site"),
        ):
            plural = "bodies" if kind == "body" else f"{kind}s"
            for name in sim.names()[plural]:
                part, of_mj = getattr(sim, kind)(name), getattr(d, array)(name)
                velocity = np.zeros(6)
                mujoco.mj_objectVelocity(m, d, obj, part.id, velocity, 0)
                expected = {"pos": of_mj.xpos, "mat": of_mj.xmat.reshape(3, 3),
                            "angvel": velocity[:3], "linvel": velocity[3:]}  # fmt: skip
                for field, value in expected.items():
                    actual = getattr(part, field)
                    assert actual.is_contiguous()
                    np.testing.assert_allclose(actual[world], value, atol=1e-12, err_msg=name)
                quat = np.zeros(4)
                mujoco.mju_mat2Quat(quat, of_mj.xmat)
                assert abs(abs(quat @ part.quat[world].numpy()) - 1) < 1e-12
        np.testing.assert_allclose(sim.body("arm/hand").com[world], d.body("arm/hand").xipos)


def test_joints_actuators_sensors_by_name_are_mujocos():
    sim = stirred()
    _, d = twin(sim, 1)
    close = {"rtol": 1e-9, "atol": 1e-10}
    for name in sim.names()["joints"]:
        joint = sim.joint(name)
        for field in ("qpos", "qvel"):
            np.testing.assert_array_equal(getattr(joint, field)[1], getattr(d.joint(name), field))
        np.testing.assert_allclose(joint.qacc[1], d.joint(name).qacc, rtol=1e-5, atol=1e-6)
    for name in sim.names()["actuators"]:
        for field in ("ctrl", "force", "length", "velocity"):
            actual = getattr(sim.actuator(name), field)
            assert actual.shape == (3,)
            np.testing.assert_allclose(actual[1], getattr(d.actuator(name), field)[0], **close)
    for name, dim in (("lift_angle", 1), ("tip_pos", 3), ("tip_vel", 3)):
        assert sim.sensor(name).shape == (3, dim)
        np.testing.assert_allclose(sim.sensor(name)[1], d.sensor(name).data, **close)
    np.testing.assert_allclose(sim.sensordata[1], d.sensordata, **close)
    np.testing.assert_allclose(sim.qacc[1], d.qacc, rtol=1e-5, atol=1e-6)


def test_static_quantities_by_name():
    sim = arm()
    assert sim.joint("arm/lift").limited
    assert not sim.joint("arm/wrist").limited
    assert sim.joint("arm/lift").range.tolist() == [[-math.pi / 2, math.pi / 2]] * 3
    assert [sim.joint(n).kind for n in sim.names()["joints"]] == ["hinge", "ball", "free"]
    assert sim.joint("arm/lift").pos.shape == sim.joint("arm/lift").vel.shape == (3,)
    with pytest.raises(ValueError, match=r"'arm/wrist' is a ball joint.*use \.qpos"):
        _ = sim.joint("arm/wrist").pos
    assert sim.body("cube").mass.tolist() == [0.2] * 3
    assert sim.geom("cube").size.tolist() == [[0.05] * 3] * 3
    assert sim.geom("cube").friction.tolist() == [[1.0, 0.005, 0.0001]] * 3
    assert sim.actuator("arm/lift").ctrlrange.tolist() == [[-1.5, 1.5]] * 3
    assert repr(sim.body("cube")) == "<body 'cube' in 3 worlds>"
    assert sim.geom(3).name == "arm/palm"


def test_tendon_by_name():
    xml = """
    <mujoco><worldbody>
      <body><joint name="a" axis="0 1 0"/><geom size=".1"/>
        <body pos="1 0 0"><joint name="b" axis="0 1 0"/><geom size=".1"/></body></body>
    </worldbody>
    <tendon><fixed name="t"><joint joint="a" coef="2"/><joint joint="b" coef="-1"/></fixed></tendon>
    </mujoco>"""
    sim = alloy.build(xml, worlds=2, dtype=torch.float64)
    sim.qpos, sim.qvel = [[0.1, 0.5], [1.0, 0.0]], [[1.0, 2.0], [3.0, 4.0]]
    torch.testing.assert_close(sim.tendon("t").length, torch.tensor([-0.3, 2.0]).double())
    torch.testing.assert_close(sim.tendon("t").velocity, torch.tensor([0.0, 2.0]).double())


def test_names_and_entities():
    sim = arm()
    names = sim.names()
    assert names["bodies"] == [
        "world", "arm/base", "arm/upper", "arm/hand", "cube", "knob", "target",
    ]  # fmt: skip
    assert names["actuators"] == ["arm/lift", "arm/drive"]
    assert names["entities"] == ["arm", "cube", "target"]
    assert names["mocap"] == ["target"]
    assert names["sites"] == ["mark", "arm/tip"]
    assert {"equalities", "tendons", "cameras", "lights", "geoms", "sensors"} <= names.keys()
    entity = sim.entity("arm")
    assert entity.bodies == ("arm/base", "arm/upper", "arm/hand")
    assert entity.joints == ("arm/lift", "arm/wrist")
    assert entity.actuators == ("arm/lift", "arm/drive")
    assert entity.geoms == ("arm/stand", "arm/upper", "arm/palm")
    assert entity.sites == ("arm/tip",)
    assert sim.entity("cube").bodies == ("cube", "knob")
    assert [joint.name for joint in sim.joints_of("cube")] == ["cube"]
    for name, part in (("arm/hand", sim.body("arm/hand")), ("arm", sim.body("arm/base")),
                       ("arm/tip", sim.site("arm/tip")), ("floor", sim.geom("floor"))):  # fmt: skip
        assert torch.equal(sim.frame(name).pos, part.pos)


def test_unknown_names_list_near_matches():
    sim = arm()
    with pytest.raises(UnknownName, match="'arm/hand'") as error:
        sim.body("arm/hamd")
    assert isinstance(error.value, KeyError)
    assert "arm/hamd" in str(error.value)
    for call in (sim.joint, sim.site, sim.geom, sim.actuator, sim.sensor, sim.tendon, sim.entity,
                 sim.frame, sim.in_contact, sim.joints_of):  # fmt: skip
        with pytest.raises(UnknownName, match="nothing"):
            call("nothing")
    with pytest.raises(UnknownName, match="nothing"):
        sim.in_contact("cube", "nothing")
    for number in (-1, 7):
        with pytest.raises(UnknownName):
            sim.body(number)


# contacts


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_contact_forces_are_mujocos(cone):
    xml = ARM.replace('timestep="0.01"', f'timestep="0.01" cone="{cone}" tolerance="1e-12"')
    sim = alloy.build(
        xml.replace('mass=".2"/>', 'mass=".2" condim="4"/>').replace('mass=".01"', 'condim="1"'),
        worlds=2, dtype=torch.float64,
    )  # fmt: skip
    sim.qvel = torch.tensor([[0, 0, 0, 0, 0.3, 0.1, -0.1, 0, 0, 0.5], [0.0] * 10])
    qpos = sim.qpos.clone()
    qpos[1, 5:] = torch.tensor([0, 0, 0.08, 0, 1, 0, 0])  # upside down, on the knob
    sim.qpos = qpos
    sim.step(substeps=5)
    contacts = sim.contacts()
    for world in range(2):
        m, d = twin(sim, world)
        theirs = {}
        for i, contact in enumerate(d.contact):
            force = np.zeros(6)
            mujoco.mj_contactForce(m, d, i, force)
            key = (*contact.geom, *np.round(contact.pos, 6))
            theirs[key] = (contact.dist, contact.frame[:3], force[0])
            total = contact.frame.reshape(3, 3).T @ force[:3]
            theirs[key] += (total,)
        ours = {}
        for slot in contacts.active[world].nonzero().flatten().tolist():
            pair = contacts.geom1[slot], contacts.geom2[slot]
            frame, force = contacts.frame[world, slot], contacts.force[world, slot]
            key = (*pair, *np.round(contacts.pos[world, slot].numpy(), 6))
            ours[key] = contacts.dist[world, slot], frame[0], force[0], force @ frame
        assert theirs.keys() == ours.keys()
        assert len(theirs) == (4 if world == 0 else 1)
        for key, values in theirs.items():
            for actual, expected in zip(ours[key], values, strict=True):
                np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-7)
    inactive = ~contacts.active
    assert not contacts.force[inactive].any()
    assert contacts.force.shape == (2, sim.model.ncon, 3)


def test_in_contact_by_geom_body_and_entity():
    sim = arm(2)
    qpos = sim.qpos.clone()
    qpos[1, 7] = 1.0
    sim.qpos = qpos
    for a, b in (("cube", "floor"), ("floor", "cube"), ("cube", None), ("floor", None)):
        assert sim.in_contact(a, b).tolist() == [True, False], (a, b)
    for a, b in (("knob", "floor"), ("arm", "floor"), ("arm", None), ("target", None)):
        assert sim.in_contact(a, b).tolist() == [False, False], (a, b)
    qpos[1, 5:8] = sim.geom("arm/palm").pos[1] + torch.tensor([0.0, 0, 0.09])
    sim.qpos = qpos
    for a, b in (("cube", "arm"), ("arm", "cube"), ("arm/hand", "cube"), ("arm/palm", "cube")):
        assert sim.in_contact(a, b).tolist() == [False, True], (a, b)


def test_model_without_contacts():
    sim = alloy.build("<mujoco><worldbody><body name='b'><joint axis='0 1 0'/><geom size='.1'"
                      " pos='.2 0 0'/></body></worldbody></mujoco>", worlds=2)  # fmt: skip
    sim.step()
    assert sim.contacts().force.shape == (2, 0, 3)
    assert sim.contacts().geom1 == ()
    assert sim.in_contact("b").tolist() == [False, False]


# what is read is of the present state


def test_derived_quantities_follow_the_state():
    sim = stirred()
    d = sim.data
    assert not torch.equal(d.xpos[:, 3], sim.body("arm/hand").pos)  # raw data: before the step
    before = sim.body("cube").pos
    kept = before.clone()
    sim.qpos[:, 5] += 1.0  # written in place
    torch.testing.assert_close(sim.body("cube").pos[:, 0], before[:, 0] + 1.0)
    assert torch.equal(before, kept)
    sim.qpos = sim.qpos + 1.0  # assigned
    torch.testing.assert_close(sim.body("cube").pos[:, 0], before[:, 0] + 2.0)
    force = sim.actuator("arm/lift").force
    sim.ctrl[:, 0] += 0.1
    torch.testing.assert_close(sim.actuator("arm/lift").force, force + 2.0)
    sim.reset()
    assert sim.body("cube").pos[0].tolist() == [0.5, 0.4, 0.049]


def test_reading_changes_nothing_and_is_computed_once(monkeypatch):
    sim, other = stirred(), stirred()
    calls = []
    from alloy import guard

    for stage, run in list(guard._COMPUTE.items()):
        counted = lambda m, d, stage=stage, run=run: (calls.append(stage), run(m, d))[1]  # noqa: E731
        monkeypatch.setitem(guard._COMPUTE, stage, counted)
    for _ in range(2):
        _ = sim.body("cube").pos, sim.site("arm/tip").mat
    assert calls == ["kinematics"]
    for _ in range(2):
        _ = sim.in_contact("cube"), sim.body("cube").linvel, sim.sensordata, sim.contacts()
    assert calls == ["kinematics", "position", "velocity", "acceleration"]
    sim.step()
    other.step()
    assert_same(held(sim), held(other))


def test_forward_fills_data():
    sim = stirred()
    sim.forward()
    _, d = twin(sim, 2)
    for name in ("xpos", "xquat", "subtree_com", "qfrc_bias", "actuator_force"):
        np.testing.assert_allclose(getattr(sim.data, name)[2], getattr(d, name), atol=1e-10)
    moved = stirred()
    moved.step()
    sim.step()
    assert_same(held(sim), held(moved))


def test_what_is_handed_out_is_never_written_again():
    sim = stirred()
    out = [sim.body("cube").pos, sim.joint("arm/lift").qpos, sim.sensor("tip_pos"), sim.qpos,
           sim.contacts().force, sim.time, sim.health().invalid]  # fmt: skip
    copies = [x.clone() for x in out]
    sim.step(torch.ones(3, 2))
    sim.reset(torch.tensor([True, False, True]))
    sim.step()
    assert all(torch.equal(a, b) for a, b in zip(out, copies, strict=True))
    sim.body("cube").pos.fill_(7.0)
    assert not (sim.body("cube").pos == 7.0).any()


def test_view_over_any_data_reads_alike():
    sim = stirred()
    view = View(sim._names, sim.model, sim.data)
    assert torch.equal(view.body("arm/hand").linvel, sim.body("arm/hand").linvel)
    assert torch.equal(view.in_contact("cube", "floor"), sim.in_contact("cube", "floor"))
    assert torch.equal(view.time, sim.time)
    assert view.num_worlds == 3

    def reward(qpos: torch.Tensor) -> torch.Tensor:
        d = type(sim.data)(**{n: getattr(sim.data, n) for n in HELD} | {"qpos": qpos})
        seen = View(sim._names, sim.model, d)
        return seen.body("arm/hand").pos[:, 2] + seen.in_contact("cube", "floor").double()

    from torch.fx.experimental.proxy_tensor import make_fx

    traced = make_fx(reward)(sim.qpos)
    assert torch.equal(traced(sim.qpos + 0.01), reward(sim.qpos + 0.01))


# stepping


def test_step_is_mj_step():
    sim = arm(2, seed=4)
    assert (sim.dt, sim.physics_dt, sim.substeps) == (0.02, 0.01, 2)
    assert sim.seed.tolist() == [4, 5]
    d = mujoco.MjData(sim.mj_model)
    d.qvel[:] = sim.data.qvel[0]
    d.ctrl[:] = 0.3, -0.2
    for _ in range(4):
        mujoco.mj_step(sim.mj_model, d)
    assert sim.step([[0.3, -0.2]] * 2) is None
    sim.step()  # controls are kept
    np.testing.assert_allclose(sim.qpos[1], d.qpos, atol=1e-7)
    np.testing.assert_allclose(sim.time, [d.time] * 2)
    sim.step(substeps=1)
    np.testing.assert_allclose(sim.time, [0.05] * 2)
    for substeps in (0, -1, 1.5):
        with pytest.raises(ValueError, match="substeps"):
            sim.step(substeps=substeps)


@pytest.mark.slow
def test_c34_step_and_views_compile_to_one_graph():
    def play(sim: Simulator, ctrl: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sim.step(ctrl, substeps=1)
        return sim.body("arm/hand").linvel + sim.time.unsqueeze(-1), sim.in_contact("cube")

    graphs = []

    def backend(graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> object:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(play, fullgraph=True, backend=backend)
    sim, eager = arm(3), arm(3)
    for i in range(5):
        ctrl = torch.full((3, 2), 0.1 * i, dtype=torch.float64)
        actual, expected = compiled(sim, ctrl), play(eager, ctrl)
        if i == 1:
            known = len(graphs)
        torch.testing.assert_close(actual[0], expected[0], rtol=1e-6, atol=1e-8)
        assert torch.equal(actual[1], expected[1])
    assert len(graphs) == known


def test_build_takes_every_source(tmp_path):
    path = tmp_path / "arm.xml"
    path.write_text(ARM)
    spec, model = mujoco.MjSpec.from_string(ARM), mujoco.MjModel.from_xml_string(ARM)
    for source in (path, str(path), ARM, spec, alloy.Scene.from_mjcf(ARM)):
        assert alloy.build(source).names()["joints"] == ["arm/lift", "arm/wrist", "cube"]
    sim = alloy.build(model)
    assert (sim.dt, sim.substeps, sim.num_worlds, sim.dtype) == (0.01, 1, 1, torch.float32)
    scene = alloy.Scene(dt=0.02, physics_dt=0.01)
    scene.add_ground()
    scene.add_box("box", size=(0.1, 0.1, 0.1), pos=(0, 0, 1), mass=1.0)
    sim = alloy.build(scene, worlds=2)
    assert (sim.dt, sim.physics_dt, sim.substeps) == (0.02, 0.01, 2)
    assert "2 worlds" in repr(sim)


def test_build_refuses():
    for worlds in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="worlds"):
            alloy.build(ARM, worlds=worlds)
    with pytest.raises(ValueError, match="float16"):
        alloy.build(ARM, dtype=torch.float16)
    with pytest.raises(ValueError, match="2 entries for 3 worlds"):
        alloy.build(ARM, worlds=3, seed=[1, 2])
    with pytest.raises(ValueError, match="reference"):
        alloy.build(ARM, engine="turbo")
    with pytest.raises(MemoryError, match=r"need about .* GiB .* are free; build with at most \d+"):
        alloy.build(ARM, worlds=10**10)


# inputs


def test_c13_quaternions():
    sim = arm(2)
    qpos = sim.qpos.clone()
    qpos[:, 8:12] = torch.tensor([2.0, 0, 0, 2.0])  # the cube's
    sim.qpos = qpos
    half = math.sqrt(0.5)
    torch.testing.assert_close(
        sim.body("cube").quat, torch.tensor([[half, 0, 0, half]] * 2).double()
    )
    qvel = torch.zeros_like(sim.qvel)
    qvel[:, 7] = 1.0
    sim.qvel = qvel
    sim.step(substeps=1)
    norm = torch.linalg.vector_norm(sim.joint("cube").qpos[:, 3:], dim=-1)
    torch.testing.assert_close(norm, torch.ones_like(norm), atol=1e-6, rtol=0)


@pytest.mark.slow
def test_c13_ball_joint_keeps_its_norm():
    ball = "<body><joint name='j' type='ball'/><geom size='.1' pos='.3 0 0'/></body>"
    sim = alloy.build(f"<mujoco><worldbody>{ball}</worldbody></mujoco>", worlds=2)
    assert (sim.model.nq, sim.model.nv) == (4, 3)
    sim.qvel = [[1.0, 2.0, 3.0], [-5.0, 0.1, 0.0]]
    sim.step(substeps=10_000)
    norm = torch.linalg.vector_norm(sim.qpos, dim=-1)
    torch.testing.assert_close(norm, torch.ones(2), atol=1e-6, rtol=0)


WRONG = {
    "scalar": lambda n, a: torch.zeros(()),
    "row": lambda n, a: torch.zeros(a),
    "column": lambda n, a: torch.zeros(n),
    "one": lambda n, a: torch.zeros(n, 1),
    "wide": lambda n, a: torch.zeros(n, a + 1),
    "turned": lambda n, a: torch.zeros(a, n),
    "number": lambda n, a: 0.5,
    "bool": lambda n, a: torch.zeros(n, a, dtype=torch.bool),
    "complex": lambda n, a: torch.zeros(n, a, dtype=torch.complex64),
    "object": lambda n, a: np.full((n, a), None),
    "text": lambda n, a: "go",
    "ragged": lambda n, a: [[0.0] * a] * (n - 1) + [[0.0]],
    "device": lambda n, a: torch.zeros(n, a, device="meta"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_c37_wrong_controls_are_refused(wrong):
    sim = stirred(3)
    before, step_count = held(sim), sim.data.step_count
    for value, call in ((WRONG[wrong](3, 2), sim.step),
                        (WRONG[wrong](3, 2), lambda x: setattr(sim, "ctrl", x)),
                        (WRONG[wrong](3, 12), lambda x: setattr(sim, "qpos", x))):  # fmt: skip
        with pytest.raises(ValueError, match=r"(ctrl|qpos): expected shape \(3, (2|12)\).*on cpu;"):
            call(value)
    assert_same(held(sim), before)
    assert sim.data.step_count is step_count


def test_c37_nothing_broadcasts():
    one = "<body><joint name='j' axis='0 1 0'/><geom size='.1' pos='.3 0 0'/></body>"
    motor = "<actuator><motor joint='j'/></actuator>"
    sim = alloy.build(f"<mujoco><worldbody>{one}</worldbody>{motor}</mujoco>", worlds=1)
    for wrong in (torch.zeros(()), torch.zeros(1), torch.zeros(1, 1, 1)):
        with pytest.raises(ValueError, match="received shape"):
            sim.step(wrong)
    square = arm(2)
    with pytest.raises(ValueError, match=r"expected shape \(2, 2\).*received shape \(2,\)"):
        square.step(torch.zeros(2))


def test_inputs_of_every_kind_count_alike_and_are_copied():
    ctrl = torch.tensor([[0.5, -1.0], [0.25, 0.0], [1.0, 1.0]])
    sideways = torch.stack([ctrl, ctrl], -1)[..., 0]
    integers = (ctrl * 4).int()
    ends = []
    flipped = ctrl.numpy()[::-1].copy()[::-1]
    for value in (ctrl, ctrl.double(), ctrl.tolist(), flipped, sideways, integers / 4):
        sim = stirred()
        sim.step(value)
        ends.append(held(sim))
    for end in ends[1:]:
        assert_same(end, ends[0])
    sim = stirred()
    sim.step(integers)
    assert sim.ctrl.tolist() == integers.tolist()
    sim.ctrl = ctrl
    sim.ctrl[0, 0] = 9.0
    assert ctrl[0, 0] == 0.5


@pytest.mark.parametrize(
    "field", ["qpos", "qvel", "act", "plastic", "ctrl", "qfrc_applied", "xfrc_applied",
              "mocap_pos", "mocap_quat", "eq_active"]
)  # fmt: skip
def test_settable_fields(field):
    sim = arm(2)
    old = getattr(sim, field)
    new = ~old if old.dtype == torch.bool else old + 0.125
    setattr(sim, field, new)
    assert torch.equal(getattr(sim, field), new)
    assert getattr(sim, field) is not new
    assert getattr(sim, field).stride(0) == (1 if old.numel() else old.stride(0))
    with pytest.raises(ValueError, match=f"{field}: expected shape"):
        setattr(sim, field, new[:1])
    with pytest.raises(ValueError, match=f"{field}: expected shape"):
        setattr(sim, field, new.int() if new.dtype == torch.bool else new.bool())
    assert torch.equal(getattr(sim, field), new)


def test_mocap_and_applied_forces_act():
    sim, free = arm(2, dtype=torch.float64), arm(2, dtype=torch.float64)
    sim.mocap_pos = [[[0.0, 0, 3]], [[1.0, 0, 1]]]
    assert sim.body("target").pos.tolist() == [[0.0, 0, 3], [1.0, 0, 1]]
    xfrc = torch.zeros(2, sim.model.nbody, 6)
    xfrc[1, sim.body("cube").id, 2] = 100.0
    sim.xfrc_applied = xfrc
    sim.step()
    free.step()
    assert torch.equal(sim.qpos[0], free.qpos[0])
    assert sim.body("cube").pos[1, 2] > free.body("cube").pos[1, 2] + 0.01


# reset


def test_reset_of_some_worlds():
    sim, fresh = stirred(4), arm(4)
    sim.mocap_pos = sim.mocap_pos + 1.0
    before = held(sim)
    sim.reset(torch.tensor([False, True, False, True]))
    assert_same(held(sim), before, [0, 2])
    assert_same(held(sim), held(fresh), [1, 3])
    assert sim.time.tolist() == [0.02, 0.0] * 2
    sim.step(torch.zeros(4, 2))
    fresh.step(torch.zeros(4, 2))
    assert_same(held(sim), held(fresh), [1, 3])
    sim.reset([True] * 4)
    sim.reset()
    assert_same(held(sim), held(arm(4)))


def test_reset_to_a_keyframe():
    sim = stirred(3)
    before = held(sim)
    sim.reset([True, False, True], keyframe="raised")
    d = mujoco.MjData(sim.mj_model)
    mujoco.mj_resetDataKeyframe(sim.mj_model, d, 0)
    for name in ("qpos", "qvel", "act", "ctrl", "mocap_pos", "mocap_quat"):
        np.testing.assert_array_equal(getattr(sim, name)[2], getattr(d, name))
    assert sim.time.tolist()[::2] == [0.4, 0.4]
    assert_same(held(sim), before, [1])
    sim.reset(keyframe=0)
    assert torch.equal(sim.qpos[0], sim.qpos[1])
    with pytest.raises(UnknownName, match="raised"):
        sim.reset(keyframe="raise")


def test_wrong_masks_are_refused():
    sim = stirred(3)
    before, state = held(sim), sim.state()
    for mask in (torch.tensor([True, False]), torch.tensor([1, 0, 1]), True, [0, 2],
                 torch.zeros(3, 1, dtype=torch.bool),
                 torch.zeros(3, dtype=torch.bool, device="meta")):  # fmt: skip
        with pytest.raises(ValueError, match=r"mask: expected shape \(3,\), torch.bool, on cpu"):
            sim.reset(mask)
        with pytest.raises(ValueError, match="mask: expected shape"):
            sim.load_state(state, mask)
    assert_same(held(sim), before)


# state


def test_c39_same_on_every_run_and_in_every_company():
    ends = []
    for worlds in (6, 6, 2):
        sim = stirred(6)
        if worlds < 6:
            few = arm(worlds)
            for name in ("qpos", "qvel", "act", "ctrl"):
                setattr(few, name, getattr(sim, name)[:worlds])
            few._change(few.data.__class__(**{n: getattr(sim.data, n)[:worlds] for n in HELD}))
            sim = few
        for _ in range(10):
            sim.step()
        ends.append(held(sim))
    assert_same(ends[0], ends[1])
    assert_same({name: value[:2] for name, value in ends[0].items()}, ends[2])


def test_c39_restore_continues_bitwise():
    sim = stirred(6)
    for _ in range(6):
        sim.step(torch.full((6, 2), 0.5))
    state = pickle.loads(pickle.dumps(sim.state()))
    for _ in range(6):
        sim.step()
    first, contact = held(sim), sim.in_contact("cube", "floor")
    sim.qpos, sim.ctrl = torch.zeros_like(sim.qpos), torch.ones_like(sim.ctrl)
    sim.load_state(state)
    for _ in range(6):
        sim.step()
    assert_same(held(sim), first)
    assert torch.equal(sim.in_contact("cube", "floor"), contact)
    other = arm(6)
    other.load_state(state)
    for _ in range(6):
        other.step()
    assert_same(held(other), first)


def test_c39_restore_of_some_worlds():
    sim = stirred(6)
    state, then = sim.state(), held(sim)
    for _ in range(3):
        sim.step()
    now = held(sim)
    mask = torch.zeros(6, dtype=torch.bool)
    mask[[3, 5]] = True
    sim.load_state(state, mask)
    assert_same(held(sim), then, [3, 5])
    assert_same(held(sim), now, [0, 1, 2, 4])


def test_c39_foreign_states_are_refused():
    sim = stirred(3)
    before = held(sim)
    heavier = alloy.build(ARM.replace('mass=".2"', 'mass=".3"'), worlds=3, dtype=torch.float64)
    assert torch.equal(stirred(3).state().tensors["qpos"], sim.qpos)
    foreign = {
        "another model": heavier.state(),
        r"qpos: .* received shape \(2, ": arm(2).state(),
        "torch.float32": arm(3, dtype=torch.float32).state(),
    }
    for message, state in foreign.items():
        with pytest.raises(ValueError, match=message):
            sim.load_state(state)
    assert_same(held(sim), before)


def test_state_holds_health():
    sim = stirred(2)
    sim.qvel[1, 0] = math.nan
    sim.step()
    state = sim.state()
    sim.reset()
    assert not sim.health().invalid.any()
    sim.load_state(state)
    assert sim.health().invalid.tolist() == [False, True]


# health


def test_solver_statistics_tell_whether_it_converged():
    sim = stirred()
    for _ in range(20):
        sim.step()
    found = sim.solver_statistics()
    assert found.gradient.shape == (3,)
    assert (found.gradient < 1e-8).all()
    assert (found.constraints > 0).all()


def test_the_gradient_is_that_of_mujocos_cost():
    source = ARM.replace("timestep", 'iterations="1" timestep')
    sim = alloy.build(source, worlds=1, dtype=torch.float64)
    sim.qvel = torch.tensor([[-9.0, 1.0, -0.6, 0.8, 3.0, 2.0, -5.0, 9.0, -8.0, 4.0]]).double()
    for _ in range(100):  # until one iteration is not enough
        sim.step()
        if sim.solver_statistics().gradient[0] > 1e-6:
            break
    found, qacc = sim.solver_statistics(), sim.at("acceleration").qacc[0].numpy()
    mj, mjd = twin(sim, 0)
    force, rows = np.zeros(mj.nv), oracle_rows(mj, mjd)[:, : mj.nv]
    mujoco.mj_mulM(mj, mjd, force, qacc)
    mujoco.mj_constraintUpdate(mj, mjd, rows @ qacc - mjd.efc_aref, np.zeros(1), 0)
    left = np.linalg.norm(force - mjd.qfrc_smooth - rows.T @ mjd.efc_force)
    assert found.iterations.tolist() == [1]
    assert found.gradient[0] > 1e-6
    assert found.gradient[0].item() == pytest.approx(left / (mj.stat.meaninertia * mj.nv), 1e-6)


def test_c36_bad_controls_count_as_zero():
    sim, clean = stirred(8), stirred(8)
    for value in (math.nan, math.inf, 1e12):
        ctrl = torch.full((8, 2), 0.5)
        ctrl[3, 1] = value  # the actuator without a range
        sim.step(ctrl)
        ctrl[3] = 0.0
        clean.step(ctrl)
        assert torch.isfinite(sim.ctrl).all()
        assert torch.isfinite(sim.sensordata).all()
    assert_same(held(sim), held(clean))
    assert sim.health().bad_ctrl.tolist() == [0, 0, 0, 3, 0, 0, 0, 0]
    assert not sim.health().invalid.any()
    sim.reset()
    assert not sim.health().bad_ctrl.any()


def test_c36_non_finite_controls_read_finite_forces():
    sim = arm(2)
    sim.ctrl = [[math.nan, 0.0], [0.5, 0.5]]
    assert sim.actuator("arm/lift").force.isfinite().all()
    assert sim.qacc.isfinite().all()
    assert sim.ctrl[0, 0].isnan()  # only a step replaces them


def test_c36_world_written_bad_is_frozen_alone():
    sim, clean = stirred(8), stirred(8)
    sim.qvel[5, 2] = math.nan
    for _ in range(3):
        sim.step()
        clean.step()
    health = sim.health()
    assert health.invalid.tolist() == [i == 5 for i in range(8)]
    others = [0, 1, 2, 3, 4, 6, 7]
    assert_same(held(sim), held(clean), others)
    for value in (sim.qpos, sim.qvel, sim.sensordata, sim.body("arm/hand").linvel, sim.qacc):
        assert torch.isfinite(value).all()
    sim.reset(health.invalid)
    assert not sim.health().invalid.any()
    fresh = arm(8)
    for _ in range(100):
        sim.step(substeps=1)
        fresh.step(substeps=1)
    assert_same(held(sim), held(fresh), [5])
    assert not sim.health().invalid.any()


def test_strict_raises_and_names_worlds():
    sim = stirred(4, strict=True)
    sim.step()
    sim.qvel[2, 0] = math.inf
    with pytest.raises(SimulationError, match=r"worlds \[2\] \(1 of 4\)"):
        sim.step()
    sim.reset(sim.health().invalid)
    sim.step()


def test_health_reports_solver_iterations():
    sim = arm(2)
    assert sim.health().solver_iterations.tolist() == [0, 0]
    qpos = sim.qpos.clone()
    qpos[1, 7] = 5.0
    sim.qpos = qpos
    sim.step(substeps=2)
    health = sim.health()
    assert health.solver_iterations[0] > 0
    assert health.solver_iterations.shape == health.dropped_contacts.shape == (2,)


# clocks and memory


def test_c30_time_is_steps_times_dt():
    sim = arm(2, dtype=torch.float32)
    count = 10**6
    state = sim.state()
    state.tensors["step_count"].fill_(count)
    sim.load_state(state)
    torch.testing.assert_close(sim.time.double(), torch.full((2,), count * 0.01).double(),
                               rtol=1e-6, atol=0)  # fmt: skip
    sim.step(substeps=1)
    assert sim.data.step_count.tolist() == [count + 1] * 2


def test_c40_memory_is_constant():
    sim = stirred(16)
    reports = []
    for _ in range(3):
        for _ in range(5):
            sim.step()
            _ = sim.contacts(), sim.sensordata
        sim.reset(torch.arange(16) < 4)
        sim.step()
        reports.append(sim.memory_report())
    assert reports[0] == reports[1] == reports[2]
    report = reports[0]
    assert report["total"] == sum(v for k, v in report.items() if k != "total")
    double = 8 * 16
    assert report["state"] >= double * (12 + 10 + 1 + 10 + 1)
    few = stirred(2)
    assert few.memory_report()["model"] == report["model"]
    assert few.memory_report()["inputs"] * 8 == report["inputs"]


def test_engine_report():
    report = arm(1, engine="reference").engine_report()
    assert report["engine"] == "reference"
    assert report["device"] == "cpu"
    assert report["dtype"] == "torch.float64"


def test_import_is_light():
    code = (
        "import sys, alloy; assert alloy.__version__; "
        "loaded = {'torch', 'mujoco', 'triton', 'gymnasium'} & set(sys.modules); "
        "assert not loaded, loaded; assert {'build', 'envs', 'Scene'} <= set(dir(alloy)); "
        "sys.modules['triton'] = None; alloy.build; alloy.Scene; alloy.Simulator"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'scene_of'"):
        _ = alloy.scene_of


# randomization


def bouncing(worlds: int, seed=0) -> Simulator:
    scene = alloy.Scene(dt=0.02, physics_dt=0.01)
    scene.add_ground()
    scene.add_box("box", size=(0.1, 0.1, 0.1), pos=(0, 0, 0.06), mass=1.0)
    scene.randomize("box", "mass", 0.5, 2.0)
    scene.randomize("world", "gravity", -11.0, -8.0)
    return alloy.build(scene, worlds=worlds, seed=seed, dtype=torch.float64)


def test_randomized_quantities_follow_seed_and_episode():
    sim = bouncing(4, seed=5)
    mass = sim.body("box").mass
    assert len(mass.unique()) == 4
    assert ((mass > 0.5) & (mass < 2.0)).all()
    assert torch.equal(bouncing(2, seed=[7, 5]).body("box").mass, mass[[2, 0]])
    weight = sim.mj_model.body_mass[1]
    sim.step()
    expected = -sim.model.gravity[:, 2] * 0.02
    torch.testing.assert_close(-sim.joint(0).qvel[:, 2], expected)
    assert weight == 1.0

    sim.randomize(torch.tensor([0, 1, 0, 1]))
    again = sim.body("box").mass
    assert torch.equal(again[::2], mass[::2])
    assert (again[1::2] != mass[1::2]).all()
    sim.randomize([0] * 4)
    assert torch.equal(sim.body("box").mass, mass)
    for wrong in ([0], [0.5] * 4, [True] * 4):
        with pytest.raises(ValueError, match=r"episode: expected shape \(4,\), torch.int64"):
            sim.randomize(wrong)


def test_state_holds_what_was_drawn():
    sim = bouncing(3, seed=1)
    sim.randomize([4, 5, 6])
    sim.step()
    state, mass = sim.state(), sim.body("box").mass
    for _ in range(5):
        sim.step()
    first = held(sim)
    with pytest.raises(ValueError, match="another model"):  # the same, but nothing is drawn
        alloy.build(sim.mj_model, worlds=3, dtype=torch.float64).load_state(state)
    other = bouncing(3, seed=70)
    old = other.body("box").mass
    other.load_state(state, [True, False, True])
    assert torch.equal(other.body("box").mass, torch.stack([mass[0], old[1], mass[2]]))
    other.load_state(state)
    assert other.seed.tolist() == [1, 2, 3]
    for _ in range(5):
        other.step()
    assert_same(held(other), first)


def test_a_misspelt_attribute_is_refused_with_what_was_meant():
    sim = alloy.build(ARM)
    with pytest.raises(AttributeError, match="has no 'qps' to set; did you mean 'qpos'"):
        sim.qps = torch.zeros(1, sim.mj_model.nq)
    assert not hasattr(sim, "qps")
    sim.strict = True
