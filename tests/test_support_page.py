"""The pages that scripts write from the code: the table of features, and what is beside MuJoCo."""

import importlib
import subprocess
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

from alloy.physics import forward, io

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

conformance = importlib.import_module("conformance")
FEATURES = importlib.import_module("features").FEATURES


def run(*args):
    return subprocess.run([sys.executable, *args], cwd=ROOT, capture_output=True, text=True)


def test_the_table_of_features_is_up_to_date():
    done = run("scripts/support_table.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_few_models_equal_mujoco():
    done = run("scripts/conformance.py", "--fast")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("| equal |") == len(conformance.FAST)


@pytest.mark.parametrize("section", FEATURES)
def test_every_feature_is_a_model(section):
    for name, text in FEATURES[section].items():
        assert mujoco.MjModel.from_xml_string(text).nbody > 1, name


def test_what_is_refused_and_what_mujoco_cannot_read_are_named():
    refused = conformance.examine("features", "dcmotor", FEATURES["actuator"]["dcmotor"])
    assert refused.verdict == "refused" and "dcmotor" in refused.note
    broken = conformance.examine(
        "features", "broken", "<mujoco><worldbody><geom type='x'/></worldbody></mujoco>"
    )
    assert broken.verdict == "not read" and broken.note
    text = conformance.page(
        [
            refused,
            broken,
            conformance.Result("other", "m", "equal", dict.fromkeys(conformance.BOUNDS, 0.0)),
        ]
    )
    assert "| features | 1 | 0 | 0 | 1 |" in text and "| other | 1 | 1 | 0 | 0 |" in text


def test_a_difference_is_seen():
    assert conformance.relative(torch.tensor([1.0, 3.0]), np.array([1.0, 3.5])) == pytest.approx(
        0.5 / 4.5
    )
    mj = mujoco.MjModel.from_xml_string(FEATURES["contact"]["plane with box"])
    mjd = mujoco.MjData(mj)
    mjd.qpos[2] = 0.09
    mujoco.mj_forward(mj, mjd)
    m = io.put_model(mj, dtype=torch.float64)
    d = forward.forward(m, io.put_data(m, mj, mjd))
    assert conformance.contact_error(mjd, m, d, 0) < 1e-9
    mjd.qpos[2] = 0.08
    mujoco.mj_forward(mj, mjd)
    assert conformance.contact_error(mjd, m, d, 0) > 1e-3
    mjd.qpos[2] = 1
    mujoco.mj_forward(mj, mjd)
    assert conformance.contact_error(mjd, m, d, 0) == float("inf")
