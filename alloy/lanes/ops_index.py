"""Gathers and scatters.

With constant indices they are NumPy's. An index that is computed at run time becomes a chain of
selects, so its size is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from alloy.lanes.ops import OPS, Array, each, obj, op
from alloy.lanes.scalar import Graph, Node, Value, kind_of

GATHER_LIMIT = 4096  # selects that one gather with computed indices may take


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


def _pick_each(g: Graph, index: Array, candidates: Sequence[Array]) -> Array:
    """Of arrays of one shape, elementwise, the one that a computed index names, broadcasting."""
    choices = np.stack(candidates, -1)  # NumPy's own loops take 64 arrays at most, and 1.x 32
    index = np.broadcast_to(index, choices.shape[:-1])
    out = np.empty(index.shape, dtype=object)
    for i in np.ndindex(*index.shape):
        out[i] = _pick(g, choices[i].tolist(), index[i])
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
    picked = [_pick_each(g, obj(i), list(rows)) for i in index.reshape(-1)]
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
    candidates = []
    for k in range(a.shape[dim]):
        fixed = [
            slice(None) if i is None
            else (np.full(shape, k) if d == dim else np.broadcast_to(constant(i, "index"), shape))
            for d, i in enumerate(indices)
        ]  # fmt: skip
        candidates.append(a[tuple(fixed)])
        _check_gather(a.shape[dim] * candidates[-1].size)
    live = [d for d, i in enumerate(indices) if i is not None]
    start = live[0] if all(y == x + 1 for x, y in pairwise(live)) else 0
    n = a.shape[dim]
    from_end = each(lambda i: g.sel(g.lt(i, 0), g.add(i, n), i), indices[dim])  # if negative
    index = np.broadcast_to(from_end, shape)
    tail = candidates[0].ndim - start - len(shape)
    index = index.reshape(*shape, *([1] * tail))
    return _pick_each(g, index, candidates)


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
