"""Kernels compile ahead of time without spills, in a process that does not interpret them."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_kernel_of_a_model_compiles_without_spills(tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "scripts/triton_report.py", "--models", "HalfCheetah",
               "--targets", "89", "--check"]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, env=environment | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for kernel in ("kinematics", "mass_matrix", "collide plane-capsule", "solve", "semi_implicit"):
        assert f"| {kernel}" in done.stdout
