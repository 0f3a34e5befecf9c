"""Reductions, scans and sorts over the dimensions of one world."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from alloy.lanes.ops import OPS, Array, cast, each, op
from alloy.lanes.scalar import Graph, Value, kind_of


def fold(fn: Callable[[Value, Value], Value], a: Array, dims: Any, keepdim: bool) -> Array:
    """Reduce with a function of two values over some dims (None or empty: all)."""
    return reduce_lists(lambda xs: _fold(fn, xs), a, dims, keepdim)


def _fold(fn: Callable[[Value, Value], Value], xs: list[Value]) -> Value:
    out = xs[0]
    for x in xs[1:]:
        out = fn(out, x)
    return out


def reduce_lists(fn: Callable[[list[Value]], Value], a: Array, dims: Any, keepdim: bool) -> Array:
    """Reduce with a function of a list of values over some dims (None or empty: all)."""
    dims = [dims] if isinstance(dims, int) else list(dims or range(a.ndim))
    dims = sorted(d % a.ndim for d in dims) if a.ndim else []
    rest = [d for d in range(a.ndim) if d not in dims]
    rows = a.transpose(*rest, *dims).reshape(*(a.shape[d] for d in rest), -1)
    out = np.empty(rows.shape[:-1], dtype=object)
    for i in np.ndindex(*out.shape):
        out[i] = fn(list(rows[i]))
    return out.reshape([1 if d in dims else a.shape[d] for d in range(a.ndim)]) if keepdim else out


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
