"""A picture of a policy at work, as a GIF or whatever else imageio writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from alloy.envs.vector_env import VectorEnv

FRAMES_PER_SECOND = 25


def record(
    act: Callable[[Any], Tensor], env: VectorEnv, path: Path, *, seed: int, seconds: float = 10.0
) -> Path:
    """Play in one world and draw it.

    Args:
        act: from observations to actions [1, A].
        env: one world, made with render_mode="rgb_array".
        path: the file; its ending says the kind, such as ".gif".
        seed: of the first episode; the next ones follow it.
        seconds: of simulated time.

    Raises:
        ImportError: imageio, or what it needs for this kind of file, is missing.
        RuntimeError: this machine offers no OpenGL; the message says how to get it.
    """
    import imageio.v3 as iio

    stride = max(round(1.0 / (FRAMES_PER_SECOND * env.dt)), 1)
    obs, _ = env.reset(seed=seed)
    frames = []
    for step in range(max(round(seconds / env.dt), 1)):
        if step % stride == 0:
            frames += env.render() or ()
        obs = env.step(act(obs))[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"loop": 0, "duration": 1000.0 * stride * env.dt}
    if path.suffix != ".gif":
        options = {"fps": 1.0 / (stride * env.dt)}
    iio.imwrite(path, frames, **options)
    return path
