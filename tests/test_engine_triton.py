"""The GPU engine without a GPU: its recording is a stand-in that behaves as a CUDA graph does."""

import os
from dataclasses import replace
from types import SimpleNamespace

os.environ.setdefault("TRITON_INTERPRET", "1")  # as the kernels' own tests have it

import mujoco
import pytest
import torch

from alloy import engines
from alloy.engines import TritonEngine, guarded_step, make_engine, make_guard
from alloy.engines_triton import Recording, launch_report
from alloy.envs import VectorEnv
from alloy.envs.half_cheetah import half_cheetah
from alloy.ops.triton.lane import Launched
from alloy.physics import io
from alloy.physics.model import INPUTS, STATE, Data, make_data
from alloy.structure import flatten, unflatten
from tests.test_engines import PENDULUM

HELD = (*STATE, *INPUTS)


class Recorder:
    """Repeats a function into the tensors of its first results, and counts."""

    def __init__(self, refuse=False):
        self.recorded, self.replayed, self.refuse = 0, 0, refuse

    def __call__(self, run):
        if self.refuse:
            raise RuntimeError("operation not permitted when stream is capturing\nand more")
        self.recorded += 1
        out, leaves = run(), []
        flatten(out, leaves)
        leaves = [x.clone() for x in leaves]
        structure = flatten(out, [])

        def replay():
            self.replayed += 1
            again = []
            flatten(run(), again)
            for x, y in zip(leaves, again, strict=True):
                x.copy_(y)

        return replay, unflatten(structure, iter(leaves))


def pendulum(worlds):
    m = io.put_model(mujoco.MjModel.from_xml_string(PENDULUM), dtype=torch.float64)
    d = make_data(m, worlds)
    angle = torch.linspace(0.3, 1.5, worlds, dtype=torch.float64)
    return m, replace(d, qpos=torch.stack([angle, -0.5 * angle]).mT, ctrl=d.ctrl + 0.2)


def held(d):
    return Data(**{name: getattr(d, name) for name in HELD})


def test_steps_are_the_references_and_recorded_once_for_each_world_count():
    record = Recorder()
    m, _ = pendulum(1)
    engine = TritonEngine(m, "asked for", record)
    for worlds in (3, 5, 3):
        _, d = pendulum(worlds)
        guard = make_guard(worlds, "cpu")
        expected, expected_guard = d, guard
        for _ in range(4):
            d, guard = engine.step(m, held(d), guard, 2, ("xpos",))
            expected, expected_guard = guarded_step(
                m, held(expected), expected_guard, 2, derived=False, keep=("xpos",)
            )
            for name in (*HELD, "solver_niter", "xpos"):
                assert torch.equal(getattr(d, name), getattr(expected, name)), name
            assert torch.equal(guard.invalid, expected_guard.invalid)
    assert (record.recorded, record.replayed) == (2, 12)
    assert set(engine.report()["programs"]) == {"2 substeps of 3 worlds", "2 substeps of 5 worlds"}


def test_what_a_step_gave_is_never_written_again_and_arguments_are_left_alone():
    record = Recorder()
    m, start = pendulum(3)
    engine = TritonEngine(m, "asked for", record)
    before = {name: getattr(start, name).clone() for name in HELD}
    first, guard = engine.step(m, held(start), make_guard(3, "cpu"), 1)
    kept = {name: getattr(first, name).clone() for name in STATE}
    second, _ = engine.step(m, held(first), guard, 1)
    assert all(torch.equal(getattr(start, name), before[name]) for name in HELD)
    assert all(torch.equal(getattr(first, name), kept[name]) for name in STATE)
    assert not torch.equal(first.qpos, second.qpos)
    assert second.qpos.stride() == start.qpos.stride()  # worlds stay last in memory


