"""The operators that move elements: views, slices, cats and fills, all NumPy's on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from alloy.lanes.ops import OPS, Array, each, kind_of_dtype, obj, op
from alloy.lanes.scalar import Graph, kind_of


def _cut(a: Array, dim: int, start: int | None, end: int | None, step: int) -> tuple:
    index: list[Any] = [slice(None)] * a.ndim
    index[dim] = slice(start, None if end is None or end > 1 << 40 else end, step)
    return tuple(index)


@op("slice.Tensor")
def _slice(
    g: Graph,
    a: Array,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
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
    g: Graph,
    a: Array,
    src: Array,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
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
    return _triangle(g, a, np.tri(a.shape[-2], a.shape[-1], k, dtype=bool))


@op("triu.default")
def _triu(g: Graph, a: Array, k: int = 0) -> Array:
    return _triangle(g, a, ~np.tri(a.shape[-2], a.shape[-1], k - 1, dtype=bool))


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
        g: Graph,
        a: Array,
        size: Sequence[int],
        *fill: Any,
        dtype: torch.dtype | None = None,
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
