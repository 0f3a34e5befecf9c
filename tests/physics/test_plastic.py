"""Springs that yield against MuJoCo in float64; where they are at rest is part of the state."""

import mujoco
import numpy as np
import pytest
import torch

import alloy
from alloy.physics import forward, io
from alloy.physics.model import make_data
from tests.physics.fixture import assert_close, fixture, random_state

# joints of every kind that has a spring, elastic ones between those that yield, tendons that may
# be slack or stiff, one that is spatial, and one spring without stiffness
SCENE = """
<mujoco><compiler angle="radian"/><option timestep=".004" integrator="{}">{}</option><worldbody>
  <site name="w" pos=".4 0 1"/>
  <body pos="0 0 1"><joint type="ball" stiffness="2 1" springyield=".3" damping=".1"/>
    <geom size=".1" pos=".2 .1 0"/>
    <body pos=".3 0 0"><joint name="h" axis="0 1 0" stiffness="3" springyield=".2" springref=".1"/>
      <geom size=".1" pos=".1 0 0"/><site name="p" pos=".1 0 .1"/>
      <body pos=".3 0 0"><joint name="e" axis="1 1 0" stiffness="2"/><geom size=".08"/>
        <body pos=".1 0 0"><joint name="s" type="slide" axis="0 1 0" stiffness="9 0 3"
          springyield=".05" ref=".1" damping=".2"/><joint name="z" type="slide" axis="0 0 1"
          springyield=".1"/><geom size=".08" pos="0 .1 0"/></body></body></body></body>
  <body pos="1 0 1"><joint type="free" stiffness="1"/><geom type="box" size=".1 .2 .3"/></body>
</worldbody>
<tendon>
  <spatial name="rope" stiffness="9" springyield=".03" springlength="0 .4"><site site="w"/>
    <site site="p"/></spatial>
  <fixed stiffness="3"><joint joint="h" coef="1"/></fixed>
  <fixed stiffness="4 1" springyield=".1" springlength="-.1 .2"><joint joint="h" coef="2"/>
    <joint joint="s" coef="-3"/></fixed>
  <fixed stiffness="4" springyield=".1" springlength="0 .2"><joint joint="s" coef="2"/></fixed>
  <fixed stiffness="4" springyield=".1" springlength=".1"><joint joint="e" coef="2"/></fixed>
</tendon>
<sensor><e_potential/></sensor>
<keyframe><key time=".4" qpos=".8 .6 0 0 .3 0 .1 .2 1 0 1 1 0 0 0" plastic="1 0 0 0 .2 -.1 .05
  .1 .5 -.2 .1 0 .3 .2 .2"/></keyframe></mujoco>"""
ENERGY = '<flag energy="enable"/>'
INTEGRATORS = ("Euler", "RK4", "implicit", "implicitfast")


def build(integrator: str = "Euler", worlds: int = 1, flag: str = "", **kw) -> alloy.Simulator:
    mj = mujoco.MjModel.from_xml_string(SCENE.format(integrator, flag))
    return alloy.build(mj, worlds, **({"dtype": torch.float64, "engine": "reference"} | kw))


