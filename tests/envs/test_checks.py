"""Checks against numbers worked out by hand, their algebra, and what they refuse."""

import math

import pytest
import torch

import alloy
from alloy.envs import Task, VectorEnv, observations
from alloy.envs import checks as C
from alloy.envs.program import Physics
from alloy.envs.view import EnvView

SCENE = """
<mujoco>
  <option gravity="0 0 0"/><compiler angle="radian"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1"/>
    <body name="cube" pos="1 2 2">
      <freejoint name="cube"/>
      <geom name="cube" type="box" size=".1 .1 .1" mass="1"/>
    </body>
    <body name="arm" pos="0 0 1">
      <joint name="arm" type="hinge" axis="0 1 0" range="-1 1" limited="true"/>
      <geom name="arm" type="sphere" size=".1" mass="1"/>
      <site name="hand" pos="0 0 .5"/>
    </body>
  </worldbody>
  <actuator><motor name="elbow" joint="arm" ctrlrange="-1 1"/></actuator>
</mujoco>
"""


def view(worlds=2):
    """World 0 as the scene stands; in world 1 the cube lies tilted on the floor, moving."""
    env = VectorEnv(SCENE, Task(obs=["cube"]), worlds, engine="reference")
    env.reset(seed=0)
    env.sim.qpos[1, :7] = torch.tensor([1, 2, 0.099, math.cos(0.4), math.sin(0.4), 0, 0])
    env.sim.qpos[1, 7] = 0.95
    env.sim.qvel[1, :3] = torch.tensor([3.0, -4.0, 0.0])
    state = env._state()
    return env.program.view(state, previous=state)


def values(check):
    return check(view()).tolist()


def test_places():
    assert values(C.height("cube")) == pytest.approx([2, 0.099])
    assert values(C.distance("cube", "arm")) == pytest.approx(
        [math.sqrt(6), math.sqrt(5 + 0.901**2)], abs=1e-5
    )
    assert values(C.distance("hand", (0, 0, 1))) == pytest.approx([0.5, 0.5])
    assert values(C.reached("cube", (1, 2, 2), within=0.01)) == [True, False]
    assert values(C.near("cube", (1, 2, 1), scale=1.0))[0] == pytest.approx(math.exp(-1))
    assert values(C.below("cube", 1.0)) == [False, True]
    assert values(C.tilt("cube")) == pytest.approx([0, 0.8], abs=1e-5)
    assert values(C.upright("cube", within=0.79)) == [True, False]
    assert values(C.upright("cube", within=0.81)) == [True, True]


def test_motion_and_contact():
    assert values(C.velocity("cube")) == pytest.approx([0, 5])
    assert values(C.velocity("cube", "y")) == pytest.approx([0, -4])
    assert values(C.joint_speed("cube")) == pytest.approx([0, 25])
    assert values(C.joint_limit("arm", margin=0.1)) == [False, True]
    assert values(C.joint_limit("arm", margin=0.01)) == [False, False]
    assert values(C.in_contact("cube", "floor")) == [False, True]
    assert values(C.in_contact("arm")) == [False, False]
    assert values(C.alive()) == [True, True]


def test_algebra():
    high, here = C.height("cube") > 1, C.reached("cube", (1, 2, 0), within=1.0)
    assert values(high) == [True, False]
    assert values(high & ~here) == [True, False]
    assert values(high | here) == [True, True]
    assert values(here & (lambda sim: sim.qvel[:, 0] > 1)) == [False, True]
    assert values((lambda sim: sim.qvel[:, 0] > 1) | high) == [True, True]
    assert values(2 * C.height("cube") - 1) == pytest.approx([3, -0.802])
    assert values(1 - high) == [0, 1]
    assert values(4 / C.height("cube")) == pytest.approx([2, 4 / 0.099])
    assert values((-C.height("cube")).exp())[0] == pytest.approx(math.exp(-2))
    assert values((C.height("cube") ** 2).clip(0, 1)) == pytest.approx([1, 0.099**2])
    assert values(abs(-C.height("cube")))[0] == 2
    assert values(C.height("cube").tanh())[0] == pytest.approx(math.tanh(2))
    assert values(C.height("cube") <= C.height("arm")) == [False, True]
    assert "height('cube')" in repr(high & here)


