import math
from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from alloy.engines import advance, guarded_step, make_engine, make_guard, usable_ctrl
from alloy.physics import forward, io
from alloy.physics.model import INPUTS, STATE, Data, Model, make_data

PENDULUM = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <geom type="plane" size="2 2 .1"/>
    <body pos="0 0 0.6">
      <joint name="swing" axis="0 1 0" damping="0.05"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.04"/>
      <body pos="0 0 -0.4">
        <joint name="tip" axis="0 1 0" damping="0.05" range="-1 1" limited="true"/>
        <geom type="sphere" size="0.05" pos="0 0 -0.25"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="swing" gear="3" ctrlrange="-1 1" ctrllimited="true"/>
    <general joint="tip" gear="2" dyntype="filter" dynprm="0.02" gainprm="2"/>
  </actuator>
</mujoco>
"""


def pendulum(
    worlds: int, dtype: torch.dtype = torch.float64, xml: str = PENDULUM
) -> tuple[Model, Data]:
    m = io.put_model(mujoco.MjModel.from_xml_string(xml), dtype=dtype)
    d = make_data(m, worlds)
    angle = torch.linspace(0.3, 1.5, worlds, dtype=dtype)
    return m, replace(d, qpos=torch.stack([angle, -0.5 * angle]).mT)  # world axis last in memory


def held(d: Data) -> dict[str, torch.Tensor]:
    return {name: getattr(d, name) for name in (*STATE, *INPUTS)}


def assert_same_worlds(a: Data, b: Data, worlds: list[int]) -> None:
    for name, value in held(a).items():
        assert torch.equal(value[worlds], getattr(b, name)[worlds]), name


def test_sound_worlds_run_substeps_of_forward_step():
    m, d = pendulum(5)
    d = replace(d, ctrl=torch.linspace(-1, 1, 10, dtype=torch.float64).reshape(5, 2))
    expected = d
    for _ in range(3):
        expected = forward.step(m, expected)
    actual, guard = guarded_step(m, d, make_guard(5, "cpu"), 3)
    for name in (*held(d), "qacc", "xpos", "efc_force"):
        assert torch.equal(getattr(actual, name), getattr(expected, name)), name
    assert not guard.invalid.any()
    assert guard.bad_ctrl.tolist() == [0] * 5


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2e10])
@pytest.mark.parametrize("field", ["qpos", "qvel", "act"])
def test_world_that_comes_in_bad_starts_again_and_stands_still(field, value):
    m, d = pendulum(4)
    clean, _ = guarded_step(m, d, make_guard(4, "cpu"), 2)
    written = getattr(d, field).clone()
    written[2, 0] = value
    d, guard = guarded_step(m, replace(d, **{field: written}), make_guard(4, "cpu"), 2)
    assert guard.invalid.tolist() == [False, False, True, False]
    assert_same_worlds(d, clean, [0, 1, 3])
    assert torch.equal(d.qpos[2], m.qpos0[0])
    assert not any(x[2].any() for x in (d.qvel, d.act, d.qacc_warmstart, d.step_count))


def test_world_that_blows_up_keeps_its_last_sound_state():
    m, d = pendulum(3)
    force = torch.zeros_like(d.qfrc_applied)
    force[1, 0] = 1e30
    before, guard = guarded_step(m, d, make_guard(3, "cpu"), 4)
    d, guard = guarded_step(m, replace(before, qfrc_applied=force), guard, 4)
    assert guard.invalid.tolist() == [False, True, False]
    for name in STATE:
        assert torch.equal(getattr(d, name)[1], getattr(before, name)[1]), name
    # and stays where it is without the force, while the others go on
    again, guard = guarded_step(m, replace(d, qfrc_applied=torch.zeros_like(force)), guard, 4)
    assert guard.invalid.tolist() == [False, True, False]
    assert again.step_count.tolist() == [12, 4, 12]
    assert torch.equal(again.qpos[1], before.qpos[1])


@pytest.mark.parametrize(
    "ctrl", [(0.5, 0.5), (math.nan, 0.5), (0.5, math.nan), (math.inf, 0.5), (0.5, -math.inf),
             (1e12, 0.5), (0.5, 1e12), (-3.0, 1e3)]
)  # fmt: skip
def test_c36_controls_count_as_in_mujoco(ctrl):
    m, d = pendulum(3)
    mj = mujoco.MjModel.from_xml_string(PENDULUM)
    mjd = mujoco.MjData(mj)
    mjd.qpos[:] = d.qpos[1]
    mjd.ctrl[:] = ctrl
    mujoco.mj_step(mj, mjd)
    mujoco.mj_step(mj, mjd)
    warned = mjd.warning[mujoco.mjtWarning.mjWARN_BADCTRL].number > 0

    controls = torch.full_like(d.ctrl, 0.25)
    controls[1] = torch.tensor(ctrl)
    clean, _ = guarded_step(m, replace(d, ctrl=torch.full_like(d.ctrl, 0.25)),
                            make_guard(3, "cpu"), 2)  # fmt: skip
    d, guard = guarded_step(m, replace(d, ctrl=controls), make_guard(3, "cpu"), 2)
    assert_same_worlds(d, clean, [0, 2])
    np.testing.assert_allclose(d.qpos[1], mjd.qpos, rtol=1e-9)
    np.testing.assert_allclose(d.qvel[1], mjd.qvel, rtol=1e-9)
    np.testing.assert_allclose(d.act[1], mjd.act, rtol=1e-9)
    assert guard.bad_ctrl.tolist() == [0, int(warned), 0]
    assert torch.isfinite(d.ctrl).all()


def test_controls_without_clamping_or_without_actuators():
    flag = '<option><flag clampctrl="disable"/></option>'
    xml = PENDULUM.replace('<option timestep="0.005"/>', flag)
    m = io.put_model(mujoco.MjModel.from_xml_string(xml))
    usable, bad = usable_ctrl(m, torch.tensor([[5.0, 5.0], [math.inf, 0.0]]))
    assert usable.tolist() == [[5.0, 5.0], [0.0, 0.0]]
    assert bad.tolist() == [False, True]
    passive = PENDULUM[: PENDULUM.index("<actuator>")] + "</mujoco>"
    m = io.put_model(mujoco.MjModel.from_xml_string(passive))
    d, guard = guarded_step(m, make_data(m, 2), make_guard(2, "cpu"), 2)
    assert d.step_count.tolist() == [2, 2]
    assert not guard.invalid.any()


def test_advance_equals_forward_and_leaves_controls_alone():
    m, d = pendulum(2)
    ctrl = torch.tensor([[0.3, 0.4], [math.nan, 1.0]], dtype=torch.float64)
    whole = forward.forward(m, replace(d, ctrl=torch.nan_to_num(ctrl * torch.tensor([[1], [0]]))))
    by_stage = d = replace(d, ctrl=ctrl)
    for done, stage in (("state", "kinematics"), ("kinematics", "velocity"),
                        ("velocity", "acceleration")):  # fmt: skip
        by_stage = advance(m, by_stage, done, stage)
    for at_once in (advance(m, d, "state", "acceleration"), by_stage):
        for name in ("xpos", "efc_J", "qfrc_bias", "actuator_force", "qacc", "sensordata"):
            assert torch.equal(getattr(at_once, name), getattr(whole, name)), name
        assert torch.equal(at_once.ctrl.isnan(), ctrl.isnan())
    only_kinematics = advance(m, d, "state", "kinematics")
    assert only_kinematics.efc_J is None
    assert only_kinematics.qacc is None


def compiled_and_eager(xml: str, other_worlds: int = 0) -> None:
    """Several compiled steps equal eager ones, in one graph, and one more for other worlds."""
    m, d = pendulum(3, torch.float32, xml)
    graphs = []

    def backend(graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> object:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    step = torch.compile(guarded_step, fullgraph=True, backend=backend)
    guard = make_guard(3, "cpu")
    expected, expected_guard = d, guard
    for _ in range(4):
        d, guard = step(m, Data(**held(d)), guard, 1)
        expected, expected_guard = guarded_step(m, expected, expected_guard, 1)
    assert len(graphs) == 1
    torch.testing.assert_close(d.qpos, expected.qpos, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(d.qvel, expected.qvel, rtol=1e-4, atol=1e-5)
    assert torch.equal(guard.invalid, expected_guard.invalid)
    assert d.step_count.dtype == torch.int64
    if other_worlds:
        _, d = pendulum(other_worlds, torch.float32, xml)
        step(m, Data(**held(d)), make_guard(other_worlds, "cpu"), 1)
        assert len(graphs) == 2


# a dimension of size 1 keeps no stride, which would cost a graph: hence no activation in these
STATELESS = PENDULUM.replace('dyntype="filter" dynprm="0.02"', "")


def test_compiles_to_one_graph_per_shape():
    free = '<option><flag constraint="disable"/></option>'
    compiled_and_eager(STATELESS.replace('<option timestep="0.005"/>', free))


@pytest.mark.slow
def test_compiles_to_one_graph_per_shape_with_contacts():
    compiled_and_eager(STATELESS, other_worlds=7)


def test_gradient_flows_through_sound_worlds():
    m, d = pendulum(2)
    ctrl = torch.full((2, 2), 0.2, dtype=torch.float64, requires_grad=True)
    out, _ = guarded_step(m, replace(d, ctrl=ctrl), make_guard(2, "cpu"), 3)
    (gradient,) = torch.autograd.grad(out.qvel.sum(), ctrl)
    eps = 1e-6
    moved = [
        guarded_step(m, replace(d, ctrl=ctrl.detach() + sign * eps), make_guard(2, "cpu"), 3)[0]
        for sign in (1, -1)
    ]
    slope = (moved[0].qvel - moved[1].qvel).sum(-1) / (2 * eps)
    torch.testing.assert_close(gradient.sum(-1), slope, rtol=1e-5, atol=1e-7)


def test_engines_by_name(monkeypatch):
    m, _ = pendulum(1)
    assert make_engine("reference", m).name == "reference"
    assert make_engine("reference", m).report() == {"engine": "reference", "reason": "asked for"}
    monkeypatch.delenv("ALLOY_ENGINE", raising=False)
    auto = make_engine("auto", m)
    assert auto.name == "reference"
    assert "auto" in auto.report()["reason"]
    with pytest.raises(ValueError, match=r"'reference', 'lanes', 'triton'\], not 'fast'"):
        make_engine("fast", m)
    with pytest.raises(
        RuntimeError, match="'triton' needs the model on a CUDA device; it is on cpu"
    ):
        make_engine("triton", m)
    with pytest.raises(ValueError, match=r"'lanes' computes in torch.float32 .* torch.float64"):
        make_engine("lanes", m)
