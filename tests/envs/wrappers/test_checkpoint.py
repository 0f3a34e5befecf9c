"""Checkpoints: random numbers go on, and foreign files are refused by what they are."""

import random

import numpy as np
import pytest
import torch

from alloy.envs.wrappers import checkpoint
from alloy.envs.wrappers.checkpoint import CheckpointError


def draw():
    return torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random(), np.random.randn()


def test_random_numbers_go_on(tmp_path):
    draw()
    checkpoint.save(tmp_path / "a.pt", {"rng": checkpoint.rng_state()})
    expected = draw()
    checkpoint.set_rng_state(checkpoint.load(tmp_path / "a.pt")["rng"])
    assert draw() == expected


def test_equal_values_give_equal_bytes(tmp_path):
    values = {"weights": torch.arange(9.0), "env_id": "Ant-v5"}
    for name in ("a", "elsewhere"):
        checkpoint.save(tmp_path / name / f"{name}.pt", values)
    assert (tmp_path / "a/a.pt").read_bytes() == (tmp_path / "elsewhere/elsewhere.pt").read_bytes()
    assert [f.name for f in (tmp_path / "a").iterdir()] == ["a.pt"]


def test_foreign_files_are_refused(tmp_path):
    file = tmp_path / "x.pt"
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        checkpoint.load(file)
    file.write_text("nothing of the kind")
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        checkpoint.load(file)
    torch.save({"model": torch.zeros(2)}, file)
    with pytest.raises(CheckpointError, match="was not written by"):
        checkpoint.load(file)
    torch.save({"format": 0, "versions": {"torch": "1.0"}}, file)
    with pytest.raises(CheckpointError, match=r"format 0, .* reads format 1; .*'torch': '1.0'"):
        checkpoint.load(file)


def test_another_task_library_or_version_is_refused():
    saved = {"env_id": "Ant-v5", "lib": "rsl_rl", "versions": checkpoint.versions()}
    checkpoint.check_match(saved, "Ant-v5", "rsl_rl")
    with pytest.raises(CheckpointError, match="environment 'Ant-v5', and 'Hopper-v5'"):
        checkpoint.check_match(saved, "Hopper-v5", "rsl_rl")
    with pytest.raises(CheckpointError, match="library 'rsl_rl', and 'skrl'"):
        checkpoint.check_match(saved, "Ant-v5", "skrl")
    old = saved | {"versions": {"rsl-rl-lib": "1.2.0"}}
    with pytest.raises(CheckpointError, match=r"rsl-rl-lib==1\.2\.0"):
        checkpoint.check_match(old, "Ant-v5", "rsl_rl")
