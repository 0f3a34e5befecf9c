"""Walking robots: a Go2 that follows velocity commands, its training and its evaluation."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from alloy.envs.loco.task import go2_velocity_task
from alloy.envs.vector_env import VectorEnv

__all__ = ["ENV_ID", "SHIPPED", "go2_velocity", "go2_velocity_task"]

ENV_ID = "Go2Velocity-v0"
SHIPPED = Path(__file__).parent / "policies" / "go2_velocity.safetensors"


def go2_velocity(num_envs: int = 1, **options: Any) -> VectorEnv:
    """A Go2 that is told velocities, in many worlds: `alloy.envs.make("Go2Velocity-v0", ...)`.

    Args:
        num_envs: number of worlds.
        **options: of `go2_velocity_task` (command ranges, pushes, randomization, noise, delays,
            gains) and of `VectorEnv`.

    Raises:
        TypeError: an argument that neither of them has.
    """
    own = {name: options.pop(name) for name in [*options] if name in _OWN}
    scene, task = go2_velocity_task(**own)
    return VectorEnv(scene, task, num_envs, **options)


_OWN = inspect.signature(go2_velocity_task).parameters
