"""Walking robots: a Go2 that follows velocity commands, its training and its evaluation."""

from __future__ import annotations

from alloy.envs.loco.task import go2_velocity_task

__all__ = ["go2_velocity_task"]