def moving(worlds: int = 3, **kw) -> alloy.Simulator:
    """A simulator whose worlds differ and yield."""
    sim = build(worlds=worlds, **kw)
    rng = np.random.default_rng(2)
    qvel = torch.from_numpy(3 * rng.normal(size=(worlds, sim.mj_model.nv)))
    sim.qvel = qvel.to(sim.dtype)
    return sim


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_forces_energy_and_a_step_equal_mujoco(integrator):
    for seed in range(5):
        f = fixture(SCENE.format(integrator, ENERGY), seed)
        before = f.mjd.plastic.copy()
        d = forward.forward(f.m, f.d)
        for field in ("qfrc_spring", "qfrc_passive", "sensordata", "qacc"):
            assert_close(getattr(d, field), getattr(f.mjd, field), field)
        d = forward.step(f.m, f.d)
        mujoco.mj_step(f.mj, f.mjd)
        assert (f.mjd.plastic != before).sum() > 4
        for field in ("qpos", "qvel", "plastic", "ten_length"):
            assert_close(getattr(d, field), getattr(f.mjd, field), field, rtol=1e-11)


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_a_run_equals_mujoco(integrator):
    f = fixture(SCENE.format(integrator, ""))
    mujoco.mj_resetData(f.mj, f.mjd)
    f.mjd.qvel[:] = 3 * np.random.default_rng(1).normal(size=f.mj.nv)
    start = f.mjd.plastic.copy()
    d = make_data(f.m, 1)
    np.testing.assert_array_equal(d.plastic[0].numpy(), start)
    d.qvel[0] = torch.from_numpy(f.mjd.qvel)
    yielded = np.zeros(f.mj.nplastic, int)
    for _ in range(150):
        last = f.mjd.plastic.copy()
        d = forward.step(f.m, d)
        mujoco.mj_step(f.mj, f.mjd)
        yielded += f.mjd.plastic != last
    for field in ("qpos", "qvel", "plastic"):
        assert_close(getattr(d, field), getattr(f.mjd, field), field)
    # all have yielded, but for the lower lengths of tendons that may be slack and were pulled
    slack = f.mj.tendon_plasticadr[[0, 3]]
    assert np.flatnonzero(yielded == 0).tolist() == slack.tolist(), yielded
    assert (f.mjd.plastic[slack] == 0).all()


def test_quaternions_of_any_sign_and_length():
    f = fixture(SCENE.format("Euler", ""))
    rng = np.random.default_rng(0)
    for scale in (1.0, -1.0, 2.0, -0.5):
        random_state(f.mj, f.mjd, rng)
        f.mjd.plastic[:4] = rng.normal(size=4)
        f.mjd.qpos[:4] *= scale
        d = io.put_data(f.m, f.mj, f.mjd)
        d = forward.step(f.m, d)
        mujoco.mj_step(f.mj, f.mjd)
        assert_close(d.plastic, f.mjd.plastic, f"plastic at {scale}", rtol=1e-11)
        assert_close(d.qvel, f.mjd.qvel, f"qvel at {scale}")


def test_a_hinge_by_hand():
    """It yields at 0.2 rad and springs back by as much: at rest it has turned for good."""
    sim = alloy.build(
        '<mujoco><compiler angle="radian"/><option gravity="0 0 0" timestep=".001"/><worldbody>'
        '<body><joint axis="0 1 0" stiffness="9" springyield=".2" damping="3"/>'
        '<geom size=".1" mass="1" pos=".3 0 0"/></body></worldbody></mujoco>',
        dtype=torch.float64,
    )
    sim.qpos = [[0.7]]
    sim.step(substeps=1)
    assert sim.plastic.item() == pytest.approx(0.5, abs=1e-4)
    assert sim.plastic.item() == pytest.approx(sim.qpos.item() - 0.2, abs=1e-15)
    for _ in range(100):
        sim.step(substeps=50)
    assert sim.plastic.item() == pytest.approx(0.5, abs=1e-4)
    assert sim.qpos.item() == pytest.approx(sim.plastic.item(), abs=1e-3)


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_without_springs_nothing_yields(integrator):
    f = fixture(SCENE.format(integrator, '<flag spring="disable"/>'), 3)
    d = forward.step(f.m, f.d)
    mujoco.mj_step(f.mj, f.mjd)
    assert_close(d.qvel, f.mjd.qvel, "qvel")
    np.testing.assert_array_equal(d.plastic[0].numpy(), f.mjd.plastic)
    assert torch.equal(d.plastic, f.d.plastic)


def test_looking_yields_nothing():
    sim = build()
    sim.qpos = sim.qpos + 0.7
    before = sim.plastic.clone()
    sim.forward()
    assert torch.equal(sim.plastic, before)
    sim.step()
    assert not torch.equal(sim.plastic, before)


