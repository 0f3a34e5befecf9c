"""Arithmetic on constants, and how they are told apart."""

from __future__ import annotations

import math
from typing import Any

BITS = {"i": 32, "l": 64}


def wrap(x: int, kind: str) -> int:
    """Two's complement wrap-around of a constant."""
    bits = BITS[kind]
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def key_of(a: Any) -> Any:
    """What tells two arguments apart: 0.0 and -0.0, 1 and 1.0 and True are different."""
    if isinstance(a, float):
        return (a, math.copysign(1.0, a)) if a == 0.0 else (a if a == a else "nan")
    return (a, type(a))


def divide(a: float, b: float) -> float:
    """IEEE division."""
    if b == 0.0:
        if a == 0.0 or a != a:
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def fold_unary(op: str, x: Any) -> Any:
    """Abs sqrt floor ceil trunc rint of a constant."""
    if op == "abs":
        return abs(x)
    if isinstance(x, int):
        return x
    if op == "sqrt":
        return math.sqrt(x) if x >= 0 else math.nan
    if not math.isfinite(x):
        return x
    whole = {"floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "rint": round}[op]
    return math.copysign(float(whole(x)), x)
