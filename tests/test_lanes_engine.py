"""The lanes engine: agreement with the float64 reference, determinism, independence, fallback."""

import logging
from dataclasses import replace

import pytest
import torch

import alloy
from alloy import engines
from alloy.engines import LanesEngine, guarded_step, make_guard
from alloy.physics import io
from alloy.physics.model import make_data
from tests.physics.fixture import load

SLIDER = """
<mujoco><option timestep="0.01"/><worldbody>
  <geom type="plane" size="3 3 1"/>
  <body name="ball" pos="0 0 .3"><freejoint/><geom size=".1"/></body>
  <body name="arm" pos="1 0 .5"><joint name="j" axis="0 1 0" range="-40 40" damping=".1"/>
    <geom type="capsule" size=".05" fromto="0 0 0 .4 0 0"/></body>
</worldbody><actuator><motor joint="j" ctrlrange="-1 1"/></actuator></mujoco>"""

NAMED = SLIDER.replace('<motor joint="j"', '<motor name="j" joint="j"')


@pytest.fixture(scope="module")
def cheetah():
    mj = load("half_cheetah.xml")
    return mj, LanesEngine(io.put_model(mj), "test"), io.put_model(mj, dtype=torch.float64)


def scattered(m, worlds, seed):
    """Random states: in the air, on the ground, joints beyond their limits, high velocities."""
    g = torch.Generator().manual_seed(seed)
    d = make_data(m, worlds)

    def normal(n):
        return torch.randn(worlds, n, generator=g).to(m.qpos0.dtype)

    qpos = d.qpos + 0.35 * normal(m.nq)
    qpos[:, 1] = 0.4 * torch.rand(worlds, generator=g) - 0.15
    speed = torch.where(torch.rand(worlds, 1, generator=g) < 0.2, 15.0, 2.0)
    ctrl = 2.4 * torch.rand(worlds, m.nu, generator=g) - 1.2
    return replace(d, qpos=qpos, qvel=normal(m.nv) * speed, ctrl=ctrl.to(qpos.dtype))


def test_one_step_from_random_states_agrees_with_the_float64_reference(cheetah):
    mj, engine, m64 = cheetah
    d32 = scattered(engine._nominal, 1000, 0)
    d64 = replace(make_data(m64, 1000), **{
        name: getattr(d32, name).double() for name in ("qpos", "qvel", "ctrl")
    })  # fmt: skip
    guard = make_guard(1000, "cpu")
    ours, _ = engine.step(engine._nominal, d32, guard, 1)
    want, _ = guarded_step(m64, d64, guard, 1)
    low, high = m64.jnt_range[:, 3:].unbind(-1)
    limits = (d64.qpos[:, 3:] < low) | (d64.qpos[:, 3:] > high)
    assert limits.any(-1).sum() > 100
    assert (want.solver_niter > 1).sum() > 100
    # The velocity's change is h * qacc, and qacc of stiff contacts reaches 1e4 to 1e5: a relative
    # error of float32 rounding (6e-8) times the condition of M + J' D J (about 1e3) on that change.
    change = (want.qvel - d64.qvel).abs().amax(-1, keepdim=True)
    error = (ours.qvel.double() - want.qvel).abs()
    bound = 2e-4 * change + 2e-5 * (1 + want.qvel.abs())
    assert (error <= bound).float().mean() > 0.999
    assert (error <= 20 * bound).all()


def test_the_same_bits_again_for_any_threads_and_neighbours(cheetah):
    mj, _, _ = cheetah
    results = []
    for threads in (1, 2):
        engine = LanesEngine(io.put_model(mj), "test", threads=threads)
        for _ in range(2):
            d, guard = scattered(engine._nominal, 50, 1), make_guard(50, "cpu")
            for _ in range(20):
                d, guard = engine.step(engine._nominal, d, guard, 1)
            results.append(d)
    for other in results[1:]:
        assert torch.equal(other.qpos, results[0].qpos)
        assert torch.equal(other.qacc_warmstart, results[0].qacc_warmstart)

    engine = LanesEngine(io.put_model(mj), "test")
    first = scattered(engine._nominal, 50, 1)
    alone = replace(
        make_data(engine._nominal, 3),
        **{name: getattr(first, name)[7:10] for name in ("qpos", "qvel", "ctrl")},
    )
    poisoned = replace(first, qvel=first.qvel.clone())
    poisoned.qvel[8] = torch.nan
    guards = [make_guard(n, "cpu") for n in (3, 50)]
    for _ in range(20):
        alone, guards[0] = engine.step(engine._nominal, alone, guards[0], 1)
        poisoned, guards[1] = engine.step(engine._nominal, poisoned, guards[1], 1)
    assert torch.equal(alone.qpos, results[0].qpos[7:10])
    rest = torch.arange(50) != 8
    assert torch.equal(poisoned.qpos[rest], results[0].qpos[rest])
    assert guards[1].invalid.tolist() == (~rest).tolist()
    assert torch.isfinite(poisoned.qpos).all()


