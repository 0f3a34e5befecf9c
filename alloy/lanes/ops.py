"""The operator table: each aten operator as a function on object arrays of scalar values.

Arrays are NumPy arrays of `Node`s and Python constants, so what only moves elements (views, cats,
gathers with constant indices) is NumPy's. An entry is called as fn(g, *args, **kwargs) with tensors
replaced by arrays, and returns an array or a tuple of arrays. Operators on constants alone never
come here: torch itself folds them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from alloy.lanes import approx
from alloy.lanes.scalar import Graph, Node, Value, kind_of

Array = Any  # np.ndarray of dtype object
OPS: dict[str, Callable[..., Any]] = {}


def op(*names: str) -> Callable[[Callable], Callable]:
    """Register an entry under aten names such as "add.Tensor"."""

    def wrap(fn: Callable) -> Callable:
        for name in names:
            OPS[name] = fn
        return fn

    return wrap


def obj(x: Any) -> Array:
    """Any value as an object array, without NumPy looking into it."""
    if isinstance(x, np.ndarray):
        return x if x.dtype == object else x.astype(object)
    out = np.empty((), dtype=object)
    out[()] = x
    return out


def each(fn: Callable[..., Value], *arrays: Any) -> Array:
    """Apply a scalar function elementwise with broadcasting."""
    with np.errstate(all="ignore"):  # folding inf - inf is no news
        return obj(np.frompyfunc(fn, len(arrays), 1)(*(obj(a) for a in arrays)))


def kind_of_dtype(dtype: torch.dtype) -> str:
    """Kind in which values of a torch dtype are computed."""
    if dtype.is_floating_point:
        return "f"
    return {torch.bool: "b", torch.int32: "i", torch.int64: "l"}.get(dtype, "i")


def cast(g: Graph, a: Array, dtype: torch.dtype | None) -> Array:
    """The array in the kind of `dtype`; None leaves it."""
    if dtype is None:
        return a
    kind = kind_of_dtype(dtype)
    return each(lambda x: g.cast(x, kind), a)


# ---- elementwise ------------------------------------------------------------------------------


@op("add.Tensor", "add.Scalar")
def _add(g: Graph, a: Array, b: Any, alpha: Any = 1) -> Array:
    return each(g.add, a, b if alpha == 1 else each(lambda x: g.mul(x, alpha), b))


@op("sub.Tensor", "sub.Scalar")
def _sub(g: Graph, a: Array, b: Any, alpha: Any = 1) -> Array:
    return each(g.sub, a, b if alpha == 1 else each(lambda x: g.mul(x, alpha), b))


@op("rsub.Tensor", "rsub.Scalar")
def _rsub(g: Graph, a: Array, b: Any, alpha: Any = 1) -> Array:
    return _sub(g, obj(b), a, alpha)


@op("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(g: Graph, a: Array, b: Any, rounding_mode: str | None = None) -> Array:
    if rounding_mode is None:
        return each(g.div, a, b)

    def one(x: Value, y: Value) -> Value:
        x, y, kind = g.promote(x, y)
        if kind == "f":
            return g.unary("floor" if rounding_mode == "floor" else "trunc", _exact_div(g, x, y))
        if rounding_mode == "floor":
            return g.integer("fdiv", x, y)
        q = g.integer("fdiv", x, y)
        inexact = g.ne(g.mul(q, y), x)
        return g.add(q, g.cast(g.and_(inexact, g.xor(g.lt(x, 0), g.lt(y, 0))), kind))

    return each(one, a, b)


def _exact_div(g: Graph, x: Value, y: Value) -> Value:
    """A division that is never turned into a product: its floor must be right at whole numbers."""
    return g.node("div", "f", x, y) if isinstance(x, Node) else g.div(x, y)


OPS["floor_divide.default"] = lambda g, a, b: _div_mode(g, a, b, "floor")


@op("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def _remainder(g: Graph, a: Array, b: Any) -> Array:
    def one(x: Value, y: Value) -> Value:
        x, y, kind = g.promote(x, y)
        if kind != "f":
            return g.integer("frem", x, y)
        r = _fmod(g, x, y)
        wrong = g.and_(g.ne(r, 0.0), g.xor(g.lt(r, 0.0), g.lt(y, 0.0)))
        return g.sel(wrong, g.add(r, y), r)

    return each(one, a, b)


def _fmod(g: Graph, x: Value, y: Value) -> Value:
    """Remainder with the sign of x; exact while the quotient is below 2**24."""
    q = g.unary("trunc", _exact_div(g, x, y))
    r = g.fma(g.neg(q), y, x)
    # the rounded quotient can be one too large: bring r back to the side of x
    r = g.sel(g.lt(g.mul(r, g.sel(g.lt(x, 0.0), -1.0, 1.0)), 0.0), _toward(g, r, x, y), r)
    infinite = g.eq(g.unary("abs", y), math.inf)
    return g.sel(infinite, g.sel(g.lt(g.unary("abs", x), math.inf), x, math.nan), r)


def _toward(g: Graph, r: Value, x: Value, y: Value) -> Value:
    step = g.unary("abs", y)
    return g.add(r, g.sel(g.lt(x, 0.0), g.neg(step), step))


@op("fmod.Tensor", "fmod.Scalar")
def _fmod_array(g: Graph, a: Array, b: Any) -> Array:
    return each(lambda x, y: _fmod(g, g.cast(x, "f"), g.cast(y, "f")), a, b)


@op("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(g: Graph, a: Any, n: Any) -> Array:
    return each(lambda x, y: approx.power(g, x, y), a, n)


def _entry(fn: Callable[..., Value]) -> Callable[..., Array]:
    """An elementwise table entry from a scalar function of (g, *values)."""
    return lambda g, *arrays: each(lambda *xs: fn(g, *xs), *arrays)


def _float(fn: Callable[..., Value]) -> Callable[..., Array]:
    """The same for functions that compute in floats."""
    return lambda g, *arrays: each(lambda *xs: fn(g, *(g.cast(x, "f") for x in xs)), *arrays)


def _is_finite(g: Graph, x: Value) -> Value:
    return g.lt(g.unary("abs", x), math.inf) if kind_of(x) == "f" else True


def _sign(g: Graph, x: Value) -> Value:
    kind = kind_of(x)
    one, zero = g.cast(1, kind), g.cast(0, kind)
    return g.sel(g.lt(zero, x), one, g.sel(g.lt(x, zero), g.cast(-1, kind), zero))


def _copysign(g: Graph, x: Value, y: Value) -> Value:
    if not isinstance(y, Node):
        a = g.unary("abs", x)
        return g.neg(a) if math.copysign(1.0, y) < 0 else a
    return g.unbits(g.or_(g.bits(g.unary("abs", x)), g.and_(g.bits(y), -(1 << 31))))


def _hypot(g: Graph, x: Value, y: Value) -> Value:
    return g.unary("sqrt", g.add(g.mul(x, x), g.mul(y, y)))


def _signbit(g: Graph, x: Value) -> Value:
    return g.lt(g.bits(x), 0) if kind_of(x) == "f" else g.lt(x, 0)


def _relu(g: Graph, x: Value) -> Value:
    return g.maximum(x, g.cast(0, kind_of(x)))


def _as_bool(g: Graph, x: Value) -> Value:
    return g.cast(x, "b")


ELEMENTWISE: dict[str, Callable[..., Value]] = {
    "mul.Tensor": Graph.mul,
    "mul.Scalar": Graph.mul,
    "div.Tensor": Graph.div,
    "div.Scalar": Graph.div,
    "neg.default": Graph.neg,
    "abs.default": lambda g, x: g.unary("abs", x),
    "sign.default": _sign,
    "sgn.default": _sign,
    "minimum.default": Graph.minimum,
    "maximum.default": Graph.maximum,
    "square.default": lambda g, x: g.mul(x, x),
    "relu.default": _relu,
    "where.self": Graph.sel,
    "where.ScalarOther": Graph.sel,
    "where.ScalarSelf": Graph.sel,
    "where.Scalar": Graph.sel,
    "bitwise_and.Tensor": Graph.and_,
    "bitwise_and.Scalar": Graph.and_,
    "bitwise_or.Tensor": Graph.or_,
    "bitwise_or.Scalar": Graph.or_,
    "bitwise_xor.Tensor": Graph.xor,
    "bitwise_xor.Scalar": Graph.xor,
    "bitwise_not.default": lambda g, x: g.not_(x) if kind_of(x) == "b" else g.xor(x, -1),
    "logical_not.default": lambda g, x: g.not_(_as_bool(g, x)),
    "logical_and.default": lambda g, x, y: g.and_(_as_bool(g, x), _as_bool(g, y)),
    "logical_or.default": lambda g, x, y: g.or_(_as_bool(g, x), _as_bool(g, y)),
    "logical_xor.default": lambda g, x, y: g.xor(_as_bool(g, x), _as_bool(g, y)),
    "isnan.default": lambda g, x: g.ne(x, x) if kind_of(x) == "f" else False,
    "isinf.default": lambda g, x: g.eq(g.unary("abs", x), math.inf),
    "isfinite.default": _is_finite,
    "signbit.default": _signbit,
}
for _name in ("lt", "le", "eq", "ne"):
    for _form in ("Tensor", "Scalar"):
        ELEMENTWISE[f"{_name}.{_form}"] = getattr(Graph, _name)
for _form in ("Tensor", "Scalar"):
    ELEMENTWISE[f"gt.{_form}"] = lambda g, x, y: g.lt(y, x)
    ELEMENTWISE[f"ge.{_form}"] = lambda g, x, y: g.le(y, x)
for _name, _verb in (("left", "shl"), ("right", "shr")):
    for _form in ("Tensor", "Tensor_Scalar", "Scalar_Tensor"):
        for _full in (f"bitwise_{_name}_shift.{_form}", f"__{_name[0]}shift__.{_form[:6]}"):
            ELEMENTWISE[_full] = lambda g, x, n, verb=_verb: g.shift(verb, x, n)
    ELEMENTWISE[f"__{_name[0]}shift__.Scalar"] = ELEMENTWISE[f"__{_name[0]}shift__.Tensor"]

FLOATS: dict[str, Callable[..., Value]] = {
    "sqrt.default": lambda g, x: g.unary("sqrt", x),
    "rsqrt.default": lambda g, x: g.div(1.0, g.unary("sqrt", x)),
    "reciprocal.default": lambda g, x: g.div(1.0, x),
    "exp2.default": approx.exp2,
    "log2.default": lambda g, x: g.mul(approx.log(g, x), 1 / math.log(2.0)),
    "log10.default": lambda g, x: g.mul(approx.log(g, x), 1 / math.log(10.0)),
    "copysign.Tensor": _copysign,
    "copysign.Scalar": _copysign,
    "hypot.default": _hypot,
    "deg2rad.default": lambda g, x: g.mul(x, math.pi / 180),
    "rad2deg.default": lambda g, x: g.mul(x, 180 / math.pi),
    "addcmul.default": lambda g, x, y, z: g.add(x, g.mul(y, z)),
}
for _name in ("floor", "ceil", "trunc"):
    ELEMENTWISE[f"{_name}.default"] = lambda g, x, verb=_name: g.unary(verb, x)
ELEMENTWISE["round.default"] = lambda g, x: g.unary("rint", x)
ELEMENTWISE["frac.default"] = lambda g, x: g.sub(x, g.unary("trunc", x))
for _name in (
    "sin cos tan exp expm1 log log1p atan atan2 asin acos tanh sigmoid sinh cosh"
).split():
    FLOATS[f"{_name}.default"] = getattr(approx, _name)
OPS.update({name: _entry(fn) for name, fn in ELEMENTWISE.items()})
OPS.update({name: _float(fn) for name, fn in FLOATS.items()})


@op("clamp.default", "clamp.Tensor")
def _clamp(g: Graph, a: Array, min: Any = None, max: Any = None) -> Array:
    a = a if min is None else each(g.maximum, a, min)
    return a if max is None else each(g.minimum, a, max)


@op("clamp_min.default", "clamp_min.Tensor")
def _clamp_min(g: Graph, a: Array, low: Any) -> Array:
    return _clamp(g, a, low)


@op("clamp_max.default", "clamp_max.Tensor")
def _clamp_max(g: Graph, a: Array, high: Any) -> Array:
    return _clamp(g, a, None, high)


@op("addcdiv.default")
def _addcdiv(g: Graph, a: Array, b: Array, c: Array, value: float = 1) -> Array:
    return each(lambda x, y, z: g.add(x, g.mul(g.div(y, z), value)), a, b, c)


@op("lerp.Scalar", "lerp.Tensor")
def _lerp(g: Graph, a: Array, b: Array, t: Any) -> Array:
    return each(lambda x, y, w: g.add(x, g.mul(w, g.sub(y, x))), a, b, t)


@op("nan_to_num.default")
def _nan_to_num(
    g: Graph,
    a: Array,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Array:
    big = float(torch.finfo(torch.float32).max)
    high = big if posinf is None else posinf
    low = -big if neginf is None else neginf

    def one(x: Value) -> Value:
        y = g.sel(g.eq(x, math.inf), high, g.sel(g.eq(x, -math.inf), low, x))
        return g.sel(g.ne(x, x), nan or 0.0, y)

    return each(one, a)


@op("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(g: Graph, a: Array, mask: Array, value: Any) -> Array:
    kind = kind_of(a.flat[0]) if a.size else "f"
    return each(lambda m, v, x: g.sel(m, g.cast(v, kind), x), mask, value, a)


@op("_to_copy.default", "to.dtype", "prims.convert_element_type.default")
def _to_copy(g: Graph, a: Array, dtype: torch.dtype | None = None, **_: Any) -> Array:
    return cast(g, a, dtype)


@op("alias.default", "clone.default", "detach.default", "lift_fresh_copy.default",
    "lift_fresh.default", "contiguous.default", "view_of.default")  # fmt: skip
def _same(g: Graph, a: Array, **_: Any) -> Array:
    return a
