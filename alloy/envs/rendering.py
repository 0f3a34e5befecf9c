"""Pictures of worlds through MuJoCo's own offscreen renderer."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

if TYPE_CHECKING:
    from alloy.sim import Simulator

MODES = (None, "rgb_array")


@dataclass(frozen=True)
class RenderOptions:
    """Size and camera of the pictures.

    Attributes:
        width: pixels.
        height: pixels.
        camera_id: id of a camera of the scene, -1 for a free camera. By default the camera called
            "track", else the scene's first, else a free one.
        camera_name: name of a camera of the scene, instead of its id.
        default_camera_config: attributes of the free camera (`distance`, `azimuth`, `elevation`,
            `lookat`, `trackbodyid`), as Gymnasium's MuJoCo environments take them.
        max_geom: most geoms in a picture.
        visual_options: rendering flags by `mujoco.mjtVisFlag`.
    """

    width: int = 480
    height: int = 480
    camera_id: int | None = None
    camera_name: str | None = None
    default_camera_config: Mapping[str, Any] | None = None
    max_geom: int = 1000
    visual_options: Mapping[int, bool] | None = None


class Renderer:
    """Draws the present state of worlds; the OpenGL context is made with the first picture."""

    def __init__(self, sim: Simulator, mode: str | None, options: RenderOptions) -> None:
        """Check the mode and the camera.

        Raises:
            ValueError: a mode other than None and "rgb_array", or a camera that is not there.
        """
        if mode not in MODES:
            raise ValueError(f"render_mode must be one of {list(MODES)}, not {mode!r}")
        self._sim, self._mode, self._options = sim, mode, options
        self._camera = self._find_camera()
        self._renderer: mujoco.Renderer | None = None

    def _find_camera(self) -> mujoco.MjvCamera | int:
        o, model = self._options, self._sim.mj_model
        if o.camera_id is not None and o.camera_name is not None:
            raise ValueError("give camera_id or camera_name, not both")
        if o.camera_name is not None:
            names = self._sim.names()["cameras"]
            if o.camera_name not in names:
                raise ValueError(f"camera {o.camera_name!r} is not in the scene; it has {names}")
            return model.camera(o.camera_name).id
        if o.camera_id is None and o.default_camera_config is None and model.ncam:
            return model.camera("track").id if "track" in self._sim.names()["cameras"] else 0
        if o.camera_id is not None and o.camera_id >= 0:
            if o.camera_id >= model.ncam:
                raise ValueError(
                    f"camera_id {o.camera_id} is not in the scene, which has {model.ncam}"
                )
            return o.camera_id
        camera = mujoco.MjvCamera()
        mujoco.mjv_defaultFreeCamera(model, camera)
        for name, value in (o.default_camera_config or {}).items():
            if name == "trackbodyid":
                camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING
            if isinstance(value, (list, tuple, np.ndarray)):
                getattr(camera, name)[:] = value
            else:
                setattr(camera, name, value)
        return camera

    def frames(self, worlds: range | list[int]) -> tuple[np.ndarray, ...]:
        """A picture [height, width, 3] uint8 of each of these worlds.

        Raises:
            RuntimeError: no render_mode was given, or this machine offers no OpenGL.
        """
        if self._mode is None:
            raise RuntimeError("to render, make the environment with render_mode='rgb_array'")
        renderer = self._open()
        model = self._sim.mj_model
        data, option = mujoco.MjData(model), mujoco.MjvOption()
        for flag, value in (self._options.visual_options or {}).items():
            option.flags[flag] = value
        inputs = {
            name: getattr(self._sim, name).detach().to("cpu").numpy()
            for name in ("qpos", "mocap_pos", "mocap_quat")
        }
        pictures = []
        for w in worlds:
            for name, value in inputs.items():
                getattr(data, name)[:] = value[w]
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            mujoco.mj_camlight(model, data)
            mujoco.mj_tendon(model, data)
            renderer.update_scene(data, self._camera, option)
            pictures.append(renderer.render().copy())
        return tuple(pictures)

    def close(self) -> None:
        """Release the OpenGL context; may be called twice."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _open(self) -> mujoco.Renderer:
        if self._renderer is not None:
            return self._renderer
        o, model = self._options, self._sim.mj_model
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, o.width)
        model.vis.global_.offheight = max(model.vis.global_.offheight, o.height)
        _load_triton()
        if _headless():
            _take_egl()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # GLFW's own, before the error below
                self._renderer = mujoco.Renderer(model, o.height, o.width, o.max_geom)
        except Exception as error:
            raise RuntimeError(
                "rendering needs OpenGL, and MuJoCo found none. Without a display, install libegl1 "
                "(or libosmesa6, and set the environment variable MUJOCO_GL=osmesa before Python "
                "starts). MuJoCo says: " + str(error)
            ) from error
        return self._renderer


class Window:
    """MuJoCo's interactive viewer on one world of a simulation; a context manager."""

    def __init__(self, sim: Simulator, world: int = 0) -> None:
        """Open the window.

        Raises:
            RuntimeError: there is no display, or no viewer.
        """
        self._sim, self._world = sim, world
        self._data = mujoco.MjData(sim.mj_model)
        if _headless():
            raise RuntimeError(
                "a window needs a display, and this machine has none (DISPLAY is not set); draw "
                "into a file instead"
            )
        try:
            from mujoco import viewer

            self._viewer = viewer.launch_passive(sim.mj_model, self._data)
        except Exception as error:
            raise RuntimeError(f"MuJoCo's viewer could not be opened: {error}") from error

    def show(self) -> bool:
        """Draw the world as it is now; False once the window has been closed."""
        for name in ("qpos", "mocap_pos", "mocap_quat"):
            value = getattr(self._sim, name)[self._world]
            getattr(self._data, name)[:] = value.detach().to("cpu").numpy()
        mujoco.mj_forward(self._sim.mj_model, self._data)
        self._viewer.sync()
        return self._viewer.is_running()

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *reason: object) -> None:
        self._viewer.close()


def _headless() -> bool:
    """Whether no window system is there and nobody has said what to use instead."""
    named = any(os.environ.get(n) for n in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"))
    return sys.platform.startswith("linux") and not named


def _load_triton() -> None:
    """Mesa's drivers bring an LLVM of their own, and Triton crashes if it is loaded after that."""
    with contextlib.suppress(Exception):  # torch does without Triton, and so does this
        importlib.import_module("triton")


def _take_egl() -> None:
    """Let MuJoCo draw through EGL; it chose a window system when it was imported."""
    try:
        from mujoco.egl import GLContext
    except Exception:  # whatever is wrong with EGL here, MuJoCo's own choice is tried next
        return
    sys.modules[mujoco.Renderer.__module__].gl_context.GLContext = GLContext
