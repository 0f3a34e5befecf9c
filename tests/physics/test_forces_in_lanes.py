"""Forces, motors and solvers beyond the common ones compile in lanes, and agree there."""

import pytest
import torch

import alloy
from tests.physics.test_dcmotor import CHAIN, MOTORS, OTHER
from tests.physics.test_fluid_ellipsoid import swimmer
from tests.physics.test_polynomials import POLYNOMIALS

ROD = """<mujoco><option cone="elliptic" noslip_iterations="9" noslip_tolerance="0"/><worldbody>
  <geom type="plane" size="9 9 1" pos="0 0 -.2"/>
  <body><joint axis="0 1 0"/><geom type="capsule" size=".05" fromto="0 0 0 .5 0 -.16"/></body>
  <body pos="2 0 -.11"><freejoint/><geom size=".1"/></body></worldbody></mujoco>"""
MODELS = {
    "motors, implicit": CHAIN.format(MOTORS["everything"], OTHER).replace(
        "<option ", '<option integrator="implicit" '
    ),
    "polynomials": POLYNOMIALS,
    "ellipsoids": swimmer(),
    "noslip": ROD,
}


@pytest.mark.parametrize("which", MODELS)
def test_lanes_agrees_with_the_reference(which):
    ours = alloy.build(MODELS[which], 5, engine="lanes")
    theirs = alloy.build(MODELS[which], 5, engine="reference", dtype=torch.float64)
    numbers = torch.Generator().manual_seed(1)
    qvel = torch.randn(theirs.qvel.shape, generator=numbers)
    ctrl = torch.randn(theirs.ctrl.shape, generator=numbers)
    for sim in (ours, theirs):
        sim.qvel = qvel.to(sim.dtype)
        sim.step(ctrl.to(sim.dtype))
    assert ours.engine_report()["engine"] == "lanes" and ours.engine_report()["programs"]
    # rounding of float32, that of friction forces above all
    torch.testing.assert_close(ours.qvel.double(), theirs.qvel, atol=2e-4, rtol=2e-4)
    torch.testing.assert_close(ours.act.double(), theirs.act, atol=1e-5, rtol=1e-5)
