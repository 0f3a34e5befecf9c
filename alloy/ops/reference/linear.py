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


def eliminate(a: Tensor, b: Tensor) -> Tensor:
    """See `alloy.ops.eliminate`.

    From the last row, without pivots: enough where the symmetric part is positive definite, and a
    tree fills in nothing. Source: Golub and Van Loan (2013), sections 3.2 and 4.1.
    """
    left = torch.cat([a.flip(-1, -2), b.flip(-1).unsqueeze(-1)], -1)
    rows = []
    for _ in range(a.shape[-1]):
        row = left[:, :1, 1:] * left[:, :1, :1].reciprocal()
        rows.append(row.squeeze(1))
        left = left[:, 1:, 1:] - left[:, 1:, :1] * row
    x = b[:, :0]
    for row in reversed(rows):
        x = torch.cat([row[:, -1:] - (row[:, :-1] * x).sum(-1, keepdim=True), x], -1)
    return x.flip(-1)
