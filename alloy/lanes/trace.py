"""From a torch function to a scalar program: trace once with one world, then interpret.

`make_fx` records the aten operators of the function on tensors with a world axis of size 1. The
graph is then interpreted on arrays of scalar values (alloy.lanes.ops); what depends on no input is
folded by torch itself, in float64.

Loops. While tracing, `torch.while_loop` is replaced by two marker operators around one inline pass
of condition and body: the operator of torch sends both through dynamo, this way a closure is simply
an edge of the same graph. A carried value that keeps its first value is no carry at all: a pass on
random numbers says which elements may be so, and interpretation gives up those that are not.
"""

from __future__ import annotations

import operator
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from alloy.lanes import linalg, ops, ops_index, ops_moves, ops_reduce
from alloy.lanes.errors import LanesError, UnsupportedOperator
from alloy.lanes.ops import OPS, kind_of_dtype, obj
from alloy.lanes.scalar import Graph, Loop, Node, Value, kind_of
from alloy.lanes.scalar_constants import key_of

PROBES = 3
_LOCK = threading.Lock()
_FAMILIES = (ops, ops_index, ops_moves, ops_reduce, linalg)  # importing them fills OPS


@torch.library.custom_op("alloy_lanes::loop_begin", mutates_args=())
def loop_begin(carry: list[Tensor]) -> list[Tensor]:
    """Mark the carried values of a loop at the start of an iteration."""
    return [c.clone() for c in carry]


@torch.library.custom_op("alloy_lanes::loop_end", mutates_args=())
def loop_end(carry: list[Tensor], go: Tensor, new: list[Tensor]) -> list[Tensor]:
    """Mark the end of an iteration: carried values, condition, next values."""
    return [n.clone() for n in new]


def _marked_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Tensor],
    additional_inputs: Sequence[Tensor] = (),
) -> tuple[Tensor, ...]:  # fmt: skip
    carry = loop_begin(list(carried_inputs))
    go = cond_fn(*carry, *additional_inputs)
    new = body_fn(*carry, *additional_inputs)
    if len(new) != len(carry):
        raise ValueError(f"a loop carries {len(carry)} values, but its body returns {len(new)}")
    return tuple(loop_end(carry, go, list(new)))


@contextmanager
def _loops_marked() -> Iterator[None]:
    original = torch.while_loop
    torch.while_loop = _marked_loop  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.while_loop = original


def trace(fn: Callable[..., list[Tensor]], examples: Sequence[Tensor]) -> torch.fx.GraphModule:
    """The aten graph of a function of flat tensors, each of one world."""
    with _LOCK, _loops_marked(), torch.no_grad():
        gm = make_fx(torch.func.functionalize(fn))(*examples)
    gm.graph.eliminate_dead_code()
    return gm


def scalarise(
    gm: torch.fx.GraphModule, inputs: Sequence[np.ndarray], g: Graph
) -> tuple[list[np.ndarray], list[torch.dtype]]:
    """Interpret a graph on arrays of scalar values; returns its outputs and their dtypes."""
    run = _Interpreter(gm, g)
    outputs, metas = run.run(inputs)
    return [run.array(x) for x in outputs], [m.dtype for m in metas]


