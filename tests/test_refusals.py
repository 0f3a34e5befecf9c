"""What a user can get wrong: each refusal says what was wrong, and nothing has changed then.

And scenes with little in them: all of the interface works on them.
"""

import dataclasses

import numpy as np
import pytest
import torch

import alloy
from alloy.names import UnknownName

GROUND = '<geom name="ground" type="plane" size="1 1 1"/>'
ARM = f"""<mujoco><worldbody>{GROUND}
  <body name="arm" pos="0 0 1"><joint name="turn" axis="0 1 0"/><geom name="rod" size=".1"/></body>
  <body name="cube" pos="1 0 1"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
</worldbody><actuator><motor name="m" joint="turn"/></actuator></mujoco>"""


def build(text: str, worlds: int = 2) -> alloy.Simulator:
    return alloy.build(text, worlds, dtype=torch.float64, engine="reference")


def test_numbers_of_any_integer_type_count():
    sim = alloy.build(ARM, worlds=np.int64(3), seed=np.array([4, 5, 9]), engine="reference")
    sim.step(substeps=np.int32(2))
    assert sim.seed.tolist() == [4, 5, 9]
    assert sim.time.tolist() == pytest.approx([0.004] * 3)
    for substeps in (True, 0, 2.0, "2"):
        with pytest.raises(ValueError, match="substeps must be a whole number"):
            sim.step(substeps=substeps)


@pytest.mark.parametrize("device", ["gpu", "CPU", "meta", "cuda:x"])
def test_what_is_no_device_is_refused(device):
    with pytest.raises(ValueError, match=f"device .*'{device}'"):
        alloy.build(ARM, device=device)


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(RuntimeError, match=r"device 'cuda:99' is not there: .*Use 'cpu'"):
        alloy.build(ARM, device="cuda:99")


@pytest.mark.parametrize("name", [None, 7, -1, 1.5, ["arm"], "armm"])
def test_names_that_are_none_say_what_there_is(name):
    sim = build(ARM)
    for kind in ("body", "frame"):
        with pytest.raises(UnknownName, match=r"'arm', .*'cube'"):
            getattr(sim, kind)(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: None, "not a NoneType"),
        (lambda s: s.tensors, "not a dict"),
        (lambda s: without(s, "qvel"), "qvel: expected shape"),
        (lambda s: changed(s, qvel=torch.zeros(2, 3)), r"qvel: .* received shape \(2, 3\)"),
        (lambda s: changed(s, qvel=s.tensors["qvel"].float()), "qvel: .* received .*float32"),
    ],
)
def test_states_that_do_not_fit_are_refused(change, message):
    sim = build(ARM)
    sim.step()
    before = sim.state()
    with pytest.raises(ValueError, match=message):
        sim.load_state(change(sim.state()))
    after = sim.state()
    assert all(torch.equal(after.tensors[name], before.tensors[name]) for name in before.tensors)


def without(state, name):
    return dataclasses.replace(state, tensors={n: t for n, t in state.tensors.items() if n != name})


def changed(state, **tensors):
    return dataclasses.replace(state, tensors=state.tensors | tensors)


def test_a_text_that_is_empty_is_said_to_be():
    with pytest.raises(ValueError, match="the text is empty"):
        alloy.build(" \n")


@pytest.mark.parametrize(
    ("body", "rest", "message"),
    [
        ("<geom type='ball'/>", "", "'ball'"),
        ("<body name='b'><joint/></body>", "", "mass and inertia .*'b'"),
        ("<body name='b' quat='0 0 0 0'/>", "", "quat"),
        ("", "<sensor><jointpos name='s' joint='none'/></sensor>", "'none' .*'s'"),
    ],
)
def test_a_broken_file_is_named_with_what_mujoco_says(tmp_path, body, rest, message):
    path = tmp_path / "robot.xml"
    path.write_text(f"<mujoco><worldbody>{body}</worldbody>{rest}</mujoco>")
    with pytest.raises(ValueError, match=f"(?s)robot.xml.*{message}"):
        alloy.build(path)


