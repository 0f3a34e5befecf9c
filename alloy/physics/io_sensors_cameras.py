"""Tables of the cameras that sensors name."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np
from torch import Tensor

from alloy.physics.io_elements import spelled
from alloy.physics.sensor import Cameras

Put = Callable[..., Tensor]
Array = np.ndarray


def camera_mode(m: mujoco.MjModel, camera: int) -> str:
    """How a camera moves; one that shall look at a body, and at none, is fixed."""
    mode = spelled(mujoco.mjtCamLight, int(m.cam_mode[camera]))
    return "fixed" if mode.startswith("target") and m.cam_targetbodyid[camera] < 0 else mode


def cameras(m: mujoco.MjModel, put: Put, mode: str, ids: Array) -> Cameras:
    """Tables of cameras of one mode."""
    tracks = mode in ("track", "trackcom")
    offset = {"track": m.cam_pos0, "trackcom": m.cam_poscom0}.get(mode, m.cam_pos)
    mat = np.empty((len(ids), 9))
    for row, quat in zip(mat, m.cam_quat[ids], strict=True):
        mujoco.mju_quat2Mat(row, quat)
    return Cameras(
        mode=mode,
        body=put(m.cam_bodyid[ids]),
        pos=put(offset[ids]),
        mat=put((m.cam_mat0[ids] if tracks else mat).reshape(-1, 3, 3)),
        quat=put(m.cam_quat[ids]),
        target=put(m.cam_targetbodyid[ids]) if mode.startswith("target") else None,
    )


def pixels(m: mujoco.MjModel, camera: int) -> Array:
    """Rays through the pixels, row by row from the upper left, in the camera's frame; (rays, 6).

    Direction of unit length, then where the ray begins. The principal point is counted from the
    upper left. A picture of an orthographic camera is as wide as it is high, as MuJoCo has it.
    """
    width, height = m.cam_resolution[camera].tolist()
    row, column = (x.ravel() + 0.5 for x in np.mgrid[:height, :width])
    out = np.zeros((len(row), 6))
    out[:, 2] = -1
    if m.cam_projection[camera] == mujoco.mjtProjection.mjPROJ_ORTHOGRAPHIC:
        extent = m.cam_fovy[camera]
        out[:, 3], out[:, 4] = extent * (column / width - 0.5), extent * (0.5 - row / height)
        return out
    focal_x, focal_y, middle_x, middle_y = lenses(m, np.array([camera]))[0]
    if (m.cam_sensorsize[camera] != 0).all():
        size = m.cam_resolution[camera].astype(np.float32)
        principal = m.cam_intrinsic[camera, 2:] / m.cam_sensorsize[camera] * size
        middle_x, middle_y = principal.astype(float)
    out[:, 0], out[:, 1] = (middle_x - column) / focal_x, (middle_y - row) / focal_y
    out[:, :3] /= np.linalg.norm(out[:, :3], axis=1, keepdims=True)
    return out


def lenses(m: mujoco.MjModel, ids: Array) -> Array:
    """Focal lengths and the picture's middle, (n, 4) pixels, x and y each; x to the other side.

    Those that follow from the lens are computed in float32, as MuJoCo computes them.
    """
    single = np.float32
    width_height, size = m.cam_resolution[ids], m.cam_sensorsize[ids]
    measured = (size != 0).all(1, keepdims=True)
    by_lens = m.cam_intrinsic[ids, :2] / np.where(measured, size, single(1.0))
    by_lens = by_lens * width_height.astype(single)
    by_angle = 0.5 / np.tan(np.deg2rad(m.cam_fovy[ids, None]) / 2) * width_height[:, 1:]
    focal = np.where(measured, by_lens, by_angle) * (-1.0, 1.0)
    return np.concatenate([focal, width_height / 2], 1)
