"""The Go2's text against its facts, and that it stands."""

import mujoco
import numpy as np
import pytest
import torch

from alloy.envs.robots_go2 import JOINTS, STANDING_HEIGHT, TORQUE, go2
from alloy.physics import io


def on_ground(text):
    ground = '<worldbody><geom name="ground" type="plane" size="5 5 1"/>'
    return text.replace("<worldbody>", ground).replace(
        "<compiler", '<option timestep="0.005"/><compiler'
    )


@pytest.fixture(scope="module")
def model():
    return mujoco.MjModel.from_xml_string(on_ground(go2()))


def test_facts(model):
    assert model.body_mass.sum() == pytest.approx(15.2, abs=0.01)
    assert [model.actuator(name).trnid[0] for name in JOINTS] == [
        model.joint(name).id for name in JOINTS
    ]
    for name in JOINTS:
        limit = TORQUE[name.split("_")[1]]
        assert model.actuator(name).forcerange.tolist() == [-limit, limit]
        np.testing.assert_allclose(model.actuator(name).ctrlrange, model.joint(name).range)
    assert model.joint("RL_thigh").range.tolist() == [-0.5236, 4.5379]
    assert model.joint("FR_calf").range.tolist() == [-2.7227, -0.83776]


def test_left_and_right_mirror_each_other(model):
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_forward(model, data)
    flip = np.diag([1.0, -1.0, 1.0])
    for part in ("hip", "thigh", "calf"):
        for end in "FR":
            left, right = (data.body(f"{end}{side}_{part}") for side in "LR")
            np.testing.assert_allclose(flip @ left.xipos, right.xipos, atol=1e-9)
            inertia = [
                b.ximat.reshape(3, 3) @ np.diag(model.body_inertia[b.id]) @ b.ximat.reshape(3, 3).T
                for b in (left, right)
            ]
            np.testing.assert_allclose(flip @ inertia[0] @ flip, inertia[1], atol=1e-9)


def test_it_stands(model):
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    for _ in range(400):
        mujoco.mj_step(model, data)
    assert abs(data.body("base").xpos[2] - STANDING_HEIGHT) < 0.06
    assert data.body("base").xmat.reshape(3, 3)[2, 2] > 0.99
    assert np.abs(data.qvel).max() < 0.1
    feet = {model.geom(g).name for c in data.contact for g in c.geom} - {"ground"}
    assert feet == {f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")}


def test_only_what_was_asked_for_touches_the_ground():
    m = io.put_model(mujoco.MjModel.from_xml_string(on_ground(go2())), dtype=torch.float64)
    assert m.ncon == 4 + 4  # four feet, and the trunk's box
    everything = on_ground(go2(collision=("feet", "trunk", "hips", "thighs", "calves")))
    assert io.put_model(mujoco.MjModel.from_xml_string(everything)).ncon > 8
    with pytest.raises(ValueError, match=r"\['tail'\]; the parts are"):
        go2(collision=("tail",))
