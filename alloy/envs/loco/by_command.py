"""How well commands are followed, by what they ask for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from alloy.envs.vector_env import VectorEnv

# what a command asks for most, each as a share of what may be asked for
KINDS = ("stand", "ahead", "back", "left", "right", "turn left", "turn right")


class ByCommand:
    """Sums over the first episode of every world; give it to `evaluate` as its `measure`."""

    def __init__(self, spans: tuple[float, float, float]) -> None:
        """Know the greatest command of each component: m/s, m/s, rad/s."""
        self._spans = spans
        self._playing: Tensor | None = None
        self._sums = torch.zeros(len(KINDS), 4, dtype=torch.float64)

    def __call__(self, env: VectorEnv, info: Any) -> dict[str, Tensor]:
        """Count a step; returns both errors, which `evaluate` averages."""
        if self._playing is None:
            self._playing = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
        linear, turning = info["linear_error"], info["turning_error"]
        fell = (info["terms"]["fall"] != 0).to(linear)
        row = torch.stack([torch.ones_like(linear), linear, turning, fell], -1)
        row = torch.where(self._playing.unsqueeze(-1), row, 0.0).double().cpu()
        self._sums.index_add_(0, kind_of(info["command"], self._spans).cpu(), row)
        self._playing = self._playing & ~info["_final_obs"]
        return {"linear_error": linear, "turning_error": turning}

    def table(self) -> list[dict[str, Any]]:
        """A row for each kind of command that was given: seconds, mean errors, falls."""
        rows = []
        for name, (steps, linear, turning, falls) in zip(KINDS, self._sums.tolist(), strict=True):
            if steps:
                rows.append(
                    {
                        "command": name,
                        "steps": int(steps),
                        "linear_error": linear / steps,
                        "turning_error": turning / steps,
                        "falls": int(falls),
                    }
                )
        return rows


def kind_of(command: Tensor, spans: tuple[float, float, float]) -> Tensor:
    """Index into KINDS of each command [W, 3]."""
    share = command / command.new_tensor(spans).clamp(min=1e-6)
    most = share.abs().argmax(-1)
    backwards = share.gather(-1, most.unsqueeze(-1)).squeeze(-1) < 0
    kind = 1 + 2 * most + backwards.long()
    return torch.where((command == 0).all(-1), 0, kind)


def text(rows: list[dict[str, Any]]) -> str:
    """The table as lines to read."""
    lines = [f"{'command':<12}{'steps':>9}{'m/s off':>10}{'rad/s off':>11}{'falls':>7}"]
    lines += [
        f"{r['command']:<12}{r['steps']:>9,}{r['linear_error']:>10.3f}{r['turning_error']:>11.3f}"
        f"{r['falls']:>7}"
        for r in rows
    ]
    return "\n".join(lines)
