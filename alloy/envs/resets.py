"""Where an episode begins: terms that change the starting state, drawn from counter-based numbers.

A reset term is a function `(sim, rng) -> dict` of the fields it sets (`{"qpos": [W, nq]}`). It sees
the state the terms before it have made, and draws from `rng` numbers that depend on the world's
seed and episode alone. Every world is computed; the environment keeps the rows that begin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from alloy import math, random

if TYPE_CHECKING:
    from alloy.envs.view import EnvView

Range = tuple[float, float]


class Rng:
    """Random numbers of an episode: the same for the same seed and episode of a world."""

    def __init__(
        self, seed: Tensor, episode: Tensor, dtype: torch.dtype, *, purpose: int = 0
    ) -> None:
        """Begin the draws of an episode; `seed` and `episode` are int64 [W].

        Draws of another `purpose` (an integer of 32 bits) are independent.
        """
        self.seed, self.episode, self.dtype = seed, episode, dtype
        self._draw = purpose

    def uniform(self, low: float = 0.0, high: float = 1.0, n: int = 1) -> Tensor:
        """Uniform numbers from low to high, [W, n]."""
        self._draw += 1
        u = random.uniform(self.seed, self.episode, self._draw, n, self.dtype)
        return low + (high - low) * u

    def normal(self, scale: float = 1.0, n: int = 1) -> Tensor:
        """Normal numbers of mean 0 and standard deviation `scale`, [W, n]."""
        self._draw += 1
        return scale * random.normal(self.seed, self.episode, self._draw, n, self.dtype)


ResetTerm = Callable[["EnvView", Rng], dict[str, Any]]


def qpos_uniform(scale: float) -> ResetTerm:
    """Add a uniform number within +-scale to every coordinate of qpos."""

    def term(sim: EnvView, rng: Rng) -> dict[str, Tensor]:
        return {"qpos": sim.qpos + rng.uniform(-scale, scale, sim.qpos.shape[-1])}

    return term


def qvel_normal(scale: float) -> ResetTerm:
    """Add a normal number of standard deviation `scale` to every velocity."""

    def term(sim: EnvView, rng: Rng) -> dict[str, Tensor]:
        return {"qvel": sim.qvel + rng.normal(scale, sim.qvel.shape[-1])}

    return term


def pose(
    body: str,
    x: Range = (0.0, 0.0),
    y: Range = (0.0, 0.0),
    z: Range = (0.0, 0.0),
    yaw: Range = (0.0, 0.0),
) -> ResetTerm:
    """Move a free body by a uniform offset in the world frame, and turn it about the vertical.

    Args:
        body: an entity with a free joint.
        x: lowest and highest offset along x, m; y and z likewise.
        y: see x.
        z: see x.
        yaw: lowest and highest turn about the vertical, rad.
    """

    def term(sim: EnvView, rng: Rng) -> dict[str, Tensor]:
        start = sim.free_joint(body).qpos.start
        q = sim.qpos
        draws = rng.uniform(n=4).split(1, -1)
        spans = zip((x, y, z, yaw), draws, strict=True)
        dx, dy, dz, turned = (low + (high - low) * u for (low, high), u in spans)
        shift, half = torch.cat([dx, dy, dz], -1), 0.5 * turned
        zero = torch.zeros_like(half)
        turn = torch.cat([torch.cos(half), zero, zero, torch.sin(half)], -1)
        pos = q[:, start : start + 3] + shift
        quat = math.quat_mul(turn, q[:, start + 3 : start + 7])
        return {"qpos": torch.cat([q[:, :start], pos, quat, q[:, start + 7 :]], -1)}

    return term


def joints_uniform(entity: str, scale: float) -> ResetTerm:
    """Add a uniform number within +-scale to each slide and hinge of an entity."""

    def term(sim: EnvView, rng: Rng) -> dict[str, Tensor]:
        q = sim.qpos
        places = [sim.where(j) for j in sim.joints_of(entity)]
        scalar = {p.qpos.start for p in places if p.kind in ("slide", "hinge")}
        if not scalar:
            raise ValueError(f"{entity!r} has no slide or hinge joint, so joints_uniform is idle")
        noise = rng.uniform(-scale, scale, len(scalar)).unbind(-1)
        column = dict(zip(sorted(scalar), noise, strict=True))
        moved = [q[:, i] + column[i] if i in column else q[:, i] for i in range(q.shape[-1])]
        return {"qpos": torch.stack(moved, -1)}

    return term
