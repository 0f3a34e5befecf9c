"""The pages that scripts write from the code: the table of features, and what is beside MuJoCo."""

import collections
import dataclasses
import importlib
import json
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

conformance, compare, corpora = (
    importlib.import_module(name)
    for name in ("conformance", "conformance_compare", "conformance_corpora")
)
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
    refused = compare.examine("features", "user", FEATURES["actuator"]["user"])
    assert refused.verdict == "refused" and "user" in refused.note
    broken = compare.examine(
        "features", "broken", "<mujoco><worldbody><geom type='x'/></worldbody></mujoco>"
    )
    assert broken.verdict == "no model" and broken.note
    equal = compare.Result("other", "m", "equal", dict.fromkeys(compare.BOUNDS, 0.0))
    text = conformance.page([refused, broken, equal])
    assert "| features | 1 | 0 | 0 | 1 | 0 | 0 | 0.0% | 100.0% |" in text
    assert "| total | 2 | 1 | 0 | 1 | 0 | 0 | 50.0% | 100.0% |" in text
    assert f"| features | broken | {broken.note} |" in text


def test_a_model_that_takes_long_or_breaks_is_said_to(monkeypatch):
    model = FEATURES["joint"]["limits"]
    slow = compare.examine("features", "slow", model, seconds=0.01)
    assert slow.verdict == "too slow" and "dofs" in slow.note
    monkeypatch.setattr(compare, "compare", lambda *_: 1 / 0)
    failed = compare.examine("features", "failed", model)
    assert failed.verdict == "failed" and "ZeroDivisionError" in failed.note


def test_an_interrupted_run_goes_on(tmp_path):
    file = tmp_path / "results"
    assert conformance.earlier(file) == {}
    assert conformance.earlier(None) == {}
    once = compare.examine("features", "limits", FEATURES["joint"]["limits"], states=2)
    file.write_text(json.dumps(dataclasses.asdict(once)) + "\n")
    assert conformance.earlier(file) == {("features", "limits"): once}
    assert once.states == 2 and once.verdict == "equal"


def test_corpora_are_found_by_name(tmp_path):
    for file in ("suite/a.xml", "suite/sub/b.xml", "other/c.xml", "locomotion/d.txt"):
        path = tmp_path / "dm_control" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("<mujoco/>")

    def names(corpus):
        return [e.name for e in corpora.corpus(corpus, tmp_path)]

    assert names("dm_control suite") == ["a.xml", "sub/b.xml"]
    assert names("dm_control, the rest") == ["other/c.xml"]
    assert names("dm_control locomotion") == []
    assert "half_cheetah.xml" in names("gymnasium")
    with pytest.raises(FileNotFoundError, match="robosuite"):
        names("robosuite")


def test_a_difference_is_seen():
    assert compare.relative(torch.tensor([1.0, 3.0]), np.array([1.0, 3.5])) == pytest.approx(
        0.5 / 4.5
    )
    mj = mujoco.MjModel.from_xml_string(FEATURES["contact"]["plane with box"])
    mjd = mujoco.MjData(mj)
    mjd.qpos[2] = 0.09
    mujoco.mj_forward(mj, mjd)
    m = io.put_model(mj, dtype=torch.float64)
    d = forward.forward(m, io.put_data(m, mj, mjd))

    def largest():
        return max(compare.pair_errors(mjd, m, d, 0).values())

    assert largest() < 1e-9
    mjd.qpos[2] = 0.08
    mujoco.mj_forward(mj, mjd)
    assert largest() > 1e-3
    strange = collections.Counter()
    assert "qacc" not in compare.one_world(mj, mjd, m, d, 0, strange)
    assert strange == {"box-plane": 1}
    mjd.qpos[2] = 1
    mujoco.mj_forward(mj, mjd)
    assert largest() == float("inf")


def test_contacts_that_rounding_decides_are_told_from_those_that_differ():
    text = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
      <body pos="0 0 {}"><freejoint/><geom name="box" type="box" size=".1 .1 .1"/></body>
      </worldbody></mujoco>"""
    for height, wavers in ((0.099, False), (0.1, True)):  # just touching, corners come and go
        mj = mujoco.MjModel.from_xml_string(text.format(height))
        mjd = mujoco.MjData(mj)
        mujoco.mj_forward(mj, mjd)
        assert compare.wavers(mj, mjd, (0, 1)) == wavers
