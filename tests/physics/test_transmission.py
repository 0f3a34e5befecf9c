"""Transmissions on sites, cranks, spatial tendons and contacts, and muscles, against MuJoCo."""

import mujoco
import numpy as np
import pytest

from alloy.physics import actuation, forward, io, passive
from tests.physics.fixture import assert_close, fixture
from tests.physics.test_passive import oracle_derivative

FIELDS = "actuator_length actuator_velocity actuator_force qfrc_actuator act_dot qacc".split()

# a chain, a branch and a free body; %s takes the actuators
SCENE = """
<mujoco><option timestep=".005"><flag contact="disable"/></option><worldbody>
  <site name="w" pos=".3 .2 1" euler="20 10 0"/>
  <body pos="0 0 .5"><joint name="a" axis="0 1 0" damping=".1"/>
    <geom type="capsule" size=".02" fromto="0 0 0 .3 0 0"/><site name="a" pos=".1 0 .1"
      euler="0 30 10"/>
    <body pos=".3 0 0"><joint name="b" axis="0 1 .2" limited="true" range="-60 60"/>
      <geom name="ball" size=".05"/><geom type="capsule" size=".02" fromto="0 0 0 .3 0 0"/>
      <site name="b" pos=".2 0 .1" euler="50 0 20"/></body>
    <body pos="0 .3 0"><joint name="c" type="slide" axis="1 0 .5"/><geom size=".05"/>
      <site name="c" pos="0 .05 .1" euler="0 80 0"/></body></body>
  <body pos="-.5 0 .5"><freejoint/><geom type="box" size=".1 .05 .2" pos=".02 0 0"/>
    <site name="f" pos="0 0 .1" euler="10 20 30"/></body></worldbody>
<tendon><spatial name="t"><site site="a"/><geom geom="ball"/><site site="b"/></spatial>
  <fixed name="x"><joint joint="a" coef="2"/><joint joint="c" coef="-1"/></fixed></tendon>
<actuator>%s</actuator></mujoco>"""
SITES = """
<motor site="b" gear="1 2 3 4 5 6"/><position site="a" kp="4" kv="2" gear="0 1 0 0 0 2"/>
<general site="b" refsite="w" gear="1 -2 3 0 0 0" biastype="affine" biasprm=".1 -3 -1"/>
<general site="b" refsite="a" gear="0 0 0 3 1 2" biastype="affine" biasprm=".1 -3 -1"/>
<general site="f" refsite="b" gear="1 2 1 2 1 2" biastype="affine" biasprm="0 -2 -.5"/>
<position site="c" refsite="b" gear="1 2 0 0 1 0" kp="3" kv="1"/><motor joint="a"/>"""
CRANKS = """
<position cranksite="b" slidersite="w" cranklength=".8" kp="5" kv="2" gear="2"/>
<motor cranksite="b" slidersite="c" cranklength=".02" gear="3"/>
<general cranksite="f" slidersite="a" cranklength=".9" biastype="affine" biasprm="0 -3 -1"/>"""
TENDONS = """
<position tendon="t" kp="5" kv="2" gear="3"/><motor tendon="x" gear="-2"/>
<position tendon="t" kp="9" forcerange="-.3 .3"/>"""
MUSCLES = """
<muscle joint="a" lengthrange="-1 1" force="12" gear="2"/>
<muscle joint="c" lengthrange="-.6 .6" range=".8 1.1" tausmooth=".3"/>
<muscle tendon="t" lengthrange=".1 .5" lmin=".6" lmax="1.4" vmax="1" fpmax="2" fvmax="1.5"/>
<muscle tendon="x" lengthrange="-2 2" scale="300" timeconst=".02 .1"/>
<general joint="b" dyntype="muscle" dynprm=".01 .04 0" gainprm="5"/>
<general joint="b" gaintype="muscle" gainprm=".75 1.05 9 200 .5 1.6 1.5 1.3 1.2"
  lengthrange="-1 1"/>
<general joint="c" biastype="muscle" biasprm=".75 1.05 -1 200 .5 1.6 1.5 1.3 1.2"
  lengthrange="-1 .2"/>"""
MODELS = {"sites": SITES, "cranks": CRANKS, "tendons": TENDONS, "muscles": MUSCLES}


@pytest.mark.parametrize("name", MODELS)
def test_transmissions_equal_mujoco(name):
    for seed in range(6):
        f = fixture(SCENE % MODELS[name], seed)
        d = forward.forward(f.m, f.d)
        for field in FIELDS:
            assert_close(getattr(d, field), getattr(f.mjd, field), f"{field}, seed {seed}", 2e-9)
        actual = actuation.velocity_derivative(f.m, d) + passive.damping_derivative(f.m, d)
        assert_close(actual, oracle_derivative(f.mj, f.mjd), f"derivative, seed {seed}")
        assert_close(actuation.next_activation(f.m, d), f.mjd.act, "act")


@pytest.mark.parametrize("cone", ("pyramidal", "elliptic"))
@pytest.mark.parametrize("condim", (1, 3, 6))
def test_adhesion_equals_mujoco(cone, condim):
    """On the ground, on each other, with contacts that are near but do not push yet."""
    text = f"""
    <mujoco><option cone="{cone}"/>
    <default><geom condim="{condim}" margin=".02" gap=".03"/></default>
    <worldbody><geom type="plane" size="3 3 1"/>
      <body name="a" pos="0 0 .095" euler="1 2 3"><freejoint/><geom type="box" size=".1 .1 .1"/>
        <body pos="0 0 .2"><joint axis="0 1 0"/><geom size=".05"/></body></body>
      <body name="b" pos=".05 .03 .345"><freejoint/><geom size=".1"/></body>
      <body name="c" pos="1 0 2"><freejoint/><geom size=".1"/></body>
    </worldbody><actuator><adhesion body="a" ctrlrange="0 2" gain="3"/>
      <adhesion body="b" ctrlrange="0 2"/><adhesion body="c" ctrlrange="0 1"/></actuator>
    </mujoco>"""
    f = fixture(text)
    mujoco.mj_resetData(f.mj, f.mjd)
    rng = np.random.default_rng(0)
    f.mjd.qvel[:], f.mjd.ctrl[:] = 0.1 * rng.normal(size=f.mj.nv), (1.0, 0.7, 0.5)
    pulled = 0
    for _ in range(6):
        mujoco.mj_forward(f.mj, f.mjd)
        d = forward.forward(f.m, io.put_data(f.m, f.mj, f.mjd))
        for field in ("actuator_velocity", "actuator_force", "qfrc_actuator"):
            assert_close(getattr(d, field), getattr(f.mjd, field), field)
        pulled += np.abs(f.mjd.qfrc_actuator).max() > 0.1
        mujoco.mj_step(f.mj, f.mjd)
    assert pulled == 6
