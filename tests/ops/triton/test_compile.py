"""Kernels compile ahead of time without spills, in a process that does not interpret them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("model", "target", "kernels"),
    [
        ("HalfCheetah", "89", []),
        # the longest ones, box-box among the contacts, for AMD's warps of 64 threads
        ("GripperLift", "gfx942", ["contacts", "solve"]),
    ],
)
def test_kernels_compile_fast_and_without_spills(model, target, kernels, tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "scripts/triton_report.py", "--models", model,
               "--targets", target, "--check"]  # fmt: skip
    command += ["--kernels", *kernels] if kernels else []
    done = subprocess.run(
        command, cwd=ROOT, env=environment | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for kernel in kernels or ("kinematics", "contacts", "rows", "solve", "semi_implicit"):
        assert f"| {kernel}" in done.stdout
