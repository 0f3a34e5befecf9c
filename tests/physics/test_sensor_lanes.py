"""Rangefinders, distances and contact sensors in compiled programs and in environments."""

import pytest
import torch

import alloy
from alloy.engines import LanesEngine, make_guard
from alloy.envs import Task, VectorEnv, resets
from alloy.envs import checks as C
from alloy.physics import forward, io
from alloy.physics.model import make_data
from tests.physics.fixture import load

# a box that looks at the ground, a post, a beam and an egg, and feels the ground
SCENE = """<mujoco><option timestep="0.005"/><worldbody>
  <geom name="floor" type="plane" size="0 0 1"/>
  <geom name="post" type="cylinder" size=".1 .5" pos=".6 0 .5" contype="0" conaffinity="0"/>
  <geom name="beam" type="capsule" size=".1 .5" pos="0 .6 .5" contype="0" conaffinity="0"/>
  <geom name="egg" type="ellipsoid" size=".1 .2 .3" pos="-.6 0 .5" contype="0" conaffinity="0"/>
  <body name="box" pos="0 0 .11"><freejoint/><geom name="box" type="box" size=".1 .1 .1"/>
    <camera name="eye" resolution="3 2" euler="70 0 0"/>
    <site name="down" zaxis="0 0 -1"/><site name="x" zaxis="1 0 0"/>
    <site name="y" zaxis="0 1 0"/><site name="back" zaxis="-1 0 .1"/>
    <site name="zone" type="box" size=".2 .2 .05" pos="0 0 -.1"/></body></worldbody>
  <sensor><rangefinder name="down" site="down"/><rangefinder site="x" data="dist point normal"/>
    <rangefinder site="y" data="dist normal"/><rangefinder site="back" data="dist normal"/>
    <distance geom1="box" geom2="beam" cutoff="2"/><normal geom1="beam" geom2="box" cutoff="2"/>
    <contact name="feet" body1="box" geom2="floor" num="3" reduce="maxforce"
      data="found force dist pos normal linvel"/>
    <contact site="zone" num="5" data="found pos"/>
    <contact name="net" subtree1="box" reduce="netforce" data="found force torque pos"/>
    <contact subtree2="box" num="2" reduce="mindist" data="found dist tangent"/>
    <rangefinder camera="eye" data="dist normal depth"/>
  </sensor></mujoco>"""
# a ball on a lift above the ground, with a foot below it
HOPPER = """<mujoco><option timestep="0.01"/><worldbody>
  <geom name="floor" type="plane" size="0 0 1"/>
  <body name="ball" pos="0 0 .5"><joint name="lift" type="slide" axis="0 0 1"/>
    <geom name="ball" size=".1"/><site name="down" zaxis="0 0 -1"/>
    <body pos="0 0 -.3"><joint type="slide" axis="0 0 1" stiffness="100" damping="1"/>
      <geom name="foot" size=".1" rgba="1 1 1 0"/></body></body></worldbody>
  <actuator><motor joint="lift" ctrlrange="-1 1"/></actuator>
  <sensor><rangefinder name="height" site="down"/>
    <contact name="foot" geom1="foot" data="found force dist"/></sensor></mujoco>"""
WORLDS = 64


def test_compiled_sensors_agree_with_the_reference():
    mj = load(SCENE)
    engine, m64 = LanesEngine(io.put_model(mj), "test"), io.put_model(mj, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)

    def states(m):
        d = make_data(m, WORLDS)
        noise = torch.randn(WORLDS, 13, generator=generator.manual_seed(0)).to(d.qpos.dtype)
        d.qpos[:] += 0.1 * noise[:, :7]
        d.qvel[:] = noise[:, 7:]
        return d

    guard, keep = make_guard(WORLDS, "cpu"), ("sensordata",)
    ours, _ = engine.step(engine._nominal, states(engine._nominal), guard, 1, keep)
    report = engine.report()
    assert "not compiled" not in report
    assert report["programs"]["1 substeps"]["statements"] > 3000
    theirs = forward.step(m64, states(m64)).sensordata
    error = (ours.sensordata.double() - theirs).abs() / (1 + theirs.abs())
    # of float32, and of an edge that a ray meets in one precision and misses in the other
    assert (error.amax(1) < 1e-3).double().mean() > 0.95
    assert 10 < (theirs[:, 0] > 0).sum() and 10 < (theirs[:, 20] > 0).sum() < WORLDS - 5


def test_pictures_that_are_too_large_to_compile_run_on_the_reference():
    text = """<mujoco><worldbody><geom type="plane" size="0 0 1"/><body pos="0 0 1"><freejoint/>
      <geom size=".1"/><camera name="c" resolution="60 60"/></body></worldbody>
      <sensor><rangefinder camera="c" data="depth"/></sensor></mujoco>"""
    sim = alloy.build(text, worlds=2, engine="lanes")
    sim.step(substeps=1)
    (said,) = sim.engine_report()["not compiled"]
    assert "lanes does not compile 3600 pairs of a ray or taxel" in said
    torch.testing.assert_close(sim.sensordata, torch.ones(2, 3600), atol=1e-3, rtol=0)


def _where(sim):
    return sim.body("ball").pos


@pytest.mark.parametrize("engine", ("reference", "lanes"))
def test_c27_a_range_sensor_in_an_observation_after_a_reset(engine):
    """After an episode's last step the row is that of the new state, as a forward pass has it."""
    task = Task(
        obs=[_where, "height", "foot"],
        reward={"one": (1.0, C.alive())},
        max_steps=3,
        reset=resets.qpos_uniform(0.3),
    )
    env = VectorEnv(HOPPER, task, 8, engine=engine)
    env.reset(seed=0)
    for _ in range(3):
        obs, _, _, truncated, info = env.step(env.action_space.sample())
    assert truncated.all()
    fresh = alloy.build(HOPPER, worlds=8, dtype=torch.float64)
    fresh.qpos, fresh.qvel = env.sim.qpos.double(), env.sim.qvel.double()
    expected = torch.cat([_where(fresh), fresh.sensor("height"), fresh.sensor("foot")], 1)
    torch.testing.assert_close(obs.double(), expected, rtol=1e-4, atol=1e-4)
    assert (info["final_obs"][:, 3] - obs[:, 3]).abs().min() > 1e-4
    assert (expected[:, 3] - expected[:, 2]).abs().max() < 1e-9  # the range is the height
    assert 0 < (expected[:, 4] > 0).sum() < 8
    if engine == "lanes":
        assert "environment step" in env.sim.engine_report()["programs"]
