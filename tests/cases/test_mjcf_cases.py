"""Cases from the field about MJCF as a user meets them: from a file, refused by its name."""

import pytest
import torch

import alloy

JOINT = """<mujoco><compiler angle="degree" {compiler}/><worldbody>
  <body name="b" quat="{quat}"><joint name="j" {limits}/><geom size=".1"/></body>
</worldbody><actuator>{actuators}</actuator></mujoco>"""
RANGE = 'range="-90 45"'


def write(folder, quat="1 0 0 0", limits=RANGE, actuators="", compiler=""):
    path = folder / "servo.xml"
    text = JOINT.format(quat=quat, limits=limits, actuators=actuators, compiler=compiler)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"quat": "0 0 0 0"}, "quat"),  # C13
        ({"limits": "", "actuators": '<position name="p" joint="j" inheritrange=".5"/>'}, "range"),
        ({"compiler": 'autolimits="false"'}, "limited"),
    ],
    ids=["c13 zero quaternion", "c16 inheritrange", "c16 autolimits"],
)
def test_c13_c16_what_mujoco_refuses_is_refused_with_the_files_name(tmp_path, change, message):
    with pytest.raises(ValueError, match=f"(?s)servo.xml.*{message}"):
        alloy.build(write(tmp_path, **change))
    scene = alloy.Scene()
    before = scene.to_mjcf()
    with pytest.raises(ValueError, match=f"(?s)servo.xml.*{message}"):
        scene.add_robot("arm", write(tmp_path, **change))
    assert scene.to_mjcf() == before


def test_c16_ranges_of_position_servos_as_a_user_sees_them(tmp_path):
    servos = (
        '<position name="inherited" joint="j" kp="1" inheritrange=".5"/>'
        '<position name="free" joint="j" kp="1"/>'
        '<position name="given" joint="j" kp="1" ctrlrange="-90 45"/>'
    )
    path = write(tmp_path, actuators=servos)
    scene = alloy.Scene()
    scene.add_robot("arm", path)
    for source, prefix in ((path, ""), (scene, "arm/")):
        sim = alloy.build(source, dtype=torch.float64, engine="reference")
        inherited, free, given = (
            sim.actuator(prefix + name) for name in ("inherited", "free", "given")
        )
        assert inherited.ctrlrange[0].tolist() == pytest.approx([-0.981748, 0.196350], abs=1e-6)
        assert given.ctrlrange[0].tolist() == [-90, 45]
        assert free.ctrlrange.isinf().all()
        sim.ctrl = torch.full((1, 3), 50.0)
        assert free.force.item() == 50
        assert inherited.force.item() == pytest.approx(0.196350, abs=1e-6)
