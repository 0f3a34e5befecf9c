"""Factor and solve with the tree's order: from the leaves to the root, so that M fills in nothing.

Source: Featherstone (2008), section 6.5; MuJoCo manual, Computation, L'DL factorisation.
"""

from __future__ import annotations

import torch
from torch import Tensor


def factor(a: Tensor) -> Tensor:
    """Factor of symmetric positive definite (W, n, n), eliminating the last row first.

    A matrix that is not positive definite gives non-finite numbers in its own world, no error.
    """
    return torch.linalg.cholesky_ex(a.flip(-1, -2)).L


def solve(chol: Tensor, b: Tensor) -> Tensor:
    """Solution (W, n) of A x = b with the factor of A."""
    return torch.cholesky_solve(b.flip(-1).unsqueeze(-1), chol).squeeze(-1).flip(-1)
