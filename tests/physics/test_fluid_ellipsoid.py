"""The fluid's forces on ellipsoids, and their derivative in a step, against MuJoCo in float64."""

import mujoco
import numpy as np
import pytest
import torch

from alloy.physics import forward
from tests.physics.fixture import assert_close, fixture

# every shape that counts as an ellipsoid, some turned and off their bodies; a body without any,
# which is its inertia box, one that does not move, and a geom that the medium does not touch
SWIMMER = """
<mujoco><option density="{density}" viscosity="{viscosity}" wind="{wind}"/>
<asset><mesh name="tent" vertex="-.1 -.1 -.1 .1 -.1 -.1 0 .1 -.1 0 0 .15"/></asset>
<default><geom contype="0" conaffinity="0" fluidshape="ellipsoid" fluidcoef="{coef}"/>
  <default class="plain"><geom fluidshape="none"/></default></default>
<worldbody>
  <body pos="0 0 1"><freejoint/><geom type="box" size=".1 .2 .3" pos=".05 0 0" euler="10 20 30"/>
    <geom size=".1" pos="-.1 .1 0" fluidcoef=".4 .3 .2 1 2"/>
    <geom type="mesh" mesh="tent" pos=".3 .2 0"/><geom class="plain" size=".1" pos=".3 0 0"/>
    <body pos=".3 0 0"><joint axis="0 1 1" damping=".1"/>
      <geom type="capsule" size=".05 .2" euler="0 40 0"/>
      <body pos=".3 0 0"><joint type="ball"/><geom type="ellipsoid" size=".1 .2 .05"/>
        <geom type="cylinder" size=".1 .2" pos="0 0 .2"/>
        <body pos=".3 0 0"><joint axis="1 0 0"/><geom class="plain" type="box" size=".1 .1 .2"/>
        </body></body></body></body>
  <body pos="4 0 0"><geom size=".3"/></body>
</worldbody></mujoco>"""
COEFFICIENTS = (
    "1 0 0 0 0", "0 1 0 0 0", "0 0 1 0 0", "0 0 0 1 0", "0 0 0 0 1", ".5 .25 1.5 1 1",
)  # fmt: skip


def swimmer(coef: str = ".5 .25 1.5 1 1", density: float = 10, viscosity: float = 0.3,
            wind: str = ".5 -1 2") -> str:  # fmt: skip
    return SWIMMER.format(coef=coef, density=density, viscosity=viscosity, wind=wind)


@pytest.mark.parametrize("integrator", {"Euler": 0, "implicit": 2, "implicitfast": 3}.items())
@pytest.mark.parametrize("coef", COEFFICIENTS)
def test_forces_and_a_step_equal_mujoco(coef, integrator):
    f = fixture(swimmer(coef), 1, integrator=integrator[1], timestep=0.05)
    d = forward.step(f.m, f.d)
    assert np.abs(f.mjd.qfrc_fluid).max() > 1
    for field in ("qfrc_fluid", "qfrc_passive"):
        assert_close(getattr(d, field), getattr(f.mjd, field), field)
    mujoco.mj_step(f.mj, f.mjd)
    assert_close(d.qvel, f.mjd.qvel, "qvel")


@pytest.mark.parametrize("medium", [(10, 0), (0, 0.3)])
def test_density_and_viscosity_alone(medium):
    f = fixture(swimmer(density=medium[0], viscosity=medium[1]), 2)
    assert_close(forward.forward(f.m, f.d).qfrc_fluid, f.mjd.qfrc_fluid, "qfrc_fluid")


@pytest.mark.parametrize("speed", [0, 1e-9, 1e-4])
def test_at_rest_and_nearly_so_forces_are_mujocos(speed):
    f = fixture(swimmer(wind="0 0 0"), 1, integrator=2)
    f.mjd.qvel[:] = speed * f.mjd.qvel
    f.d.qvel[:] = torch.from_numpy(f.mjd.qvel)
    mujoco.mj_forward(f.mj, f.mjd)
    d = forward.step(f.m, f.d)
    forces = d.qfrc_fluid[0].numpy()
    np.testing.assert_allclose(forces, f.mjd.qfrc_fluid, rtol=1e-9, atol=1e-22)
    mujoco.mj_step(f.mj, f.mjd)
    assert_close(d.qvel, f.mjd.qvel, "qvel")


def test_lift_and_drag_of_something_tiny():
    """Nothing is lost where sizes of a millimetre and slow motions multiply."""
    ant = """<mujoco><option density="10"/><worldbody><body><freejoint/><geom type="ellipsoid"
      size=".001 .002 .0005" mass="1" fluidshape="ellipsoid"/></body></worldbody></mujoco>"""
    f = fixture(ant)
    f.mjd.qvel[:] = np.array([0.01, -0.02, 0.005, 0.1, 0.2, 0.3])
    f.d.qvel[:] = torch.from_numpy(f.mjd.qvel)
    mujoco.mj_forward(f.mj, f.mjd)
    forces = forward.forward(f.m, f.d).qfrc_fluid[0].numpy()
    np.testing.assert_allclose(forces, f.mjd.qfrc_fluid, rtol=1e-9)


def test_forces_at_rest_have_a_finite_gradient():
    f = fixture(swimmer(wind="0 0 0"))
    qvel = torch.zeros_like(f.d.qvel, requires_grad=True)
    d = forward.forward(f.m, type(f.d)(**vars(f.d) | {"qvel": qvel}))
    (slope,) = torch.autograd.grad(d.qfrc_fluid.sum(), qvel)
    assert torch.isfinite(slope).all()


def test_without_a_medium_shapes_do_not_count():
    f = fixture(swimmer(density=0, viscosity=0))
    assert f.m.derived["passive"].ellipsoids is None
    assert not forward.forward(f.m, f.d).qfrc_fluid.any()
