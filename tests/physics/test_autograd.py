"""Gradients through ten steps against central differences, along random directions in float64."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from alloy import math, ops
from alloy.physics import forward, io
from alloy.physics.model import STATE, Data, Model, make_data
from tests.physics.fixture import load, tighten
from tests.physics.models import CONTACTS, EQUALITIES, JOINTS, LIMITS

PENDULUM = """
<mujoco><option timestep=".005"/><worldbody>
  <body><joint name="a" axis="0 1 0" damping=".05"/>
    <geom type="capsule" size=".05" fromto="0 0 0 0 0 -.4"/>
    <body pos="0 0 -.4"><joint name="b" axis="0 1 0" damping=".02" armature=".01" stiffness=".5"/>
      <geom type="capsule" size=".04" fromto="0 0 0 .3 0 0"/></body></body>
</worldbody>
<actuator><motor joint="a" gear="2"/><position joint="b" kp="3" kv=".1"/></actuator></mujoco>"""

BOX = """
<mujoco><option cone="{cone}"/><worldbody><geom type="plane" size="5 5 .1"/>
  <body pos="0 0 {height}"><freejoint/>
    <geom type="box" size=".1 .12 .08" friction=".8 .02 .01" condim="{dim}"/>
  </body></worldbody></mujoco>"""

STEPS = 10
INPUTS = ("qpos", "qvel", "ctrl", "body_mass", "dof_damping")


def rollout(m: Model, d: Data) -> Data:
    for _ in range(STEPS):
        d = forward.step(m, d)
    return d


def objective(m: Model, d: Data, seed: int) -> Tensor:
    """A random linear function of the state after the run, (W,)."""
    g = torch.Generator().manual_seed(seed)
    end = rollout(m, d)
    state = torch.cat([end.qpos, end.qvel, end.act], -1)
    return state @ torch.randn(state.shape[1], generator=g, dtype=state.dtype)


def placed(m: Model, d: Data, name: str, value: Tensor) -> tuple[Model, Data]:
    if hasattr(m, name):
        return replace(m, **{name: value}), d
    return m, replace(d, **{name: value})


def check(m: Model, d: Data, rtol: float, eps: float = 1e-6) -> None:
    g = torch.Generator().manual_seed(1)
    for name in INPUTS:
        value = getattr(m if hasattr(m, name) else d, name)
        if value.numel() == 0 or (name == "dof_damping" and not m.derived["passive"].damper):
            continue
        x = value.clone().requires_grad_()
        (grad,) = torch.autograd.grad(objective(*placed(m, d, name, x), 0).sum(), x)
        assert torch.isfinite(grad).all(), name
        u = torch.randn(value.shape, generator=g, dtype=value.dtype)
        u = u * value if name in ("body_mass", "dof_damping") else u
        ends = [objective(*placed(m, d, name, value + s * eps * u), 0).sum() for s in (1, -1)]
        slope, actual = (ends[0] - ends[1]) / (2 * eps), (grad * u).sum()
        close = abs(actual - slope) <= rtol * abs(slope) + 1e-8
        assert close, f"{name}: {actual:.10g} against {slope:.10g}"


def start(source: str, seed: int = 0, steps: int = 0, lift: float = 0.0, **option) -> tuple:
    """A tight model and one world of it after some steps of MuJoCo with random controls."""
    mj = load(source)
    tighten(mj)
    for name, value in option.items():
        setattr(mj.opt, name, value)
    mjd, rng = mujoco.MjData(mj), np.random.default_rng(seed)
    mjd.qvel[:] = 0.2 * rng.normal(size=mj.nv)
    mjd.ctrl[:] = rng.uniform(-0.5, 0.5, mj.nu)
    for _ in range(steps):
        mujoco.mj_step(mj, mjd)
    if lift:
        mjd.qpos[1 if mj.jnt_type[0] == mujoco.mjtJoint.mjJNT_SLIDE else 2] += lift
    m = io.put_model(mj, dtype=torch.float64)
    return m, io.put_data(m, mj, mjd)


FLYING = BOX.format(cone="pyramidal", height=2, dim=3)
EULER, RK4, IMPLICITFAST = 0, 1, 3


@pytest.mark.parametrize(
    ("source", "integrator"),
    [("half_cheetah.xml", EULER), (FLYING, EULER), (PENDULUM, EULER), (PENDULUM, RK4),
     (FLYING, IMPLICITFAST), (PENDULUM, IMPLICITFAST)],
    ids=["half_cheetah", "box", "pendulum", "pendulum-RK4", "box-implicit", "pendulum-implicit"],
)  # fmt: skip
def test_gradients_without_contact(source, integrator):
    m, d = start(source, lift=3.0 if "cheetah" in source else 0.0, integrator=integrator)
    check(m, d, 1e-5)
    assert not rollout(m, d).efc_active[:, m.efc.nl :].any()


@pytest.mark.parametrize(
    ("source", "steps"),
    [
        ("half_cheetah.xml", 40),
        ("half_cheetah.xml", 90),
        (BOX.format(cone="pyramidal", height=0.079, dim=3), 20),
        (BOX.format(cone="elliptic", height=0.079, dim=3), 20),
        (BOX.format(cone="elliptic", height=0.079, dim=6), 20),
        (BOX.format(cone="pyramidal", height=0.079, dim=4), 20),
    ],
)
def test_gradients_with_contact(source, steps):
    m, d = start(source, steps=steps)
    end = rollout(m, d)
    assert end.efc_active.any() and (end.efc_force.abs() > 0.1).any()
    check(m, d, 1e-4)


@pytest.mark.parametrize("source", [LIMITS, EQUALITIES], ids=["limits", "equalities"])
def test_gradients_with_other_constraints(source):
    m, d = start(source, steps=3)
    assert forward.forward(m, d).efc_active.any()
    check(m, d, 1e-4)


def test_gradient_of_contact_parameters():
    """Friction acts through the cone, mass and pose through the rows."""
    m, d = start(BOX.format(cone="pyramidal", height=0.079, dim=3), steps=5)
    d = replace(d, qvel=d.qvel + torch.eye(6, dtype=d.qvel.dtype)[0])  # it slides
    x = m.con_friction.clone().requires_grad_()
    (grad,) = torch.autograd.grad(objective(replace(m, con_friction=x), d, 0).sum(), x)
    u, eps = torch.ones_like(x) * torch.tensor([1.0, 1, 0, 0, 0], dtype=x.dtype), 1e-6
    moved = [replace(m, con_friction=m.con_friction + s * eps * u) for s in (1, -1)]
    ends = [objective(model, d, 0).sum() for model in moved]
    slope = (ends[0] - ends[1]) / (2 * eps)
    assert abs(slope) > 1e-3
    torch.testing.assert_close((grad * u).sum(), slope, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize(
    "source", ["half_cheetah.xml", "humanoid.xml", "ant.xml", "swimmer.xml", JOINTS, LIMITS,
               EQUALITIES, CONTACTS["condim6-elliptic-10"], CONTACTS["condim4-pyramidal-1"]],
    ids=str.split("half_cheetah humanoid ant swimmer joints limits equalities elliptic pyramidal"),
)  # fmt: skip
def test_no_gradient_is_nan_at_rest(source):
    """Everything at zero: no velocity, no angle, no slip, undeformed springs."""
    m = io.put_model(load(source), dtype=torch.float64)
    d = make_data(m, 2)
    leaves = {n: getattr(d, n).clone().requires_grad_() for n in ("qpos", "qvel", "ctrl")}
    end = forward.step(m, forward.step(m, replace(d, **leaves)))
    outputs = [getattr(end, n) for n in (*STATE, "qacc", "sensordata", "xquat", "contact_pos")]
    total = sum(x.sum() for x in outputs if x.is_floating_point() and x.requires_grad)
    for name, x in leaves.items():
        if x.numel():
            (grad,) = torch.autograd.grad(total, x, retain_graph=True, allow_unused=True)
            assert grad is None or torch.isfinite(grad).all(), name


def test_safe_forms_have_finite_gradients_at_zero():
    zero = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    quat = torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)
    identity = torch.tensor([[1.0, 0, 0, 0]], dtype=torch.float64, requires_grad=True)
    for x, y in (
        (zero, math.safe_norm(zero)),
        (zero, torch.cat(math.normalize(zero), -1)),
        (quat, math.quat_normalize(quat)),
        (identity, math.quat_to_rotvec(identity)),
        (zero, ops.integrate_quat(identity.expand(2, 4), zero, 0.1)),
    ):
        (grad,) = torch.autograd.grad(y.sum(), x)
        assert torch.isfinite(grad).all()
