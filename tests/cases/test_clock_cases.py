"""C30: clocks that stay exact for a million steps, and contacts within a control step."""

import pytest
import torch

import alloy
from alloy.envs import Task, VectorEnv
from alloy.envs import checks as C
from alloy.envs.loco.terms import Feet

PENDULUM = """<mujoco><option timestep="0.005"/><worldbody>
  <body><joint axis="0 1 0" damping=".1"/><geom size=".1" pos=".3 0 0"/></body>
</worldbody></mujoco>"""
# a foot that events put onto a floor, or let fly past a bump
FOOT = """<mujoco><option timestep="0.005" gravity="0 0 0"/><worldbody>
  <geom name="floor" type="box" size=".1 .1 .1" pos="0 0 -.1"/>
  <geom name="bump" size=".01" pos="0 1 1"/>
  <body name="foot">
    <joint name="x" type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>
    <joint type="slide" axis="0 0 1"/><geom name="foot" size=".01" mass="1"/></body>
</worldbody><actuator><motor joint="x"/></actuator></mujoco>"""
DT = 0.02  # four physics steps
LATE = 250_000  # control steps: 5,000 s


def test_c30_a_million_physics_steps():
    sim = alloy.build(PENDULUM, worlds=2, engine="lanes")
    sim.qvel = torch.tensor([[1.0], [2.0]])
    with torch.inference_mode():
        for _ in range(100):
            sim.step(substeps=10_000)
    assert sim.data.step_count.tolist() == [10**6] * 2
    assert sim.time.tolist() == pytest.approx([5000.0] * 2, rel=1e-6)
    assert torch.isfinite(sim.qpos).all() and not sim.health().invalid.any()
    # it hangs below its hinge, at rest
    assert sim.qpos.flatten().tolist() == pytest.approx([torch.pi / 2] * 2, abs=1e-3)


def environment(event, worlds=3, **options):
    feet = Feet(["foot"], DT)
    landed = feet.steps_taken(0.0, 1e9).named("landed")
    scene = alloy.Scene.from_mjcf(FOOT, dt=DT)
    task = Task(obs=[feet.air_time(), landed, C.in_contact("foot").named("on")], events=event)
    env = VectorEnv(scene, task, worlds, engine="reference", **options)
    env.reset(seed=0)
    return env


def go_to(env, steps):
    """As if the episodes had lasted that long."""
    state = env.sim.state()
    state.tensors["step_count"].fill_(4 * steps)
    env.sim.load_state(state)
    env.episode_length = torch.full_like(env.episode_length, steps)


def at(sim, x, y, z, speed):
    """A state in which the foot is somewhere, and moves along x."""
    qpos = torch.stack([torch.zeros_like(sim.time) + v for v in (x, y, z)], -1)
    return {"qpos": qpos, "qvel": torch.zeros_like(qpos) + torch.eye(3)[0] * speed}


def bounce(sim):
    """On the floor in every tenth control step, a hand above it in the others."""
    down = sim.steps % 10 == 0
    return at(sim, 0.0, 0.0, torch.where(down, 0.009, 0.1), 0.0)


@pytest.mark.parametrize("first", [250, LATE], ids=["t=5 s", "t=5000 s"])
def test_c30_every_first_contact_is_found_early_and_late(first):
    env = environment(bounce)
    go_to(env, first)
    seen = []
    for _ in range(45):
        obs = env.step(torch.zeros(3, 1))[0]
        seen.append(obs[0].tolist())
    assert env.sim.time.tolist() == pytest.approx([(first + 45) * DT] * 3, rel=1e-6)
    landings = [k for k, (_, landed, _) in enumerate(seen) if landed > 0]
    assert len(landings) == 4 and set(torch.tensor(landings).diff().tolist()) == {10}
    for k in landings[1:]:
        assert seen[k][1] == pytest.approx(9 * DT, rel=1e-5)  # its time in the air
        assert seen[k][0] == 0
    assert torch.equal(obs[0], obs[1])


def test_c30_air_time_ends_with_its_own_reset_only():
    env = environment(lambda sim: at(sim, 0.0, 0.0, 0.1, 0.0), autoreset="disabled")
    for _ in range(5):
        obs = env.step(torch.zeros(3, 1))[0]
    assert obs[:, 0].tolist() == pytest.approx([5 * DT] * 3)
    mask = torch.tensor([False, True, False])
    obs = env.reset(options={"reset_mask": mask})[0]
    assert obs[:, 0].tolist() == pytest.approx([5 * DT, 0, 5 * DT])


def fly_past(sim):
    """Past the bump: there after the first of the four physics steps, beyond it at the end.

    In every third control step; in the others far above it.
    """
    z = torch.where(sim.steps % 3 == 0, 1.019, 1.3)
    return at(sim, -0.04, 1.0, z, 8.0)


@pytest.mark.parametrize("engine, first", [("reference", 0), ("reference", LATE), ("lanes", 0)])
def test_c30_a_contact_of_one_physics_step_is_reported_for_its_control_step(engine, first):
    task = Task(
        obs=[C.in_contact("foot", "bump").named("now"), C.touched("foot", "bump").named("during")],
        events=fly_past,
        after_step=["contact_least"],
    )
    env = VectorEnv(alloy.Scene.from_mjcf(FOOT, dt=DT), task, 3, engine=engine)
    env.reset(seed=0)
    go_to(env, first)
    for k in range(first, first + 7):
        now, during = env.step(torch.zeros(3, 1))[0].unbind(-1)
        assert not now.any()
        assert during.bool().tolist() == [env.episode_length[0].item() % 3 == 0] * 3, k


def test_c30_without_the_least_distance_it_cannot_be_told():
    task = Task(obs=[C.touched("foot", "bump").named("during")])
    with pytest.raises(KeyError, match="contact_least"):
        VectorEnv(alloy.Scene.from_mjcf(FOOT, dt=DT), task, 1, engine="reference")
