"""Which implementation an op picks, and that nothing needs Triton before a kernel is used."""

import subprocess
import sys
from dataclasses import replace

import torch

from alloy import ops
from alloy.ops.triton import lane, passive
from alloy.physics import forward, io
from alloy.physics.model import Data, make_data
from scripts.kernels import noted_launches
from tests.physics.fixture import load
from tests.physics.models import JOINTS


def start(worlds=1):
    m = io.put_model(load(JOINTS), dtype=torch.float64)
    return m, make_data(m, worlds)


def launches(run):
    """Names of the kernels that would start; none is carried out."""
    with noted_launches(), lane.watch() as launched:
        run()
    return [x.kernel for x in launched]


def test_the_reference_runs_on_the_cpu_and_kernels_where_they_are_asked_for():
    m, d = start()
    assert launches(lambda: forward.kinematics(m, d)) == []
    with ops.kernels(True):
        assert launches(lambda: forward.kinematics(m, d)) == ["kinematics"]
        with ops.kernels(False):
            assert launches(lambda: forward.kinematics(m, d)) == []
        assert launches(lambda: forward.kinematics(m, d)) == ["kinematics"]
    assert launches(lambda: forward.kinematics(m, d)) == []


def test_a_substep_is_one_launch_for_each_stage():
    m, d = start()
    with ops.kernels(True):
        assert launches(lambda: forward.step(m, d)) == [
            "kinematics", "mass_matrix", "velocity", "passive", "actuation", "factor",
            "factor_solve", "semi_implicit",
        ]  # fmt: skip


def test_where_a_gradient_is_asked_for_the_reference_runs():
    m, d = start()
    wanted = replace(d, qpos=d.qpos.clone().requires_grad_())
    own = replace(m, body_pos=m.body_pos.clone().requires_grad_())
    with ops.kernels(True):
        assert launches(lambda: forward.kinematics(m, wanted)) == []
        assert launches(lambda: forward.kinematics(own, d)) == []
        with torch.no_grad():
            assert launches(lambda: forward.kinematics(m, wanted)) == ["kinematics"]
    pos = forward.kinematics(m, wanted).xpos
    assert torch.autograd.grad(pos.sum(), wanted.qpos)[0].abs().sum() > 0


def test_what_a_kernel_does_not_know_keeps_the_reference(monkeypatch):
    m, d = start()
    d = forward.velocity(m, forward.position(m, d))
    tables = m.derived["passive"]
    assert tables.damper and not tables.gravcomp
    with ops.kernels(True):
        monkeypatch.setattr(passive, "KNOWN", passive.KNOWN - {"gravcomp"})
        assert launches(lambda: ops.passive(m, d)) == ["passive"]  # it does not have that
        monkeypatch.setattr(passive, "KNOWN", passive.KNOWN - {"damper"})
        assert launches(lambda: ops.passive(m, d)) == []


def test_sensors_in_a_frame_of_reference_keep_the_reference():
    text = """<mujoco><worldbody><body name="a"><freejoint/><geom size=".1"/><site name="s"/></body>
      </worldbody><sensor><framepos objtype="site" objname="s" {}/></sensor></mujoco>"""
    for reference, expected in (("", ["sensor"]), ('reftype="body" refname="a"', [])):
        m = io.put_model(load(text.format(reference)), dtype=torch.float64)
        d = forward.forward(m, make_data(m, 1))
        with ops.kernels(True):
            assert launches(lambda m=m, d=d: ops.sensor(m, d)) == expected


def test_an_empty_number_of_worlds_is_no_launch():
    m, d = start()
    none = Data(**{k: v[:0] for k, v in vars(d).items() if v is not None})
    with ops.kernels(True):
        assert launches(lambda: forward.kinematics(m, none)) == []


def test_importing_alloy_and_stepping_on_the_cpu_does_not_import_triton():
    code = """
import sys, mujoco, alloy
sim = alloy.build("<mujoco><worldbody><body><freejoint/><geom size='.1'/></body></worldbody>"
                  "</mujoco>", engine="reference")
sim.step()
ours = [name for name in sys.modules if name.startswith("alloy.ops.triton.")]
assert not ours, ours
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd="/")