def test_a_world_does_not_depend_on_its_neighbours():
    sim, alone = moving(), build()
    alone.qvel = sim.qvel[1:2]
    for _ in range(5):
        sim.step(substeps=10)
        alone.step(substeps=10)
    torch.testing.assert_close(sim.plastic[1:2], alone.plastic, rtol=0, atol=1e-12)
    assert not torch.equal(sim.plastic[0], sim.plastic[1])


def test_it_is_saved_restored_and_reset_by_world():
    sim = moving()
    start = sim.plastic.clone()
    sim.step(substeps=30)
    saved, after = sim.state(), []
    for _ in range(2):
        sim.step(substeps=30)
        after.append(sim.plastic.clone())
        sim.load_state(saved)
    assert torch.equal(*after)
    assert not torch.equal(after[0], saved.tensors["plastic"])
    kept = sim.plastic.clone()
    sim.reset(mask=[False, True, False])
    assert torch.equal(sim.plastic[1], start[1])
    assert torch.equal(sim.plastic[::2], kept[::2])


def test_a_keyframe_has_it():
    sim = moving()
    before = sim.plastic.clone()
    sim.reset([True, False, True], keyframe=0)
    mjd = mujoco.MjData(sim.mj_model)
    mujoco.mj_resetDataKeyframe(sim.mj_model, mjd, 0)
    np.testing.assert_array_equal(sim.plastic[2].numpy(), mjd.plastic)
    assert torch.equal(sim.plastic[1], before[1])


def test_a_world_that_has_stopped_yields_no_more():
    sim = moving()
    sim.step(substeps=9)
    before, bad = sim.plastic.clone(), sim.qfrc_applied.clone()
    bad[1] = 1e30
    sim.qfrc_applied = bad
    sim.step(substeps=9)
    assert sim.health().invalid.tolist() == [False, True, False]
    assert torch.equal(sim.plastic[1], before[1])
    assert not torch.equal(sim.plastic[0], before[0])


def test_a_world_that_comes_in_bad_starts_again():
    sim = moving()
    start = sim.plastic.clone()
    sim.step(substeps=9)
    bad = sim.plastic.clone()
    bad[2, 4] = torch.nan
    sim.plastic = bad
    sim.step()
    assert sim.health().invalid.tolist() == [False, False, True]
    assert torch.equal(sim.plastic[2], start[2])
    assert torch.equal(sim.qpos[2], sim.model.qpos0[0])


@pytest.mark.parametrize("integrator", ["Euler", "RK4", "implicitfast"])
def test_lanes_agrees(integrator):
    ours = moving(integrator=integrator, dtype=torch.float32, engine="lanes")
    theirs = moving(integrator=integrator)
    for sim in (ours, theirs):
        sim.step(substeps=10)
    assert "refused" not in str(ours.engine_report())
    for field in ("qpos", "qvel", "plastic"):
        actual, expected = getattr(ours, field).double(), getattr(theirs, field)
        torch.testing.assert_close(actual, expected, atol=2e-4, rtol=1e-4)
    rest = theirs.model.derived["start"]["plastic"]
    assert ((theirs.plastic - rest).abs() > 1e-2).any(0).sum() > 4


def test_kernels_of_the_gpu_leave_it_to_the_reference():
    for stage in ("passive", "integrate"):
        kernel = pytest.importorskip(f"alloy.ops.triton.{stage}")
        assert not kernel.has_kernel(build().model)


@pytest.mark.parametrize(
    ("field", "where", "named"),
    [("springref", "h", "'h' yields"), ("tendon_springlength", "rope", "'rope' yields")],
)
def test_where_they_are_at_rest_is_not_drawn(field, where, named):
    scene = alloy.Scene.from_mjcf(SCENE.format("Euler", ""))
    low = (0.1, 0.2) if field == "tendon_springlength" else 0.1
    with pytest.raises(ValueError, match=named):
        scene.randomize(where, field, low=low, high=low)
        alloy.build(scene)
