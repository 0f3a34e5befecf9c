"""The programs of docs/training.md run as they stand and print what stands below them."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from alloy.envs.wrappers import checkpoint
from alloy.envs.wrappers.policy import Policy

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "training.md").read_text()
PROGRAM = re.compile(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", re.DOTALL)
PROGRAMS = [(match[1], match[2]) for match in PROGRAM.finditer(PAGE)]


@pytest.mark.parametrize(("program", "printed"), PROGRAMS)
def test_program_prints_what_the_page_says(program, printed, tmp_path, monkeypatch):
    monkeypatch.delenv("ALLOY_ENGINE", raising=False)  # what a reader gets
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(path, {"policy": Policy([4, 8, 1], "elu").packed()})
    given = {"__name__": "page", "path": path, "obs": torch.zeros(2, 4)}
    torch.manual_seed(0)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(program, "docs/training.md", "exec"), given)
    assert out.getvalue() == (printed or "")


def test_every_library_has_a_program():
    for adapter in ("RslRlVecEnv(", "TorchRLEnv(", "SB3VecEnv(", "SkrlWrapper(", "gym.make_vec("):
        assert any(adapter in program for program, _ in PROGRAMS), adapter


def test_files_of_the_page_exist():
    for name in re.findall(r"\]\(([\w./-]+\.md)\)", PAGE):
        assert (ROOT / "docs" / name).exists(), name
    for name in re.findall(r"`(alloy/[\w/]+\.py)`", PAGE):
        assert (ROOT / name).exists(), name


def test_adapters_are_measured_after_they_gave_the_same_rewards(tmp_path):
    small = ("--worlds", "3", "--steps", "12", "--repeats", "1", "--engine", "reference")
    command = [sys.executable, str(ROOT / "scripts/bench_adapters.py"), "InvertedPendulum-v5"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, *small], capture_output=True, text=True, env=env, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("env-steps/s") == 5