class _Interpreter:
    """One pass over the graph; loops pass over their part again until their carries are settled."""

    def __init__(self, gm: torch.fx.GraphModule, g: Graph) -> None:
        self.g, self.gm = g, gm
        self.nodes = list(gm.graph.nodes)
        self.env: dict[Any, Any] = {}
        self.loop: Loop | None = None
        self.varying: dict[Any, set[tuple[int, int]]] = {}  # by loop_begin: carried elements
        place = {n: i for i, n in enumerate(self.nodes)}
        self.end_of: dict[Any, int] = {}
        for n in self.nodes:
            if n.target is torch.ops.alloy_lanes.loop_end.default and n.args[0]:
                self.end_of[n.args[0][0].args[0]] = place[n]

    def run(self, inputs: Sequence[np.ndarray]) -> tuple[list[Any], list[Any]]:
        """Values and metadata of the graph's results."""
        if self.end_of:
            for seed in range(PROBES):
                self.probe(inputs, seed)
        feed = iter(inputs)
        for n in self.nodes:
            if n.op == "placeholder":
                self.env[n] = next(feed)
        self.span(0, len(self.nodes))
        result = self.nodes[-1].args[0]
        metas = [n.meta["val"] if isinstance(n, torch.fx.Node) else n for n in result]
        return [self.value(n) for n in result], metas

    def span(self, start: int, stop: int) -> None:
        i = start
        while i < stop:
            n = self.nodes[i]
            if n.op == "get_attr":
                self.env[n] = _upcast(getattr(self.gm, n.target).detach())
            elif n.op == "call_function":
                if n.target is torch.ops.alloy_lanes.loop_begin.default:
                    i = self.repeat(n, i)
                else:
                    self.env[n] = self.call(n)
            i += 1

    def value(self, x: Any) -> Any:
        if isinstance(x, torch.fx.Node):
            return self.env[x]
        if isinstance(x, (list, tuple)):
            return type(x)(self.value(y) for y in x)
        return x

    def array(self, x: Any) -> Any:
        """Constants as object arrays; everything else unchanged."""
        if isinstance(x, Tensor):
            return obj(x.numpy())
        if isinstance(x, (list, tuple)):
            return type(x)(self.array(y) for y in x)
        return x

    def call(self, n: torch.fx.Node) -> Any:
        args, kwargs = self.value(n.args), value_of_kwargs(n, self.value)
        if n.target is operator.getitem:
            return args[0][args[1]]
        if not any(isinstance(x, np.ndarray) for x in _flat((args, tuple(kwargs.values())))):
            return _upcast(n.target(*args, **kwargs))  # type: ignore[operator]
        name = str(n.target).removeprefix("aten.")
        fn = OPS.get(name)
        if fn is None:
            raise UnsupportedOperator(str(n.target), "")
        kwargs = {k: v for k, v in kwargs.items() if k not in ("layout", "device", "pin_memory")}
        try:
            out = fn(self.g, *self.array(args), **{k: self.array(v) for k, v in kwargs.items()})
        except NotImplementedError as e:
            raise UnsupportedOperator(str(n.target), "", str(e)) from None
        return self.settle(out, n.meta["val"], n)

    def settle(self, out: Any, meta: Any, n: torch.fx.Node) -> Any:
        """Check shapes, bring elements to the dtype torch says, and fold what became constant."""
        if isinstance(meta, (tuple, list)):
            return tuple(self.settle(o, m, n) for o, m in zip(out, meta, strict=True))
        if tuple(out.shape) != tuple(meta.shape):
            raise LanesError(
                f"{n.target} gave shape {tuple(out.shape)}, torch gives {tuple(meta.shape)}"
            )
        kind = kind_of_dtype(meta.dtype)
        flat = out.reshape(-1).tolist()
        kinds = {kind_of(x) for x in flat}
        if kinds - {kind} and not (kind == "i" and kinds <= {"i", "l"}):
            out = ops.cast(self.g, out, meta.dtype)
        if any(isinstance(x, Node) for x in flat):
            return out
        dtype = torch.float64 if meta.dtype.is_floating_point else meta.dtype
        return torch.tensor(out.tolist(), dtype=dtype).reshape(out.shape)

    # ---- loops --------------------------------------------------------------------------------

    def probe(self, inputs: Sequence[np.ndarray], seed: int) -> None:
        """One pass on random numbers: which carried elements do not keep their first value.

        Only a first guess, so that loops need not be interpreted once more for every element that
        turns out to vary; what the guess misses is found later.
        """
        draw = torch.Generator().manual_seed(seed)
        env: dict[Any, Any] = {}
        feed = iter(inputs)

        def value(x: Any) -> Any:
            if isinstance(x, torch.fx.Node):
                return env[x]
            return type(x)(value(y) for y in x) if isinstance(x, (list, tuple)) else x

        for n in self.nodes[:-1]:
            if n.op == "placeholder":
                given, meta = next(feed), n.meta["val"]
                env[n] = given if isinstance(given, Tensor) else _random(meta, draw)
            elif n.op == "get_attr":
                env[n] = _upcast(getattr(self.gm, n.target).detach())
            elif n.target is torch.ops.alloy_lanes.loop_begin.default:
                env[n] = value(n.args[0])
            elif n.target is torch.ops.alloy_lanes.loop_end.default:
                env[n] = value(n.args[2])
                begin = n.args[0][0].args[0]
                varying = self.varying.setdefault(begin, set())
                for k, (a, b) in enumerate(zip(env[begin], env[n], strict=True)):
                    differ = torch.nonzero((a != b).reshape(-1)).reshape(-1).tolist()
                    varying.update((k, i) for i in differ)
            else:
                env[n] = _upcast(n.target(*value(n.args), **value_of_kwargs(n, value)))

    def repeat(self, begin: torch.fx.Node, start: int) -> int:
        """Interpret a loop; returns the place of its end."""
        if begin not in self.end_of:
            return start
        stop = self.end_of[begin]
        end = self.nodes[stop]
        first = [self.array(x) for x in self.value(begin.args[0])]
        carried: Any = begin.args[0]
        metas = [x.meta["val"] for x in carried]
        varying = self.varying.setdefault(begin, set())
        loop = Loop(self.loop)
        carries: dict[tuple[int, int], Node] = {}
        while True:
            self.env[begin] = tuple(
                self._carried(loop, carries, varying, k, a, m)
                for k, (a, m) in enumerate(zip(first, metas, strict=True))
            )
            self.loop = loop
            self.span(start + 1, stop)
            self.loop = loop.parent
            new = [self.array(x) for x in self.value(end.args[2])]
            changed = {
                (k, i)
                for k, (a, b) in enumerate(zip(first, new, strict=True))
                for i, (x, y) in enumerate(zip(a.reshape(-1), b.reshape(-1), strict=True))
                if (k, i) not in varying and key_of(x) != key_of(y)
            }
            if not changed:
                break
            varying |= changed
        go = self.array(self.env[end.args[1]]).reshape(-1)
        if len(go) != 1:
            raise LanesError(f"the condition of a loop has shape {go.shape}; reduce it with any()")
        self.env[end] = self._close(loop, carries, first, new, metas, go[0])
        return stop

    def _carried(
        self, loop: Loop, carries: dict, varying: set, k: int, first: np.ndarray, meta: Tensor
    ) -> Any:
        """Carried array k: nodes where it varies, its first value elsewhere."""
        out = first.copy().reshape(-1)
        kind = kind_of_dtype(meta.dtype)
        for i in range(len(out)):
            if (k, i) in varying:
                if (k, i) not in carries:
                    carries[k, i] = self.g.fresh("carry", kind, (), loop)
                out[i] = carries[k, i]
        out = out.reshape(first.shape)
        if any(isinstance(x, Node) for x in out.flat):
            return out
        return _upcast(torch.tensor(out.tolist(), dtype=meta.dtype).reshape(out.shape))

    def _close(
        self, loop: Loop, carries: dict, first: list, new: list, metas: list, go: Value
    ) -> tuple[Any, ...]:
        loop.carry = list(carries.values())
        loop.init = [self.g.cast(first[k].reshape(-1)[i], carries[k, i].kind) for k, i in carries]
        loop.next = [self.g.cast(new[k].reshape(-1)[i], carries[k, i].kind) for k, i in carries]
        loop.go, loop.limit = _trip_limit(loop, go)
        if loop.go is True and loop.limit is None:
            raise LanesError("a loop whose condition never changes would not end")
        runs = loop.go is not False and loop.limit != 0
        results = [a.copy().reshape(-1) for a in first]
        if runs:
            for place, ((k, i), c) in enumerate(carries.items()):
                node = self.g.fresh("out", c.kind, (loop, place), loop.parent)
                loop.out.append(node)
                results[k][i] = node
        shaped = [r.reshape(a.shape) for r, a in zip(results, first, strict=True)]
        return tuple(
            a if any(isinstance(x, Node) for x in a.flat)
            else _upcast(torch.tensor(a.tolist(), dtype=m.dtype).reshape(a.shape))
            for a, m in zip(shaped, metas, strict=True)
        )  # fmt: skip