def test_logic_wants_bools():
    with pytest.raises(TypeError, match=r"height\('cube'\).*compare"):
        values(C.height("cube") & C.alive())
    with pytest.raises(TypeError, match="right side of &"):
        C.alive() & "cube"


def test_unknown_names_have_near_matches():
    with pytest.raises(KeyError, match=r"kube.*Did you mean .*cube"):
        values(C.height("kube"))
    with pytest.raises(ValueError, match="axis"):
        C.velocity("cube", "up")
    with pytest.raises(ValueError, match="free joint"):
        view().free_joint("arm")
    with pytest.raises(ValueError, match="no slide or hinge"):
        values(C.joint_limit("cube"))


def test_memory_is_of_the_episode():
    rise = 0.04  # height gained per step at 2 m/s and 20 ms
    task = Task(
        obs=["cube"],
        success=C.held(C.lifted("cube", by=2.5 * rise), steps=3),
        info={"rise": C.since_start(C.height("cube"))},
        reset=lambda sim, rng: {"qvel": 0 * sim.qvel + 2 * (torch.arange(7) == 2)},
    )
    env = VectorEnv(SCENE, task, 2, engine="reference")
    env.reset(seed=0)
    for episode in range(2):
        for step in range(1, 6):
            *_, terminated, _, info = env.step(torch.zeros(2, 1))
            assert info["rise"].tolist() == pytest.approx([step * rise] * 2, abs=1e-5)
            # lifted from the third step on, held for three in a row at the fifth
            assert terminated.tolist() == [step == 5] * 2, (episode, step)


def test_action_checks():
    task = Task(
        obs=["arm", observations.last_action()],
        reward={"size": (1.0, C.action_size()), "rate": (1.0, C.action_rate())},
    )
    env = VectorEnv(SCENE, task, 1, engine="reference")
    assert env.reset(seed=0)[0][0, -1] == 0
    sizes, rates = [], []
    for a in (0.5, -0.5, 4.0):
        obs, *_, info = env.step([[a]])
        assert obs[0, -1] == max(-1, min(a, 1))
        sizes.append(info["terms"]["size"].item())
        rates.append(info["terms"]["rate"].item())
    assert sizes == [0.25, 0.25, 1.0]
    assert rates == [0.0, 1.0, 2.25]


def test_observation_terms_by_name():
    env = VectorEnv(
        SCENE, Task(obs=["cube", "arm", observations.place("hand")]), 1, engine="reference"
    )
    obs, _ = env.reset(seed=0)
    assert obs[0].tolist() == pytest.approx([1, 2, 2, 1, 0, 0, 0] + [0] * 6 + [0, 0] + [0, 0, 1.5])
    assert env.observation_names() == {
        "policy": {"cube": slice(0, 13), "arm": slice(13, 15), "place('hand')": slice(15, 18)}
    }
    sim = view()
    up = observations.up("cube")(sim)
    torch.testing.assert_close(up[1], torch.tensor([0, math.sin(0.8), math.cos(0.8)]))
    assert observations.motion("cube")(sim).shape == (2, 13)
    assert observations.offset("arm", "cube")(sim)[0].tolist() == [1, 2, 1]


def test_the_view_is_that_of_the_simulator():
    sim = alloy.build(SCENE, worlds=2)
    env = VectorEnv(SCENE, Task(obs=["cube"]), 2, engine="reference")
    env.reset(seed=0)
    seen = env.program.view(env._state())
    assert isinstance(seen, EnvView)
    assert seen.names() == sim.names()
    torch.testing.assert_close(seen.body("arm").pos, sim.body("arm").pos)
    assert Physics(sim).dt == sim.dt
