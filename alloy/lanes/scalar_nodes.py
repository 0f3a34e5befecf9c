"""Nodes of a scalar program, its loops, and the table that shares equal nodes."""

from __future__ import annotations

from typing import Any

from alloy.lanes.scalar_constants import key_of

Value = Any  # Node | bool | int | float
COMMUTATIVE = frozenset(("add", "mul", "min", "max", "and", "or", "xor", "eq", "ne"))


class Loop:
    """A loop of the program: carried nodes, their first and next values, and who goes on.

    `limit` bounds the number of iterations when the loop counts them (None: unbounded), and `go`
    is the condition of one lane, True for a loop that only counts.
    """

    def __init__(self, parent: Loop | None) -> None:
        """Open a loop inside `parent`."""
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent else 1
        self.carry: list[Node] = []
        self.init: list[Value] = []
        self.next: list[Value] = []
        self.out: list[Node] = []
        self.go: Value = True
        self.limit: int | None = None


class Node:
    """One scalar operation; `loop` is the innermost loop whose iterations it depends on."""

    __slots__ = ("args", "id", "kind", "loop", "op")

    def __init__(self, op: str, kind: str, args: tuple, loop: Loop | None, id_: int) -> None:
        """Made by Graph.node only."""
        self.op, self.kind, self.args, self.loop, self.id = op, kind, args, loop, id_

    def __repr__(self) -> str:
        """Short form for debugging."""
        inner = ", ".join(f"%{a.id}" if isinstance(a, Node) else repr(a) for a in self.args)
        return f"%{self.id}:{self.kind} = {self.op}({inner})"


def kind_of(x: Value) -> str:
    """Kind of a node or constant; Python ints count as int64."""
    if isinstance(x, Node):
        return x.kind
    if isinstance(x, bool):
        return "b"
    return "l" if isinstance(x, int) else "f"


def depth(loop: Loop | None) -> int:
    """Nesting depth of a loop; 0 outside all loops."""
    return loop.depth if loop else 0


class Builder:
    """Makes nodes; two nodes with the same operation and arguments are one."""

    def __init__(self) -> None:
        """An empty program."""
        self.table: dict[tuple, Node] = {}
        self.count = 0

    def fresh(self, op: str, kind: str, args: tuple, loop: Loop | None = None) -> Node:
        """A node of its own: inputs, carried values, results of loops."""
        self.count += 1
        return Node(op, kind, args, loop, self.count)

    def node(self, op: str, kind: str, *args: Value) -> Node:
        """The node of this expression, shared with every equal one."""
        if op in COMMUTATIVE:
            a, b = args
            if not isinstance(a, Node) or (isinstance(b, Node) and a.id > b.id):
                args = (b, a)
        key = (op, kind, *[a if isinstance(a, Node) else key_of(a) for a in args])
        found = self.table.get(key)
        if found is None:
            loop = None
            for a in args:
                if isinstance(a, Node) and depth(a.loop) > depth(loop):
                    loop = a.loop
            found = self.table[key] = self.fresh(op, kind, args, loop)
        return found
