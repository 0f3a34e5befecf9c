"""Static tables of spatial tendons; built by io_tendons."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Ends:
    """Where the pieces of tendons begin and end."""

    site1: Tensor  # (n,)
    site2: Tensor
    root1: Tensor  # (n,) root body of the site's tree
    root2: Tensor
    move1: Tensor  # (n, nv) 1 where the dof moves the site
    move2: Tensor


@dataclass(frozen=True)
class Wraps:
    """What pieces may bend around."""

    geom: Tensor  # (n,)
    is_cylinder: Tensor  # (n,) bool; else a sphere
    side: Tensor | None  # (n,) site on the side to pass, 0 where there is none; None: nowhere
    has_side: Tensor  # (n,) bool
    inside: Tensor | None  # (k,) pieces that may pass inside the geom; None: none
    inside_rows: Tensor  # (n, k) one-hot
    root: Tensor  # (n,) root body of the geom's tree
    move: Tensor  # (n, nv)


@dataclass(frozen=True)
class Pieces:
    """Pieces of tendons from site to site."""

    ends: Ends
    share: Tensor  # (n, ntendon) one over the divisor of the piece's pulley
    wraps: Wraps | None


@dataclass(frozen=True)
class SpatialTendons:
    """All pieces of all spatial tendons."""

    straight: Pieces | None
    wrapped: Pieces | None