def test_a_worlds_own_parameters_are_arguments():
    record = Recorder()
    m, d = pendulum(3)
    engine = TritonEngine(m, "asked for", record)
    for factor in (1.0, 2.0):
        own = replace(m, dof_damping=factor * m.dof_damping * torch.ones(3, 1))
        actual, _ = engine.step(own, held(d), make_guard(3, "cpu"), 1)
        expected, _ = guarded_step(own, held(d), make_guard(3, "cpu"), 1)
        assert torch.equal(actual.qvel, expected.qvel)
    assert record.recorded == 1


def test_what_cannot_be_recorded_runs_and_is_said_once(caplog):
    m, d = pendulum(2)
    engine = TritonEngine(m, "asked for", Recorder(refuse=True))
    guard = make_guard(2, "cpu")
    for _ in range(2):
        expected, _ = guarded_step(m, held(d), guard, 1)
        d, guard = engine.step(m, held(d), guard, 1)
        assert torch.equal(d.qpos, expected.qpos)
    assert len(caplog.records) == 1
    (said,) = engine.report()["not recorded"]
    assert said == (
        "the 1 substeps of 2 worlds runs as plain launches: "
        "operation not permitted when stream is capturing"
    )


def test_gradients_pass_by_the_recording():
    record = Recorder()
    m, d = pendulum(2)
    ctrl = d.ctrl.clone().requires_grad_()
    d, _ = TritonEngine(m, "asked for", record).step(
        m, replace(held(d), ctrl=ctrl), make_guard(2, "cpu"), 1
    )
    (gradient,) = torch.autograd.grad(d.qvel.sum(), ctrl)
    assert gradient.abs().sum() > 0 and record.recorded == 0


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_an_environments_whole_step_is_one_recording(autoreset):
    def make():
        scene, task = half_cheetah()
        task = replace(task, max_steps=3)
        return VectorEnv(scene, task, 2, engine="reference", autoreset=autoreset)

    plain, fused, record = make(), make(), Recorder()
    fused.sim._engine = TritonEngine(fused.sim._nominal, "asked for", record)
    first, second = plain.reset(seed=3)[0], fused.reset(seed=3)[0]
    assert torch.equal(first, second)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):  # over the end of an episode
        action = 2 * torch.rand(2, 6, generator=generator) - 1
        expected, actual = plain.step(action), fused.step(action)
        for a, e in zip(actual[:4], expected[:4], strict=True):
            assert torch.equal(a, e)
        assert torch.equal(actual[4]["final_obs"], expected[4]["final_obs"])
    assert (record.recorded, record.replayed) == (1, 5)


def test_recording_of_nothing_but_numbers():
    recording = Recording(lambda x: {"twice": 2 * x}, (torch.ones(2),), Recorder())
    assert recording([torch.tensor([1.0, 3.0])])["twice"].tolist() == [2, 6]


def test_launches_are_counted_by_kernel():
    once = [Launched("solve", 80, 0, 100), Launched("rows", 53, 8, 20), Launched("rows", 53, 8, 20)]
    assert launch_report(once * 3, thrice=True) == {
        "launches": 3,
        "bytes moved per world": 140,
        "kernels": {
            "solve": {"launches": 1, "registers": 80, "spills": 0},
            "rows": {"launches": 2, "registers": 53, "spills": 8},
        },
    }


def on_a_gpu():
    """As much of a model on a GPU as picking an engine looks at."""
    return SimpleNamespace(qpos0=SimpleNamespace(device=torch.device("cuda"), dtype=torch.float32))


def test_auto_picks_it_for_a_model_on_a_gpu(monkeypatch):
    monkeypatch.delenv("ALLOY_ENGINE", raising=False)
    engine = make_engine("auto", on_a_gpu())
    assert engine.name == "triton" and "picked by 'auto'" in engine.report()["reason"]
    assert make_engine("triton", on_a_gpu()).report()["reason"] == "asked for"
    assert make_engine("reference", on_a_gpu()).name == "reference"


def test_without_the_package_it_is_refused_by_name_and_not_picked(monkeypatch):
    monkeypatch.delenv("ALLOY_ENGINE", raising=False)
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="needs the package triton, which is not installed"):
        make_engine("triton", on_a_gpu())
    assert make_engine("auto", on_a_gpu()).name == "reference"
