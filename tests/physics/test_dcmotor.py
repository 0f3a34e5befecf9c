"""DC motors against MuJoCo in float64: force, rates of their states, and runs."""

import mujoco
import numpy as np
import pytest
import torch

from alloy.physics import forward, io
from tests.physics.fixture import assert_close, fixture, load

# two motors on a chain, between actuators of other kinds: the states of all lie in one array
CHAIN = """
<mujoco><option timestep=".002"/><worldbody>
  <body><joint name="h" axis="0 1 0"/><geom size=".1" mass="1"/>
    <body pos=".1 0 0"><joint name="g" axis="1 0 0"/><geom size=".1" mass="1" pos=".1 0 0"/></body>
  </body></worldbody>
<actuator><motor joint="g"/><dcmotor joint="h" motorconst="1.5 1.2" resistance="2" {}/>
  <general joint="g" dyntype="filter" dynprm=".1"/>
  <dcmotor joint="g" motorconst="1.1 1.1" resistance="1" {}/></actuator></mujoco>"""
LUGRE = 'lugre="100 2 .5 .8 .1"'
OTHER = 'inductance=".05" thermal="3 2 0 .004 20 25"'
MOTORS = {
    "bare": "",
    "gear": 'gear="-3"',
    "cogging": 'cogging=".3 7 .2"',
    "limited torque": 'saturation="1.5 0 0"',
    "limited current": 'saturation="0 .4 0"',
    "limited torque beside friction": f'saturation=".3 0 0" cogging="5 7 .2" {LUGRE}',
    "coil": 'inductance=".1"',
    "coil with limited rate": 'inductance=".1" saturation="0 0 7"',
    "position": 'input="pos" controller="1.1 0 .3"',
    "position with all": 'input="pos" controller="1.1 .6 .3 4 .2 .5"',
    "velocity": 'input="vel" controller="1.1 0 .3 4"',
    "torque": 'input="ff" controller="0 0 0 0 0 3"',
    "heat": 'thermal="3 2 0 .004 20 25"',
    "friction": LUGRE,
    "everything": f'thermal="3 2 0 .004 20 25" inductance=".1" {LUGRE} input="pos" '
    'controller="1.1 .6 .3 4 .2 9" ctrlrange="-.5 .5" cogging=".1 2 3"',
}


def run(f, steps: int) -> None:
    """Both engines from here; velocities and states of the motors stay the same."""
    d = f.d
    for _ in range(steps):
        d = forward.step(f.m, d)
        mujoco.mj_step(f.mj, f.mjd)
    assert_close(d.qvel, f.mjd.qvel, "qvel")
    assert_close(d.act, f.mjd.act, "act")


@pytest.mark.parametrize("integrator", {"Euler": 0, "implicit": 2, "implicitfast": 3}.items())
@pytest.mark.parametrize("which", MOTORS)
def test_forces_rates_and_a_run_equal_mujoco(which, integrator):
    f = fixture(CHAIN.format(MOTORS[which], f"{OTHER} {LUGRE}"), 1, integrator=integrator[1])
    d = forward.forward(f.m, f.d)
    for field in ("actuator_force", "act_dot", "qfrc_actuator"):
        assert_close(getattr(d, field), getattr(f.mjd, field), field)
    run(f, 30)


RUNGE_KUTTA = [name for name, text in MOTORS.items() if LUGRE not in text]


@pytest.mark.parametrize("which", RUNGE_KUTTA)
def test_runge_kutta_equals_mujoco(which):
    f = fixture(CHAIN.format(MOTORS[which], OTHER), 1, integrator=1)
    run(f, 5)


def test_a_stalled_motor_by_hand():
    """Torque K V / R at rest, and no torque at the speed V / K."""
    f = fixture(CHAIN.format("", ""))
    constant = (1.5 * 1.2) ** 0.5
    f.d.ctrl[:] = 5
    f.d.qvel[:] = torch.tensor([[0.0, 0.0]])
    force = forward.forward(f.m, f.d).actuator_force
    assert force[0, 1].item() == pytest.approx(constant * 5 / 2, abs=1e-6)
    f.d.qvel[:] = torch.tensor([[5 / constant, 0.0]])
    assert forward.forward(f.m, f.d).actuator_force[0, 1].item() == pytest.approx(0, abs=1e-6)


def test_disabled_motors_stand_still():
    text = CHAIN.format('inductance=".1" group="3"', OTHER)
    text = text.replace("<option ", '<option actuatorgroupdisable="3" ')
    f = fixture(text, 1)
    run(f, 3)


def test_what_is_not_there_is_refused_by_name():
    text = CHAIN.format(f'name="x" {LUGRE}', "").replace("<option", '<option integrator="RK4"')
    with pytest.raises(NotImplementedError, match=r"actuator 'x'.*lugre with integrator RK4"):
        io.put_model(load(text))


def test_worlds_with_their_own_resistance():
    f = fixture(CHAIN.format("", ""))
    prm = f.m.actuator_gainprm.repeat(2, 1, 1)
    prm[1, 1, 0] = 4
    m = type(f.m)(**vars(f.m) | {"actuator_gainprm": prm})
    two = {k: None if v is None else v.expand(2, *v.shape[1:]) for k, v in vars(f.d).items()}
    force = forward.forward(m, type(f.d)(**two)).actuator_force[:, 1]
    assert np.isclose(force[0], 2 * force[1])
