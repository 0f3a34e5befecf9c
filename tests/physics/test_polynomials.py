"""Polynomial stiffness and damping of joints, tendons and actuators against MuJoCo in float64."""

import mujoco
import numpy as np
import pytest
import torch

from alloy.physics import forward, io
from tests.physics.fixture import assert_close, fixture
from tests.physics.test_passive import FORCES

# every joint type, both signs of every coefficient, and an actuator that adds its own damping
POLYNOMIALS = """
<mujoco><option timestep=".01"><flag energy="enable"/></option><worldbody>
  <body pos="0 0 1"><joint type="free" stiffness="3 .4 .2" damping=".4 .1 .05"/>
    <geom type="box" size=".1 .2 .3"/>
    <body pos=".3 0 0" euler="20 0 0"><joint name="h" axis="1 1 0" stiffness="2 -.5 .3"
      springref="40" damping=".3 .2"/><geom size=".1" pos=".1 0 0"/>
      <body pos=".3 0 0"><joint type="ball" stiffness="0 2 1" damping="0 .2 .1"/><geom size=".1"/>
        <body pos=".3 0 0"><joint name="s" type="slide" axis="0 1 0" stiffness="7" springref=".2"/>
          <geom size=".1"/></body></body></body></body>
</worldbody>
<tendon><fixed stiffness="2 1 .5" damping=".2 .3 .1" springlength="-.1 .1">
  <joint joint="h" coef="2"/><joint joint="s" coef="-3"/></fixed></tendon>
<actuator><motor joint="h" gear="-2" damping=".1 .2 .1" armature=".3"/></actuator>
<sensor><e_potential/></sensor></mujoco>"""
HINGE = """
<mujoco><option timestep=".01"/><worldbody><body><joint axis="0 1 0" {}/>
  <geom size=".1" pos=".3 0 0"/></body></worldbody></mujoco>"""
INTEGRATORS = {"Euler": 0, "RK4": 1, "implicit": 2, "implicitfast": 3}


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_forces_energy_and_a_step_equal_mujoco(integrator):
    for seed in range(3):
        f = fixture(POLYNOMIALS, seed, integrator=INTEGRATORS[integrator])
        d = forward.forward(f.m, f.d)
        for field in (*FORCES, "sensordata", "qacc"):
            assert_close(getattr(d, field), getattr(f.mjd, field), field)
        d = forward.step(f.m, f.d)
        mujoco.mj_step(f.mj, f.mjd)
        assert_close(d.qvel, f.mjd.qvel, "qvel")
        assert_close(d.qpos, f.mjd.qpos, "qpos")


@pytest.mark.parametrize("text", ['stiffness="0 3"', 'damping="0 3"', 'stiffness="0 0 3"'])
def test_terms_without_a_linear_one_count(text):
    f = fixture(HINGE.format(text), 1)
    d = forward.step(f.m, f.d)
    assert np.abs(f.mjd.qfrc_passive).max() > 1e-3
    mujoco.mj_step(f.mj, f.mjd)
    assert_close(d.qvel, f.mjd.qvel, "qvel")


def test_damping_by_hand():
    """Force v (1 + 2 |v| + 3 v^2), on a hinge without gravity."""
    f = fixture(HINGE.format('damping="1 2 3"').replace("<option", '<option gravity="0 0 0"'))
    f.d.qvel[:] = torch.tensor([[-0.5]])
    d = forward.forward(f.m, f.d)
    assert d.qfrc_damper[0, 0].item() == pytest.approx(0.5 * (1 + 1 + 0.75))


def test_springs_pull_with_a_gradient_at_rest():
    """No displacement, no NaN in the derivative: lengths of zero have none."""
    f = fixture(POLYNOMIALS)
    m, rest = f.m, f.m.qpos_spring.clone().requires_grad_()
    d = forward.forward(m, type(f.d)(**vars(f.d) | {"qpos": rest}))
    (slope,) = torch.autograd.grad(d.qfrc_spring.sum(), rest)
    assert torch.isfinite(slope).all()


def test_a_model_without_terms_reads_none():
    m = io.put_model(fixture(HINGE.format('damping=".1" stiffness="2"')).mj)
    tables = m.derived["passive"]
    assert not (tables.spring_poly or tables.damper_poly)
    assert tables.spring_vectors is None
