"""States that an MjModel remembers."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import torch

from alloy.physics import sensor
from alloy.physics.model import Data, Model


def at_keyframe(m: Model, start: Data, mj: mujoco.MjModel, key: int) -> Data:
    """The start with what keyframe `key` of the model says of time, state and inputs."""
    rows = {
        "qpos": mj.key_qpos, "qvel": mj.key_qvel, "act": mj.key_act, "ctrl": mj.key_ctrl,
        "mocap_pos": mj.key_mpos, "mocap_quat": mj.key_mquat, "plastic": mj.key_plastic,
        "step_count": np.round(mj.key_time / m.opt.timestep),
    }  # fmt: skip
    new = {}
    for name, row in rows.items():
        like = getattr(start, name)
        value = torch.as_tensor(row[key], dtype=like.dtype, device=like.device)
        new[name] = torch.zeros_like(like) + value.reshape(like.shape[1:])
    past = sensor.later(m, start.sensor_history, new["step_count"])
    return replace(start, **new, sensor_history=past)
