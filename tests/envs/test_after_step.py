"""Derived fields as the last physics step leaves them: mjData's, through resets and compiled."""

import mujoco
import numpy as np
import pytest
import torch

import alloy.lanes
from alloy.envs import Task, VectorEnv
from alloy.scene import Scene
from tests.envs.test_fused import Fusing

# a ball that falls on a floor, pushed aside by a motor
BALL = """<mujoco><option timestep=".01" integrator="{}"/><worldbody>
<geom type="plane" size="5 5 1"/><body name="ball" pos="0 0 .12"><joint name="x" type="slide"
axis="1 0 0"/><joint type="slide" axis="0 0 1"/><geom size=".1"/></body></worldbody>
<actuator><motor joint="x" gear="20" ctrllimited="true" ctrlrange="-1 1"/></actuator></mujoco>"""
KEPT = ("xpos", "cfrc_ext", "qfrc_actuator")


def task():
    return Task(
        obs=[lambda sim: sim.last("xpos")[:, 1], lambda sim: sim.last("cfrc_ext")[:, 1]],
        info={
            "speed": lambda sim: sim.last("xpos")[:, 1, 0] - sim.previous.last("xpos")[:, 1, 0],
            "force": lambda sim: sim.last("qfrc_actuator"),
        },
        after_step=KEPT,
        max_steps=7,
    )


def env(worlds, integrator="Euler", **kwargs):
    scene = Scene.from_mjcf(BALL.format(integrator), dt=0.05)
    return VectorEnv(scene, task(), worlds, engine="reference", **kwargs)


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_they_are_mujocos(integrator):
    ours = env(1, integrator, dtype=torch.float64)
    obs, _ = ours.reset(seed=0)
    mj = ours.sim.mj_model
    mjd = mujoco.MjData(mj)
    mujoco.mj_forward(mj, mjd)
    for i in range(6):
        np.testing.assert_allclose(obs[0], [*mjd.xpos[1], *mjd.cfrc_ext[1]], atol=1e-6, rtol=1e-6)
        mjd.ctrl[:], before = np.sin(i), mjd.xpos[1, 0]
        obs, *_, info = ours.step(torch.tensor([[np.sin(i)]]))
        mujoco.mj_step(mj, mjd, 5)
        mujoco.mj_rnePostConstraint(mj, mjd)
        assert info["speed"].item() == pytest.approx(mjd.xpos[1, 0] - before)
        np.testing.assert_allclose(info["force"][0], mjd.qfrc_actuator)
    assert obs[0, 8] > 1  # it rests on the floor by now


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_a_compiled_step_gives_the_same(integrator):
    eager, fused = env(5, integrator), env(5, integrator)
    fused.sim._engine = Fusing(fused.sim._engine)
    results = [e.reset(seed=0)[0] for e in (eager, fused)]
    for i in range(9):
        torch.testing.assert_close(*results, atol=1e-3, rtol=1e-5)
        action = torch.sin(torch.arange(5.0) + i)[:, None]
        results = []
        for e in (eager, fused):
            obs, *_, info = e.step(action)
            results.append(torch.cat([obs, info["speed"][:, None], info["force"]], -1))


def test_a_partial_reset_leaves_the_other_worlds_theirs():
    e = env(2)
    e.reset(seed=0)
    for _ in range(5):
        obs = e.step(torch.ones(2, 1))[0]
    new, _ = e.reset(options={"reset_mask": torch.tensor([True, False])})
    assert torch.equal(new[1], obs[1])
    assert new[1, 8] > 1
    torch.testing.assert_close(new[0], torch.tensor([0, 0, 0.12, 0, 0, 0, 0, 0, 0]))


def test_an_invalid_world_says_nothing_infinite():
    e = env(2)
    e.reset(seed=0)
    e.sim.qvel[1] = 1e38
    obs, _, terminated, _, info = e.step(torch.zeros(2, 1))
    assert terminated.tolist() == [False, True]
    assert torch.isfinite(info["final_obs"]).all()


def test_only_what_was_named_is_there():
    with pytest.raises(ValueError, match=r"after_step names 'xpso'.*'xpos'"):
        Task(obs=["ball"], after_step=["xpso"])
    with pytest.raises(KeyError, match=r"keeps \[\].*not 'xpos'.*after_step"):
        VectorEnv(BALL.format("Euler"), Task(obs=[lambda sim: sim.last("xpos")[:, 0]]))


def test_lanes_engine_keeps_them_too():
    engine = alloy.engines.make_engine("lanes", env(1).sim.model)
    ours, other = env(3), env(3)
    ours.sim._engine = type("Lanes", (), {"step": engine.step})()
    for e in (ours, other):
        e.reset(seed=0)
    for _ in range(5):
        obs = [e.step(torch.ones(3, 1))[0] for e in (ours, other)]
    torch.testing.assert_close(*obs, atol=1e-4, rtol=1e-5)