def test_randomizing_what_has_no_name_is_refused():
    scene = alloy.Scene.from_mjcf(ARM)
    with pytest.raises(ValueError, match=r"entity must be a name .*None"):
        scene.randomize(None, "mass", 1, 2)
    assert scene.randomizations == ()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("body", "rest"),
    [
        ("", ""),
        (GROUND, ""),
        (GROUND + '<body pos="0 0 .05"><geom size=".1"/></body>', ""),
        (GROUND + '<body name="hand" mocap="true" pos="0 0 .05"><geom size=".1"/></body>', ""),
        (
            '<body name="hand" mocap="true"/><body name="post"/>',
            '<equality><weld body1="hand" body2="post"/></equality>',
        ),
    ],
)
def test_scenes_where_nothing_moves_by_itself(body, rest, dtype):
    text = f"<mujoco><worldbody>{body}</worldbody>{rest}</mujoco>"
    engine = "lanes" if dtype == torch.float32 else "reference"
    sim = alloy.build(text, worlds=3, dtype=dtype, engine=engine)
    start = sim.state()
    if sim.names()["mocap"]:
        sim.mocap_pos = sim.mocap_pos + 1
    sim.step()
    sim.forward()
    assert sim.qpos.shape == (3, 0)
    assert sim.contacts().force.shape == (3, 0, 3)
    assert not sim.health().invalid.any()
    if sim.names()["mocap"]:
        assert (sim.body("hand").pos[:, 0] == 1).all()
    sim.load_state(start)
    assert sim.time.tolist() == [0, 0, 0]


@pytest.mark.parametrize("field", ["qfrc_applied", "xfrc_applied"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_c36_a_force_that_is_no_number_troubles_its_own_world_only(field, value):
    sim, clean = build(ARM, 3), build(ARM, 3)
    for s in (sim, clean):  # the cube on the ground, so that there are constraints
        s.qpos = torch.tensor([[0.0, 1, 0, 0.1, 1, 0, 0, 0]] * 3)
    force = getattr(sim, field).clone()
    force[1] = value
    setattr(sim, field, force)
    sim.step()
    clean.step()
    assert sim.health().invalid.tolist() == [False, True, False]
    assert torch.equal(sim.qpos[[0, 2]], clean.qpos[[0, 2]])
    assert torch.isfinite(sim.qpos).all()
    sim.reset()
    clean.reset()
    sim.step()
    clean.step()
    assert torch.equal(sim.qpos, clean.qpos)


MESH = '<asset><mesh name="m" {}/></asset><worldbody><body><geom type="mesh" mesh="m"/></body>'
FIELD = '<asset><hfield name="h" {}/></asset><worldbody><geom type="hfield" hfield="h"/>'


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        (MESH.format('vertex="0 0 0 1 0 0 0 1 0 1 1 0"'), "mesh 'm' has coplanar vertices"),
        (MESH.format('vertex="0 0 0 1 0 0 0 1 0"'), r"at least 4 vertices required\n.*name 'm'"),
        (MESH.format('file="nothing.stl"'), "opening file 'nothing.stl'"),
        (FIELD.format('nrow="3" ncol="3" size="1 1 1 1" elevation="1"'), r"must match nrow\*ncol"),
        (FIELD.format('nrow="3" ncol="3" size="1 -1 1 1"'), r"not positive in hfield\n.*name 'h'"),
        (FIELD.format('nrow="1" ncol="3" size="1 1 1 1"'), r"at least 2\n.*name 'h'"),
        (FIELD.format('size="1 1 1 1" file="none.png"'), "opening file 'none.png'"),
    ],
)  # fmt: skip
def test_meshes_and_height_fields_that_are_none(inside, message):
    with pytest.raises(ValueError, match=message):
        alloy.build(f"<mujoco>{inside}</worldbody></mujoco>")
