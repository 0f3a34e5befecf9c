"""The report of what a model's elements become: complete, and in step with what build refuses."""

import json

import mujoco
import pytest

import alloy
from tests.physics.fixture import GYM_ASSETS, GYM_MODELS

MIXED = """
<mujoco><option solver="CG"><flag sleep="enable"/></option>
<custom><numeric name="n" data="1"/></custom>
<worldbody><camera name="eye"/><geom name="floor" type="plane" size="1 1 1"/>
  <body><joint name="hinge" axis="0 1 0"/><geom name="ball" size=".1"/></body>
  <body name="late" pos="0 0 1" sleep="init">
    <joint name="odd" type="slide" springdamper="1 1"/><geom name="b" size=".1"/>
  </body></worldbody>
<actuator><motor name="m" joint="hinge"/><general name="u" joint="hinge" gaintype="user"/>
</actuator>
<sensor><jointpos name="p" joint="hinge" noise=".1"/><user name="q" dim="1"/></sensor></mujoco>"""


def by_name(report):
    return {e.name: e for e in report.elements}


def test_every_element_has_its_status_and_reason():
    report = alloy.support_report(MIXED)
    found = by_name(report)
    assert not report.ok
    assert found["joint 'hinge'"].status == "honoured"
    assert found["joint 'hinge'"].reason == "hinge"
    assert found["actuator 'm'"].status == "honoured"
    assert found["actuator 'u'"].status == "refused"
    assert found["actuator 'u'"].reason.startswith("gaintype='user'")
    assert found["sensor 'p'"].status == "honoured"
    assert found["sensor 'q'"].reason.startswith("of type 'user'")
    assert found["body 'late'"].status == "refused"
    assert found["body 'late'"].reason.startswith("sleep='init'")
    assert found["contact of geom 'floor' with geom 'ball'"].reason == "plane-sphere"
    assert found["option integrator"].reason == "euler"
    ignored = {e.name for e in report.with_status("ignored")}
    assert ignored == {
        "option solver", "option flag sleep", "custom", "sensor noise", "camera",
    }  # fmt: skip


def test_the_report_is_data_and_a_table():
    report = alloy.support_report(MIXED)
    data = json.loads(json.dumps(report.as_dict()))
    assert sum(len(rows) for rows in data.values()) == len(report.elements)
    text = str(report)
    assert text.startswith("alloy.build refuses this model")
    assert "refused  actuator 'u': gaintype='user'" in text
    assert "honoured 2 x geom pair: plane-sphere" in text
    with pytest.raises(ValueError, match="status must be one of"):
        report.with_status("fine")


def test_build_names_what_the_report_refuses():
    refused = alloy.support_report(MIXED).with_status("refused")
    with pytest.raises(NotImplementedError) as error:
        alloy.build(MIXED)
    assert len(refused) == 3
    assert all(e.name in str(error.value) and e.reason in str(error.value) for e in refused)


@pytest.mark.parametrize("name", GYM_MODELS)
def test_whole_robots_are_honoured(name):
    report = alloy.support_report(GYM_ASSETS / name)
    assert report.ok, str(report)
    mj = mujoco.MjModel.from_xml_path(str(GYM_ASSETS / name))
    kinds = [e.kind for e in report.with_status("honoured")]
    assert kinds.count("joint") == mj.njnt and kinds.count("actuator") == mj.nu
    assert str(alloy.support_report(mj)) == str(report)


def test_what_mujoco_refuses_is_reported_too():
    report = alloy.support_report("<mujoco><worldbody><geom type='ball'/></worldbody></mujoco>")
    assert not report.ok
    assert "'ball'" in report.elements[0].reason
    with pytest.raises(FileNotFoundError):
        alloy.support_report("no_such_file.xml")
    with pytest.raises(TypeError):
        alloy.support_report(3)  # pyright: ignore[reportArgumentType]