def test_auto_takes_lanes_on_the_cpu_and_views_are_fresh(monkeypatch):
    monkeypatch.delenv("ALLOY_ENGINE")
    sim, ref = alloy.build(SLIDER, worlds=5), alloy.build(SLIDER, worlds=5, engine="reference")
    assert sim.engine_report()["engine"] == "lanes"
    for _ in range(60):
        for s in (sim, ref):
            s.step(torch.full((5, 1), 0.4))
    torch.testing.assert_close(sim.body("ball").pos, ref.body("ball").pos, atol=1e-4, rtol=0)
    assert sim.in_contact("ball").all()
    report = sim.engine_report()["programs"]["2 substeps"]
    assert report["statements"] > 100 and report["loops"] == 3  # substeps, Newton, line search
    assert alloy.build(SLIDER, dtype=torch.float64).engine_report()["engine"] == "reference"


def test_randomized_fields_are_inputs_of_the_program():
    def scene():
        s = alloy.Scene(dt=0.02)
        s.add_ground()
        s.add_sphere("ball", radius=0.1, pos=(0, 0, 0.3), mass=1.0)
        s.randomize("ball", "mass", 0.5, 2.0)
        return s

    sims = [alloy.build(scene(), worlds=6, seed=3, engine=e) for e in ("lanes", "reference")]
    push = torch.zeros(6, sims[0].model.nbody, 6)
    push[:, 1, 0] = 1.0
    for sim in sims:
        sim.xfrc_applied = push
        for _ in range(10):
            sim.step()
    assert sims[0].qvel[:, 0].unique().numel() == 6
    torch.testing.assert_close(sims[0].qpos, sims[1].qpos, atol=1e-5, rtol=0)


def test_gradients_go_through_the_reference():
    sim = alloy.build(SLIDER, worlds=2)
    ctrl = torch.full((2, 1), 0.3, requires_grad=True)
    d, _ = sim._engine.step(sim.model, replace(sim.data, ctrl=ctrl), make_guard(2, "cpu"), 2)
    (gradient,) = torch.autograd.grad(d.qvel[:, -1].sum(), ctrl)
    assert (gradient > 0).all()


def test_thousands_of_rows_are_not_even_traced(monkeypatch):
    balls = "".join(f'<body pos="{k} 0 1"><freejoint/><geom size=".1"/></body>' for k in range(24))
    text = f"<mujoco><worldbody><geom type='plane' size='9 9 1'/>{balls}</worldbody></mujoco>"
    monkeypatch.setattr(engines.lanes, "compile", lambda *a, **kw: pytest.fail("traced"))
    sim = alloy.build(text, worlds=2, engine="lanes")
    sim.step()
    (said,) = sim.engine_report()["not compiled"]
    assert "900 constraint rows make more than" in said and "over the budget of 200,000" in said


def test_over_budget_falls_back_and_says_so_once(monkeypatch, caplog):
    monkeypatch.setattr(engines, "BUDGET", 50)
    sim = alloy.build(SLIDER, worlds=2, engine="lanes")
    with caplog.at_level(logging.WARNING, "alloy"):
        for _ in range(3):
            sim.step()
    assert len([r for r in caplog.records if "reference" in r.message]) == 1
    assert "statements" in sim.engine_report()["not compiled"][0]
    ref = alloy.build(SLIDER, worlds=2, engine="reference")
    for _ in range(3):
        ref.step()
    assert torch.equal(sim.qpos, ref.qpos)


def test_the_environment_variable_decides_auto(monkeypatch):
    model = io.put_model(load("inverted_pendulum.xml"))
    for wish in ("lanes", "reference"):
        monkeypatch.setenv("ALLOY_ENGINE", wish)
        assert engines.make_engine("auto", model).name == wish
        assert engines.make_engine("reference", model).name == "reference"
    monkeypatch.setenv("ALLOY_ENGINE", "fast")
    with pytest.raises(ValueError, match="ALLOY_ENGINE must be one of"):
        engines.make_engine("auto", model)


def test_a_term_that_cannot_be_compiled_runs_in_torch_on_compiled_physics(caplog):
    from alloy.envs import Task, VectorEnv, checks

    def odd(sim):  # an operator outside the compiler's table
        return torch.special.bessel_j0(sim.joint("j").pos)

    task = Task(
        obs=[odd], actions=["j"], reward={"alive": (1.0, checks.alive())}, max_steps=5
    )  # fmt: skip
    with caplog.at_level(logging.WARNING, "alloy"):
        env = VectorEnv(NAMED, task, worlds=3, engine="lanes")
        env.reset(seed=0)
        for _ in range(3):
            obs, *_ = env.step(torch.ones(3, 1))
    said = env.sim.engine_report()
    assert "is not compiled as one program, its physics is" in said["not compiled"][0]
    assert "bessel_j0" in said["not compiled"][0]
    assert [name for name in said["programs"] if "substeps" in name]
    torch.testing.assert_close(obs[:, 0], torch.special.bessel_j0(env.sim.qpos[:, -1]))
