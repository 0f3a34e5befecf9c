"""Noise of sensors in observations: asked for, of the size that the model says, reproducible."""

import pytest
import torch

from alloy.envs import Task, VectorEnv, observations
from alloy.envs import checks as C
from alloy.names import UnknownName
from tests.envs.test_fused import Fusing

SCENE = """
<mujoco><option timestep="0.01" gravity="0 0 0"/><worldbody>
  <geom type="plane" size="9 9 1" pos="0 0 -.1"/>
  <body name="b"><freejoint/><geom size=".1" mass="1" solref=".5 1"/>
    <site name="s"/><site name="zone" type="sphere" size=".2"/></body></worldbody>
<actuator><motor site="s" gear="1 0 0 0 0 0"/></actuator>
<sensor><gyro name="gyro" site="s" noise=".2"/><touch name="touch" site="zone" noise=".5"/>
  <framezaxis name="axis" objtype="site" objname="s" noise=".1"/>
  <framequat name="quat" objtype="site" objname="s" noise=".1"/>
  <framepos name="exact" objtype="site" objname="s"/></sensor></mujoco>"""
WORLDS = 2000


def env(obs, worlds=WORLDS, seed=0, **options):
    task = Task(obs=obs, reward={"one": (1.0, C.alive())}, max_steps=5)
    made = VectorEnv(SCENE, task, worlds, **({"engine": "reference"} | options))
    return made, made.reset(seed=seed)[0]


def noise_of(name, scale=1.0):
    _, obs = env([observations.sensor(name), observations.sensor(name, noise=scale)])
    return obs.double().chunk(2, -1)


@pytest.mark.parametrize("scale", (1.0, 0.5))
def test_a_real_reading_has_normal_noise_of_the_models_deviation(scale):
    exact, seen = noise_of("gyro", scale)
    off = seen - exact
    assert off.std(0).sub(0.2 * scale).abs().max() < 0.05 * 0.2 * scale
    assert off.mean(0).abs().max() < 4 * 0.2 * scale / WORLDS**0.5
    assert abs((off[:, 0] * off[:, 1]).mean()) < 4 * (0.2 * scale) ** 2 / WORLDS**0.5


def test_a_positive_reading_stays_positive_and_zero_stays_zero():
    made, obs = env([observations.sensor("touch"), observations.sensor("touch", noise=1.0)])
    assert not obs.any()
    qpos = made.sim.qpos.clone()
    qpos[::2, 2] = -0.01  # half of the balls are on the ground
    made.sim.qpos = qpos
    exact, seen = made.step(torch.zeros(WORLDS, 1))[0].chunk(2, -1)
    touches = exact[:, 0] > 0
    assert WORLDS // 4 < touches.sum() < WORLDS
    assert (seen >= 0).all() and not seen[~touches].any()
    assert (seen != exact)[touches].all()


def test_axes_and_quaternions_are_turned():
    exact, seen = noise_of("axis")
    torch.testing.assert_close(seen.norm(dim=-1), torch.ones(WORLDS).double())
    # of an angle a about any axis the part across the axis turns: two thirds of a^2 on average
    turned = torch.acos((exact * seen).sum(-1).clamp(-1, 1))
    assert abs(turned.square().mean().sqrt() - 0.1 * (2 / 3) ** 0.5) < 0.005
    exact, seen = noise_of("quat")
    torch.testing.assert_close(seen.norm(dim=-1), torch.ones(WORLDS).double())
    angle = 2 * torch.acos((exact * seen).sum(-1).abs().clamp(max=1))
    assert abs(angle.square().mean().sqrt() - 0.1) < 0.01


def test_it_depends_on_seed_step_and_sensor_alone():
    terms = [observations.sensor(name, noise=1.0) for name in ("gyro", "quat")]

    def rows(worlds, obs, seed=3):
        made, first = env(obs, worlds, seed)
        return torch.stack([first] + [made.step(torch.zeros(worlds, 1))[0] for _ in range(3)])

    few, many = rows(2, terms), rows(5, terms)
    assert torch.equal(few, many[:, :2])
    assert torch.equal(few, rows(2, terms))
    assert torch.equal(few[..., :3], rows(2, terms[:1]))
    assert not torch.equal(few, rows(2, terms, seed=4))
    assert (few[0, 0] != few[1, 0]).all()
    assert (few[0, 0] != few[0, 1]).all()


def test_a_policy_may_see_noise_and_a_critic_none():
    obs = {"policy": [observations.sensor("gyro", noise=1.0)], "critic": ["gyro"]}
    made, seen = env(obs, 3)
    assert not seen["critic"].any() and seen["policy"].all()
    assert not made.sim.sensor("gyro").any()  # what the simulator shows is exact


def test_a_compiled_step_draws_the_same():
    terms = [observations.sensor(n, noise=1.0) for n in ("gyro", "axis", "quat", "touch")]
    eager, fused = (env(terms, 7)[0] for _ in range(2))
    fused.sim._engine = Fusing(fused.sim._engine)
    for made in (eager, fused):
        made.reset(seed=1)
    for _ in range(3):
        ours, theirs = (made.step(torch.ones(7, 1))[0] for made in (fused, eager))
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert fused.sim._engine.asked == 1


def test_bad_noise_is_refused():
    with pytest.raises(ValueError, match="sensor 'exact' has no noise in the model"):
        env([observations.sensor("exact", noise=1.0)], 1)
    for bad in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="noise of sensor 'gyro' is"):
            observations.sensor("gyro", noise=bad)
    with pytest.raises(UnknownName, match="nobody"):
        env([observations.sensor("nobody", noise=1.0)], 1)
