"""The operator table: each aten operator as a function on object arrays of scalar values.

Arrays are NumPy arrays of `Node`s and Python constants, so what only moves elements (views, cats,
gathers with constant indices) is NumPy's. An entry is called as fn(g, *args, **kwargs) with tensors
replaced by arrays, and returns an array or a tuple of arrays. Operators on constants alone never
come here: torch itself folds them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from alloy.lanes import approx
from alloy.lanes.scalar import Graph, Node, Value, kind_of

Array = Any  # np.ndarray of dtype object
OPS: dict[str, Callable[..., Any]] = {}
GATHER_LIMIT = 4096  # selects that one gather with computed indices may take


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


def fold(fn: Callable[[Value, Value], Value], a: Array, dims: Any, keepdim: bool) -> Array:
    """Reduce with a function of two values over some dims (None or empty: all)."""
    return reduce_lists(lambda xs: _fold(fn, xs), a, dims, keepdim)


def _fold(fn: Callable[[Value, Value], Value], xs: list[Value]) -> Value:
    out = xs[0]
    for x in xs[1:]:
        out = fn(out, x)
    return out


def reduce_lists(
    fn: Callable[[list[Value]], Value], a: Array, dims: Any, keepdim: bool
) -> Array:
    """Reduce with a function of a list of values over some dims (None or empty: all)."""
    dims = [dims] if isinstance(dims, int) else list(dims or range(a.ndim))
    dims = sorted(d % a.ndim for d in dims) if a.ndim else []
    rest = [d for d in range(a.ndim) if d not in dims]
    rows = a.transpose(*rest, *dims).reshape(*(a.shape[d] for d in rest), -1)
    out = np.empty(rows.shape[:-1], dtype=object)
    for i in np.ndindex(*out.shape):
        out[i] = fn(list(rows[i]))
    return out.reshape([1 if d in dims else a.shape[d] for d in range(a.ndim)]) if keepdim else out


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
for _name in ("sin cos tan exp expm1 log log1p atan atan2 asin acos tanh sigmoid sinh cosh").split():
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
    g: Graph, a: Array, nan: float | None = None, posinf: float | None = None,
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


# ---- reductions -------------------------------------------------------------------------------


@op("sum.default", "sum.dim_IntList")
def _sum(
    g: Graph, a: Array, dims: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> Array:
    if dtype is None and a.size and kind_of(a.flat[0]) == "b":
        dtype = torch.int64
    return reduce_lists(g.total, cast(g, a, dtype), dims, keepdim)


@op("mean.default", "mean.dim")
def _mean(g: Graph, a: Array, dims: Any = None, keepdim: bool = False, **_: Any) -> Array:
    total = _sum(g, a, dims, keepdim)
    n = max(a.size // max(total.size, 1), 1)
    return each(lambda x: g.mul(x, 1.0 / n), total)


@op("prod.default", "prod.dim_int")
def _prod(g: Graph, a: Array, dim: Any = None, keepdim: bool = False, **_: Any) -> Array:
    return fold(g.mul, a, dim, keepdim)


@op("amax.default")
def _amax(g: Graph, a: Array, dims: Any = None, keepdim: bool = False) -> Array:
    return fold(g.maximum, a, dims, keepdim)


@op("amin.default")
def _amin(g: Graph, a: Array, dims: Any = None, keepdim: bool = False) -> Array:
    return fold(g.minimum, a, dims, keepdim)


OPS["max.default"], OPS["min.default"] = _amax, _amin


@op("any.default", "any.dim", "any.dims")
def _any(g: Graph, a: Array, dims: Any = None, keepdim: bool = False) -> Array:
    return fold(g.or_, cast(g, a, torch.bool), dims, keepdim)


@op("all.default", "all.dim", "all.dims")
def _all(g: Graph, a: Array, dims: Any = None, keepdim: bool = False) -> Array:
    return fold(g.and_, cast(g, a, torch.bool), dims, keepdim)


@op("linalg_vector_norm.default")
def _norm(
    g: Graph, a: Array, ord: float = 2, dims: Any = None, keepdim: bool = False, dtype: Any = None
) -> Array:
    if ord == 2:
        squares = each(lambda x: g.mul(x, x), a)
        return each(lambda x: g.unary("sqrt", x), reduce_lists(g.total, squares, dims, keepdim))
    size = each(lambda x: g.unary("abs", x), a)
    if ord == 1:
        return reduce_lists(g.total, size, dims, keepdim)
    if ord in (math.inf, -math.inf):
        return fold(g.maximum if ord > 0 else g.minimum, size, dims, keepdim)
    raise NotImplementedError(f"linalg_vector_norm with ord={ord}; use 1, 2 or inf")


def _arg_extreme(
    g: Graph, a: Array, dim: int, keepdim: bool, better: Callable[[Value, Value], Value]
) -> tuple[Array, Array]:
    """First best value along a dim, and its index; NaN counts as best, as in torch."""

    def one(xs: list[Value]) -> tuple[Value, Value]:
        best, where = xs[0], 0
        for i, x in enumerate(xs[1:], 1):
            take = g.or_(better(x, best), g.and_(g.ne(x, x), g.eq(best, best)))
            best, where = g.sel(take, x, best), g.sel(take, i, where)
        return best, where

    pairs = reduce_lists(one, a, dim, keepdim)  # type: ignore[arg-type]
    return each(lambda p: p[0], pairs), each(lambda p: p[1], pairs)


@op("max.dim")
def _max_dim(g: Graph, a: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    return _arg_extreme(g, a, dim, keepdim, lambda x, best: g.lt(best, x))


@op("min.dim")
def _min_dim(g: Graph, a: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    return _arg_extreme(g, a, dim, keepdim, lambda x, best: g.lt(x, best))


@op("argmax.default")
def _argmax(g: Graph, a: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    return _max_dim(g, *((a.reshape(-1), 0) if dim is None else (a, dim)), keepdim)[1]


@op("argmin.default")
def _argmin(g: Graph, a: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    return _min_dim(g, *((a.reshape(-1), 0) if dim is None else (a, dim)), keepdim)[1]


def _scan(fn: Callable[[Value, Value], Value], a: Array, dim: int) -> Array:
    out = np.moveaxis(a, dim, 0).copy()
    for i in range(1, len(out)):
        out[i] = each(fn, out[i - 1], out[i])
    return np.moveaxis(out, 0, dim)


@op("cumsum.default")
def _cumsum(g: Graph, a: Array, dim: int, dtype: torch.dtype | None = None) -> Array:
    if dtype is None and a.size and kind_of(a.flat[0]) == "b":
        dtype = torch.int64
    return _scan(g.add, cast(g, a, dtype), dim)


@op("cumprod.default")
def _cumprod(g: Graph, a: Array, dim: int, dtype: torch.dtype | None = None) -> Array:
    return _scan(g.mul, cast(g, a, dtype), dim)


@op("sort.default", "sort.stable")
def _sort(
    g: Graph, a: Array, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> tuple[Array, Array]:
    """Stable odd-even transposition network: n(n-1)/2 compare-exchanges, meant for short rows."""
    values = np.moveaxis(a, dim, -1).copy()
    places = np.broadcast_to(np.arange(values.shape[-1]), values.shape).astype(object)
    for row in np.ndindex(*values.shape[:-1]):
        v, p = values[row], places[row]
        for sweep in range(len(v)):
            for i in range(sweep % 2, len(v) - 1, 2):
                swap = _before(g, v[i + 1], v[i], descending)
                v[i], v[i + 1] = g.sel(swap, v[i + 1], v[i]), g.sel(swap, v[i], v[i + 1])
                p[i], p[i + 1] = g.sel(swap, p[i + 1], p[i]), g.sel(swap, p[i], p[i + 1])
        values[row], places[row] = v, p
    return np.moveaxis(values, -1, dim), np.moveaxis(places, -1, dim)


def _before(g: Graph, x: Value, y: Value, descending: bool) -> Value:
    """Whether x comes strictly before y; NaN is the largest value."""
    if descending:
        return g.or_(g.lt(y, x), g.and_(g.ne(x, x), g.eq(y, y)))
    return g.or_(g.lt(x, y), g.and_(g.ne(y, y), g.eq(x, x)))


@op("argsort.default", "argsort.stable")
def _argsort(g: Graph, a: Array, dim: int = -1, descending: bool = False, **_: Any) -> Array:
    return _sort(g, a, dim, descending)[1]


@op("topk.default")
def _topk(
    g: Graph, a: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Array, Array]:
    values, places = _sort(g, a, dim, largest)
    return np.take(values, range(k), dim), np.take(places, range(k), dim)


# ---- moving elements --------------------------------------------------------------------------


def _cut(a: Array, dim: int, start: int | None, end: int | None, step: int) -> tuple:
    index: list[Any] = [slice(None)] * a.ndim
    index[dim] = slice(start, None if end is None or end > 1 << 40 else end, step)
    return tuple(index)


@op("slice.Tensor")
def _slice(
    g: Graph, a: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    return a[_cut(a, dim, start, end, step)]


@op("select.int")
def _select(g: Graph, a: Array, dim: int, index: int) -> Array:
    return obj(np.take(a, index, axis=dim))


@op("select_scatter.default")
def _select_scatter(g: Graph, a: Array, src: Array, dim: int, index: int) -> Array:
    out = a.copy()
    where: list[Any] = [slice(None)] * a.ndim
    where[dim] = index
    out[tuple(where)] = src
    return out


@op("slice_scatter.default")
def _slice_scatter(
    g: Graph, a: Array, src: Array, dim: int = 0, start: int | None = None,
    end: int | None = None, step: int = 1,
) -> Array:
    out = a.copy()
    out[_cut(a, dim, start, end, step)] = src
    return out


@op("copy.default")
def _copy(g: Graph, dst: Array, src: Array, *_: Any) -> Array:
    kind = kind_of(dst.flat[0]) if dst.size else "f"
    return np.broadcast_to(each(lambda x: g.cast(x, kind), src), dst.shape)


@op("view.default", "reshape.default", "_unsafe_view.default", "_reshape_alias.default")
def _view(g: Graph, a: Array, shape: Sequence[int], *_: Any) -> Array:
    return a.reshape(tuple(shape))


@op("expand.default")
def _expand(g: Graph, a: Array, shape: Sequence[int], implicit: bool = False) -> Array:
    lead = len(shape) - a.ndim
    full = [a.shape[i - lead] if n == -1 else n for i, n in enumerate(shape)]
    return np.broadcast_to(a, full)


@op("repeat.default")
def _repeat(g: Graph, a: Array, times: Sequence[int]) -> Array:
    return np.tile(a, tuple(times))


@op("squeeze.default", "squeeze.dim", "squeeze.dims")
def _squeeze(g: Graph, a: Array, dims: Any = None) -> Array:
    dims = range(a.ndim) if dims is None else ([dims] if isinstance(dims, int) else dims)
    return a.squeeze(tuple(d for d in dims if a.ndim and a.shape[d] == 1))


@op("unsqueeze.default")
def _unsqueeze(g: Graph, a: Array, dim: int) -> Array:
    return np.expand_dims(a, dim if dim >= 0 else dim + a.ndim + 1)


@op("split.Tensor")
def _split(g: Graph, a: Array, size: int, dim: int = 0) -> tuple[Array, ...]:
    return tuple(np.split(a, range(size, a.shape[dim], size), axis=dim))


@op("split_with_sizes.default")
def _split_sizes(g: Graph, a: Array, sizes: Sequence[int], dim: int = 0) -> tuple[Array, ...]:
    return tuple(np.split(a, np.cumsum(sizes)[:-1], axis=dim))


@op("unbind.int")
def _unbind(g: Graph, a: Array, dim: int = 0) -> tuple[Array, ...]:
    return tuple(obj(x) for x in np.moveaxis(a, dim, 0))


@op("flip.default")
def _flip(g: Graph, a: Array, dims: Sequence[int]) -> Array:
    return np.flip(a, tuple(dims))


@op("roll.default")
def _roll(g: Graph, a: Array, shifts: Sequence[int], dims: Sequence[int] = ()) -> Array:
    if not dims:
        return np.roll(a.reshape(-1), shifts[0]).reshape(a.shape)
    return np.roll(a, tuple(shifts), tuple(dims))


@op("unfold.default")
def _unfold(g: Graph, a: Array, dim: int, size: int, step: int) -> Array:
    dim %= a.ndim
    starts = range(0, a.shape[dim] - size + 1, step)
    parts = [np.moveaxis(np.take(a, range(s, s + size), dim), dim, -1) for s in starts]
    return np.stack(parts, axis=dim)


@op("diagonal.default")
def _diagonal(g: Graph, a: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    return np.diagonal(a, offset, dim1, dim2)


@op("diagonal_scatter.default")
def _diagonal_scatter(
    g: Graph, a: Array, src: Array, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Array:
    places = np.diagonal(np.arange(a.size).reshape(a.shape), offset, dim1, dim2)
    out = a.copy().reshape(-1)
    out[places.reshape(-1)] = src.reshape(-1)
    return out.reshape(a.shape)


@op("diag_embed.default")
def _diag_embed(g: Graph, a: Array, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    n = a.shape[-1] + abs(offset)
    zero = g.cast(0, kind_of(a.flat[0])) if a.size else 0.0
    out = np.full((*a.shape[:-1], n, n), zero, dtype=object)
    rows = np.arange(a.shape[-1]) + max(-offset, 0)
    out[..., rows, rows + offset] = a
    return np.moveaxis(out, (-2, -1), (dim1, dim2))


def _triangle(g: Graph, a: Array, keep: np.ndarray) -> Array:
    zero = g.cast(0, kind_of(a.flat[0])) if a.size else 0.0
    return np.where(keep, a, np.full((), zero, dtype=object))


@op("tril.default")
def _tril(g: Graph, a: Array, k: int = 0) -> Array:
    return _triangle(g, a, np.tri(*a.shape[-2:], k, dtype=bool))


@op("triu.default")
def _triu(g: Graph, a: Array, k: int = 0) -> Array:
    return _triangle(g, a, ~np.tri(*a.shape[-2:], k - 1, dtype=bool))


@op("cat.default")
def _cat(g: Graph, arrays: Sequence[Array], dim: int = 0) -> Array:
    arrays = [a for a in arrays if a.shape != (0,)] or list(arrays)[:1]
    return np.concatenate(arrays, axis=dim)


@op("constant_pad_nd.default")
def _pad(g: Graph, a: Array, pad: Sequence[int], value: Any = 0) -> Array:
    pairs = [(0, 0)] * (a.ndim - len(pad) // 2)
    pairs += [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    fill = g.cast(value, kind_of(a.flat[0])) if a.size else value
    out = np.full([n + lo + hi for n, (lo, hi) in zip(a.shape, pairs, strict=True)], fill, object)
    out[tuple(slice(lo, lo + n) for n, (lo, _) in zip(a.shape, pairs, strict=True))] = a
    return out


def _filled(value: Any) -> Callable[..., Array]:
    def like(g: Graph, a: Array, *fill: Any, dtype: torch.dtype | None = None, **_: Any) -> Array:
        v = fill[0] if fill else value
        kind = kind_of_dtype(dtype) if dtype else (kind_of(a.flat[0]) if a.size else "f")
        return each(lambda _x: g.cast(obj(v)[()], kind), a)

    return like


for _name, _value in (("zeros", 0), ("ones", 1), ("full", None), ("empty", 0)):
    OPS[f"{_name}_like.default"] = _filled(_value)
OPS["fill.Scalar"] = OPS["fill.Tensor"] = OPS["full_like.default"]


def _new(value: Any) -> Callable[..., Array]:
    def new(
        g: Graph, a: Array, size: Sequence[int], *fill: Any, dtype: torch.dtype | None = None,
        **_: Any,
    ) -> Array:
        kind = kind_of_dtype(dtype) if dtype else (kind_of(a.flat[0]) if a.size else "f")
        return np.full(tuple(size), g.cast(fill[0] if fill else value, kind), dtype=object)

    return new


for _name, _value in (("zeros", 0), ("ones", 1), ("full", None), ("empty", 0)):
    OPS[f"new_{_name}.default"] = _new(_value)
OPS["new_empty_strided.default"] = lambda g, a, size, stride, **kw: _new(0)(g, a, size, **kw)


@op("permute.default")
def _permute(g: Graph, a: Array, dims: Sequence[int]) -> Array:
    return a.transpose(tuple(dims))


@op("transpose.int")
def _transpose(g: Graph, a: Array, x: int, y: int) -> Array:
    return a.swapaxes(x, y)


@op("t.default")
def _t(g: Graph, a: Array) -> Array:
    return a.T


@op("stack.default")
def _stack(g: Graph, arrays: Sequence[Array], dim: int = 0) -> Array:
    return np.stack(arrays, axis=dim)


# ---- indexing ---------------------------------------------------------------------------------


def constant(index: Array, what: str) -> np.ndarray:
    """A constant index array as NumPy integers (or bools)."""
    if any(isinstance(x, Node) for x in index.flat):
        raise NotImplementedError(f"{what} with an index computed from the inputs")
    flat = index.reshape(-1).tolist()
    kind = bool if flat and all(isinstance(x, bool) for x in flat) else np.int64
    return np.array(flat, dtype=kind).reshape(index.shape)


def _pick(g: Graph, xs: Sequence[Value], index: Value) -> Value:
    """xs[index] for a computed index: a chain of selects."""
    out = xs[0]
    for i, x in enumerate(xs[1:], 1):
        out = g.sel(g.eq(index, i), x, out)
    return out


def _is_constant(index: Array) -> bool:
    return not any(isinstance(x, Node) for x in index.flat)


def _check_gather(count: int) -> None:
    if count > GATHER_LIMIT:
        raise NotImplementedError(
            f"a gather with computed indices over {count} pairs of element and place "
            f"(at most {GATHER_LIMIT})"
        )


@op("index_select.default")
def _index_select(g: Graph, a: Array, dim: int, index: Array) -> Array:
    if _is_constant(index):
        return np.take(a, constant(index, "index_select"), axis=dim)
    rows = np.moveaxis(a, dim, 0)
    _check_gather(rows.size * index.size)
    picked = [each(lambda *xs, i=i: _pick(g, xs, i), *rows) for i in index.reshape(-1)]
    return np.moveaxis(np.stack(picked), 0, dim)


@op("gather.default")
def _gather(g: Graph, a: Array, dim: int, index: Array, **_: Any) -> Array:
    if _is_constant(index):
        return np.take_along_axis(
            a[tuple(slice(0, n) if d != dim % a.ndim else slice(None)
                    for d, n in enumerate(index.shape))],
            constant(index, "gather"), axis=dim,
        )  # fmt: skip
    rows, places = np.moveaxis(a, dim, -1), np.moveaxis(index, dim, -1)
    _check_gather(places.size * rows.shape[-1])
    out = np.empty(places.shape, dtype=object)
    for i in np.ndindex(*places.shape):
        out[i] = _pick(g, rows[i[:-1]], places[i])
    return np.moveaxis(out, -1, dim)


@op("index.Tensor", "_unsafe_index.Tensor")
def _index(g: Graph, a: Array, indices: Sequence[Array | None]) -> Array:
    live = [d for d, i in enumerate(indices) if i is not None]
    if all(_is_constant(indices[d]) for d in live):  # type: ignore[arg-type]
        places = [slice(None) if i is None else constant(i, "index") for i in indices]
        return obj(a[tuple(places)])
    varying = [d for d in live if not _is_constant(indices[d])]  # type: ignore[arg-type]
    fixed = [d for d in live if d not in varying]
    if len(varying) == 1 and all(np.asarray(indices[d]).shape == () or a.shape[d] == 1 or
                                 _is_iota(indices[d], a.shape[d]) for d in fixed):  # fmt: skip
        return _index_one(g, a, indices, varying[0])
    raise NotImplementedError("index with more than one index computed from the inputs")


def _is_iota(index: Any, n: int) -> bool:
    flat = [x for x in index.reshape(-1).tolist()]
    return flat == list(range(n))


def _index_one(g: Graph, a: Array, indices: Sequence[Any], dim: int) -> Array:
    """Indexing where one index is computed: take every place of that dim, then pick."""
    shape = np.broadcast_shapes(*(i.shape for i in indices if i is not None))
    _check_gather(a.shape[dim] * max(a.size // a.shape[dim], 1))
    candidates = []
    for k in range(a.shape[dim]):
        fixed = [
            slice(None) if i is None
            else (np.full(shape, k) if d == dim else np.broadcast_to(constant(i, "index"), shape))
            for d, i in enumerate(indices)
        ]  # fmt: skip
        candidates.append(a[tuple(fixed)])
    live = [d for d, i in enumerate(indices) if i is not None]
    start = live[0] if all(y == x + 1 for x, y in pairwise(live)) else 0
    index = np.broadcast_to(indices[dim], shape)
    tail = candidates[0].ndim - start - len(shape)
    index = index.reshape(*shape, *([1] * tail))
    return each(lambda i, *xs: _pick(g, xs, i), index, *candidates)


@op("index_put.default", "_unsafe_index_put.default")
def _index_put(
    g: Graph, a: Array, indices: Sequence[Array | None], values: Array, accumulate: bool = False
) -> Array:
    mask = indices[0]
    if len(indices) == 1 and mask is not None and mask.size and kind_of(mask.flat[0]) == "b":
        if values.size != 1:
            raise NotImplementedError("index_put with a mask and more than one value")
        mask = mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim))
        return each(lambda m, v, x: g.sel(m, v, x), mask, values.reshape(()), a)
    index = tuple(slice(None) if i is None else constant(i, "index_put") for i in indices)
    if not accumulate:
        out = a.copy()
        out[index] = values
        return out
    places = np.arange(a.size).reshape(a.shape)[index]
    flat = a.reshape(-1).copy()
    for p, v in zip(places.reshape(-1), np.broadcast_to(values, places.shape).reshape(-1),
                    strict=True):  # fmt: skip
        flat[p] = g.add(flat[p], v)
    return flat.reshape(a.shape)


def _scatter(combine: Callable | None) -> Callable[..., Array]:
    def run(g: Graph, a: Array, dim: int, index: Array, src: Any, **_: Any) -> Array:
        src = np.broadcast_to(obj(src), index.shape) if obj(src).ndim == 0 else src
        out = np.moveaxis(a, dim, -1).copy()
        where, what = np.moveaxis(index, dim, -1), np.moveaxis(src, dim, -1)
        for i in np.ndindex(*where.shape):
            row, place, v = out[i[:-1]], where[i], what[i]
            slots = range(len(row)) if isinstance(place, Node) else (place,)
            for k in slots:
                new = v if combine is None else combine(g, row[k], v)
                row[k] = g.sel(g.eq(place, k), new, row[k]) if isinstance(place, Node) else new
        return np.moveaxis(out, -1, dim)

    return run


for _form in ("src", "value"):
    OPS[f"scatter.{_form}"] = _scatter(None)
OPS["scatter_add.default"] = _scatter(Graph.add)


@op("index_add.default")
def _index_add(g: Graph, a: Array, dim: int, index: Array, src: Array, alpha: Any = 1) -> Array:
    out = np.moveaxis(a, dim, 0).copy()
    for k, row in zip(constant(index, "index_add"), np.moveaxis(src, dim, 0), strict=True):
        out[k] = each(lambda x, y: g.add(x, g.mul(y, alpha)), out[k], row)
    return np.moveaxis(out, 0, dim)


@op("index_copy.default")
def _index_copy(g: Graph, a: Array, dim: int, index: Array, src: Array) -> Array:
    out = np.moveaxis(a, dim, 0).copy()
    out[constant(index, "index_copy").reshape(-1)] = np.moveaxis(src, dim, 0)
    return np.moveaxis(out, 0, dim)


@op("index_fill.int_Scalar", "index_fill.int_Tensor")
def _index_fill(g: Graph, a: Array, dim: int, index: Array, value: Any) -> Array:
    out = np.moveaxis(a, dim, 0).copy()
    kind = kind_of(a.flat[0]) if a.size else "f"
    out[constant(index, "index_fill")] = g.cast(obj(value)[()], kind)
    return np.moveaxis(out, 0, dim)
