"""Pictures of a scene through MuJoCo's offscreen renderer, tried with EGL, then with OSMesa.

MuJoCo picks its OpenGL library once, when it is imported, and a missing one can end the process.
So each try is a process of its own: this file, run as a script, is that process.
"""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import mujoco

HOW_TO_GET_OPENGL = (
    "no picture, for OpenGL is missing. On Debian or Ubuntu `apt-get install libegl1 libosmesa6` "
    "brings it (with or without a GPU); MUJOCO_GL=egl or MUJOCO_GL=osmesa picks one of the two."
)
BACKENDS = ("egl", "osmesa")


class NoOpenGL(RuntimeError):
    """No offscreen OpenGL could be opened; the message says how to get one."""


def draw(
    model: mujoco.MjModel, qpos: np.ndarray, path: Path, width: int = 480, height: int = 360
) -> str:
    """Draw states of a model side by side into one PNG file.

    Args:
        model: The compiled scene; its first camera is used, or a free one where it has none.
        qpos: The states, [pictures, nq].
        path: Where the picture goes; its folder is made.
        width: Width of one state in pixels.
        height: Height in pixels.

    Returns:
        The OpenGL backend that drew it, "egl" or "osmesa".

    Raises:
        NoOpenGL: Neither backend works here, or not the one that MUJOCO_GL names.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    request = pickle.dumps((model, np.asarray(qpos, dtype=np.float64), str(path), width, height))
    wanted = os.environ.get("MUJOCO_GL", "")
    said = []
    for backend in [wanted] if wanted else BACKENDS:
        # PyOpenGL has a switch of its own, and MuJoCo refuses one that contradicts MUJOCO_GL.
        environment = os.environ | {"MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend}
        done = subprocess.run(
            [sys.executable, __file__],
            input=request,
            env=environment,
            capture_output=True,
            check=False,
        )
        if done.returncode == 0:
            return backend
        last = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        said.append(f"{backend}: {last[-1]}")
    raise NoOpenGL(f"{HOW_TO_GET_OPENGL} What was tried: {'; '.join(said)}.")


def main() -> None:
    """Draw what the parent process asks for on standard input."""
    import mujoco
    from PIL import Image

    request = io.BytesIO(sys.stdin.buffer.read())
    model, states, path, width, height = pickle.load(request)
    model.vis.global_.offwidth = max(model.vis.global_.offwidth, width)
    model.vis.global_.offheight = max(model.vis.global_.offheight, height)
    data = mujoco.MjData(model)
    camera: int | mujoco.MjvCamera = 0
    if not model.ncam:
        camera = mujoco.MjvCamera()
        mujoco.mjv_defaultFreeCamera(model, camera)
        camera.azimuth, camera.elevation = 150, -25
    if not model.nlight:  # all light comes from the viewer then
        model.vis.headlight.ambient[:] = 0.35
        model.vis.headlight.diffuse[:] = 0.75
    pictures = []
    with mujoco.Renderer(model, height, width) as renderer:
        for qpos in states:
            data.qpos[:] = qpos
            mujoco.mj_forward(model, data)
            renderer.update_scene(data, camera)
            pictures.append(renderer.render().copy())
    Image.fromarray(np.concatenate(pictures, axis=1)).save(path)


if __name__ == "__main__":
    main()
