"""Armature of tendons, their own and their actuators', against MuJoCo in float64."""

import mujoco
import numpy as np
import pytest
import torch

from alloy.physics import forward, smooth
from scripts.features import FEATURES
from tests.physics.fixture import assert_close, fixture

PULLEY = FEATURES["tendon"]["pulley"].replace("<spatial>", '<spatial armature=".3">')
BOTH = FEATURES["tendon"]["limits"]  # a spatial and a fixed tendon
ACTUATORS = """<actuator><motor tendon="r" gear="2" damping=".1 .2" armature=".3"/>
  <motor tendon="t" damping=".1 .2" gear="-3" armature=".1"/></actuator>"""
# a tendon between branches of one tree: M has no entry for the pair
BRANCHES = """
<mujoco><worldbody><body><joint name="b" axis="0 1 0"/><geom size=".1" pos=".1 0 0"/>
  <body pos=".3 0 0"><joint name="c" axis="0 1 0"/><geom size=".1" pos=".1 0 0"/></body>
  <body pos="0 .3 0"><joint name="d" axis="1 0 0"/><geom size=".1" pos=".1 0 0"/></body></body>
</worldbody><tendon><fixed armature="1"><joint joint="c" coef="2"/><joint joint="d" coef="3"/>
</fixed></tendon></mujoco>"""
# a rope to a lone free body, whose gyroscopic derivative must not see the tendon's inertia
ROPE = """
<mujoco><worldbody><site name="w"/><body pos="0 0 1"><freejoint/><geom type="box" size=".1 .2 .3"/>
  <site name="s" pos=".1 .1 .1"/></body></worldbody>
<tendon><spatial armature="2"><site site="w"/><site site="s"/></spatial></tendon></mujoco>"""
MODELS = {
    "both kinds": BOTH.replace('range="0 .5"', 'armature=".3"').replace(
        'range="-.1 .1"', 'armature=".2"'
    ),
    "pulley": PULLEY,
    "actuators": BOTH.replace("</mujoco>", f"{ACTUATORS}</mujoco>"),
    "branches": BRANCHES,
    "rope": ROPE,
}


@pytest.mark.parametrize("integrator", range(4))
@pytest.mark.parametrize("which", MODELS)
def test_inertia_bias_and_a_step_equal_mujoco(which, integrator):
    for seed in range(2):
        f = fixture(MODELS[which], seed, integrator=integrator)
        d = forward.forward(f.m, f.d)
        mass = np.zeros((f.mj.nv, f.mj.nv))
        mujoco.mj_fullM(f.mj, f.mjd, mass)
        assert_close(d.M, mass, "M")
        for field in ("qfrc_bias", "qacc"):
            assert_close(getattr(d, field), getattr(f.mjd, field), field)
        d = forward.step(f.m, f.d)
        mujoco.mj_step(f.mj, f.mjd)
        assert_close(d.qvel, f.mjd.qvel, "qvel")


@pytest.mark.parametrize("which", ["both kinds", "rope"])
def test_the_bias_force_is_that_of_the_kinetic_energy(which):
    """Without gravity and forces, kinetic energy stays: M and the bias force belong together."""
    flags = int(mujoco.mjtDisableBit.mjDSBL_LIMIT) | int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    f = fixture(MODELS[which], 1, gravity=[0, 0, 0], disableflags=flags)
    inputs = {n: torch.zeros_like(getattr(f.d, n)) for n in ("qfrc_applied", "xfrc_applied")}
    d = type(f.d)(**vars(f.d) | inputs)
    power = []
    for h in (1e-6, -1e-6):
        m = type(f.m)(**vars(f.m) | {"opt": type(f.m.opt)(**vars(f.m.opt) | {"timestep": h})})
        after = forward.forward(m, forward.step(m, d))
        power.append(0.5 * (after.qvel @ after.M[0] @ after.qvel.mT).item())
    assert (power[0] - power[1]) / 2e-6 == pytest.approx(0, abs=1e-5)


def test_without_armature_nothing_is_added():
    f = fixture(FEATURES["tendon"]["spatial"])
    assert f.m.derived["tendon_inertia"] is None
    bare = smooth.mass_matrix(f.m, f.d)
    assert_close(bare.M, f.d.M[0].numpy(), "M")