def _trip_limit(loop: Loop, go: Value) -> tuple[Value, int | None]:
    """Split a condition into what differs by lane and a bound on a counter common to all."""
    if not isinstance(go, Node):
        return bool(go), None
    counters = {
        c: (first, new.args[1])
        for c, first, new in zip(loop.carry, loop.init, loop.next, strict=True)
        if isinstance(new, Node) and new.op == "add" and new.args[0] is c
        and not isinstance(first, Node) and isinstance(new.args[1], int) and new.args[1] > 0
    }  # fmt: skip
    rest: list[Value] = []
    limit: int | None = None
    pending = [go]
    while pending:
        x = pending.pop()
        if x.op == "and":
            pending.extend(x.args)
        elif x.op in ("lt", "le") and x.args[0] in counters and not isinstance(x.args[1], Node):
            first, step = counters[x.args[0]]
            room = int(x.args[1]) - first + (x.op == "le")
            bound = max(-(-room // step), 0)
            limit = bound if limit is None else min(limit, bound)
        else:
            rest.append(x)
    if not rest:
        return True, limit
    g_and = rest[0]
    if len(rest) > 1:  # keep the node that already joins them, if the condition is just that
        return (go, limit) if limit is None else (_joined(go, set(rest)), limit)
    return g_and, limit


def _joined(go: Node, rest: set[Node]) -> Node:
    """The part of an and-tree that holds exactly the atoms of `rest`, or the whole tree."""
    pending = [go]
    while pending:
        x = pending.pop()
        atoms, stack = set(), [x]
        while stack:
            y = stack.pop()
            if y.op == "and":
                stack.extend(y.args)
            else:
                atoms.add(y)
        if atoms == rest:
            return x
        if x.op == "and":
            pending.extend(x.args)
    return go


def value_of_kwargs(n: torch.fx.Node, value: Callable[[Any], Any]) -> dict[str, Any]:
    """Keyword arguments of a graph node with nodes replaced by values."""
    return {k: value(v) for k, v in n.kwargs.items()}


def _random(meta: Tensor, draw: torch.Generator) -> Tensor:
    shape = tuple(meta.shape)
    if meta.dtype.is_floating_point:
        return torch.randn(shape, generator=draw, dtype=torch.float64)
    return torch.randint(0, 2, shape, generator=draw).to(meta.dtype)


def _flat(x: Any) -> Iterator[Any]:
    if isinstance(x, (list, tuple)):
        for y in x:
            yield from _flat(y)
    else:
        yield x


def _upcast(x: Any) -> Any:
    """Floating constants in float64."""
    if isinstance(x, (tuple, list)):
        return tuple(_upcast(y) for y in x)
    return x.double() if isinstance(x, Tensor) and x.is_floating_point() else x


class _Locate(TorchDispatchMode):
    """Remembers the line of the user's source that first calls an operator."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.found = name, ""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if not self.found and str(func).split(".")[1].rstrip("_") == self.name:
            frames = [
                f for f in traceback.extract_stack()
                if not any(part in f.filename for part in ("/torch/", "/alloy/lanes/", "<"))
            ]  # fmt: skip
            if frames:
                f = frames[-1]
                self.found = f"{f.filename}:{f.lineno}: {f.line}"
        return func(*args, **(kwargs or {}))


def source_of(name: str, fn: Callable[..., Any], examples: Sequence[Tensor]) -> str:
    """The line that calls an aten operator, as "file:line: text"; found by running `fn` again."""
    locate = _Locate(name.split(".")[1].rstrip("_"))
    with _LOCK, _loops_marked(), torch.no_grad(), locate:
        fn(*examples)
    return locate.found
