"""The scalar program: hash-consed nodes with folding, the ground floor of the lanes compiler.

A value is a `Node` or a Python constant (bool, int, float). Nodes are built only through the verbs
of a `Graph`, which fold constants, drop structural zeros, order commutative arguments and share
equal expressions. Kinds are "f" (float32), "i" (int32), "l" (int64) and "b" (bool). Constants fold
in float64 and are rounded once, when code is emitted.

Two normal forms do most of the work for the guards of `alloy.lanes.guards`:

* signs float outwards, so that a - b and b - a are one node;
* a masked value `sel(c, x, 0)` floats outwards through products, sums of the same mask, negations
  and divisions, so that whole contributions end up under one condition.
"""

from __future__ import annotations

import math
from typing import Any

Value = Any  # Node | bool | int | float

COMMUTATIVE = frozenset(("add", "mul", "min", "max", "and", "or", "xor", "eq", "ne"))
WRAP = {"i": 32, "l": 64}


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


def wrap(x: int, kind: str) -> int:
    """Two's complement wrap-around of a constant."""
    bits = WRAP[kind]
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def is_node(x: Value) -> bool:
    """Whether the value is known only at run time."""
    return isinstance(x, Node)


def depth(loop: Loop | None) -> int:
    """Nesting depth of a loop; 0 outside all loops."""
    return loop.depth if loop else 0


class Graph:
    """All nodes of one program."""

    def __init__(self) -> None:
        """An empty program."""
        self.table: dict[tuple, Node] = {}
        self.count = 0

    # ---- making nodes -------------------------------------------------------------------------

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
        key = (op, kind, *(_key(a) for a in args))
        found = self.table.get(key)
        if found is None:
            loop = None
            for a in args:
                if isinstance(a, Node) and depth(a.loop) > depth(loop):
                    loop = a.loop
            found = self.table[key] = self.fresh(op, kind, args, loop)
        return found

    def promote(self, a: Value, b: Value) -> tuple[Value, Value, str]:
        """Both values in the kind torch would compute in; constants follow nodes."""
        ka, kb = kind_of(a), kind_of(b)
        if ka == kb:
            return a, b, ka
        order = "bilf"
        kind = max(ka, kb, key=order.index)
        if kind == "l":  # a Python int beside an int32 node stays int32
            if ka == "i" and not isinstance(b, Node):
                kind = "i"
            elif kb == "i" and not isinstance(a, Node):
                kind = "i"
        return self.cast(a, kind), self.cast(b, kind), kind

    def cast(self, x: Value, kind: str) -> Value:
        """Convert between kinds as torch does (floats truncate towards zero)."""
        have = kind_of(x)
        if not isinstance(x, Node):
            if kind == "f":
                return float(x)
            if kind == "b":
                return bool(x)
            if isinstance(x, float):
                limit = 1 << (WRAP[kind] - 1)
                return int(max(-limit, min(limit - 1, x))) if math.isfinite(x) else -limit
            return wrap(int(x), kind)
        if have == kind:
            return x
        if have == "b":
            return self.sel(x, self.cast(True, kind), self.cast(False, kind))
        if kind == "b":
            return self.ne(x, self.cast(0, have))
        return self.node("cast", kind, x)

    # ---- arithmetic ---------------------------------------------------------------------------

    def neg(self, a: Value) -> Value:
        """-a."""
        if not isinstance(a, Node):
            return wrap(-a, "l") if isinstance(a, int) else -a
        if a.op == "neg":
            return a.args[0]
        if a.op == "mul" and not isinstance(a.args[1], Node):
            return self.mul(a.args[0], self.neg(a.args[1]))
        return self.node("neg", a.kind, a)

    def add(self, a: Value, b: Value) -> Value:
        """A + b."""
        a, b, kind = self.promote(a, b)
        if not isinstance(a, Node):
            if not isinstance(b, Node):
                return a + b if kind == "f" else wrap(int(a) + int(b), "l" if kind == "b" else kind)
            a, b = b, a
        if not isinstance(b, Node):
            if b == 0:
                return a
            return self.node("add", kind, a, b)
        if kind == "b":
            return self.add(self.cast(a, "l"), self.cast(b, "l"))
        na, nb = a.op == "neg", b.op == "neg"
        if na and nb:
            return self.neg(self.add(a.args[0], b.args[0]))
        if nb:
            return self._difference(a, b.args[0], kind)
        if na:
            return self._difference(b, a.args[0], kind)
        joined = self._join(a, b, self.add)
        return self.node("add", kind, a, b) if joined is None else joined

    def sub(self, a: Value, b: Value) -> Value:
        """A - b."""
        return self.add(a, self.neg(b if kind_of(b) != "b" else self.cast(b, "l")))

    def _difference(self, a: Node, b: Node, kind: str) -> Value:
        if a is b and kind != "f":
            return 0
        joined = self._join(a, b, self.sub)
        if joined is not None:
            return joined
        if a.id > b.id:
            return self.node("neg", kind, self.node("sub", kind, b, a))
        return self.node("sub", kind, a, b)

    def _join(self, a: Node, b: Node, op: Any) -> Value | None:
        """Op on two values under the same mask, or None."""
        ma, mb = self.masked(a), self.masked(b)
        if ma and mb and ma[0] is mb[0]:
            return self.mask(ma[0], op(ma[1], mb[1]))
        return None

    def mul(self, a: Value, b: Value) -> Value:
        """A * b; a constant zero wins over anything, also over NaN."""
        a, b, kind = self.promote(a, b)
        if not isinstance(a, Node):
            a, b = b, a
        if not isinstance(b, Node):
            return self._scale(a, b, kind)
        if kind == "b":
            return self.and_(a, b)
        if kind != "f":
            return self.node("mul", kind, a, b)
        if a.op == "neg":
            return self.neg(self.mul(a.args[0], b))
        if b.op == "neg":
            return self.neg(self.mul(a, b.args[0]))
        for x, y in ((a, b), (b, a)):
            m = self.masked(x)
            if m:
                other = self.masked(y)
                return self.mask(m[0], self.mul(m[1], other[1] if other and other[0] is m[0] else y))
            if x.op == "sel" and x.args[1] in (1.0, -1.0) and x.args[2] in (1.0, -1.0):
                return self.sel(x.args[0], self.mul(x.args[1], y), self.mul(x.args[2], y))
        for x, y in ((a, b), (b, a)):
            if x.op == "mul" and not isinstance(x.args[1], Node):
                return self._scale(self.mul(x.args[0], y), x.args[1], "f")
        return self.node("mul", kind, a, b)

    def _scale(self, a: Value, k: Any, kind: str) -> Value:
        if not isinstance(a, Node):
            if kind == "b":
                return a and k
            return a * k if kind == "f" else wrap(a * k, kind)
        if kind == "b":
            return a if k else False
        if k == 0 and kind == "f":
            return 0.0
        if k == 0:
            return 0
        if k == 1:
            return a
        if k == -1:
            return self.neg(a)
        if a.op == "neg":
            return self._scale(a.args[0], -k, kind)
        if kind == "f":
            if a.op == "mul" and not isinstance(a.args[1], Node):
                product = a.args[1] * k
                if 1e-30 < abs(product) < 1e30:
                    return self._scale(a.args[0], product, kind)
            if a.op == "sel" and not (isinstance(a.args[1], Node) and isinstance(a.args[2], Node)):
                return self.sel(a.args[0], self.mul(a.args[1], k), self.mul(a.args[2], k))
        return self.node("mul", kind, a, k)

    def div(self, a: Value, b: Value) -> Value:
        """A / b in floats."""
        a, b = self.cast(a, "f"), self.cast(b, "f")
        if not isinstance(b, Node):
            if not isinstance(a, Node):
                return _divide(a, b)
            inverse = _divide(1.0, b)
            if b != 0 and math.frexp(b)[0] in (0.5, -0.5):
                return self.mul(a, inverse)  # exact
            if a.op == "mul" and not isinstance(a.args[1], Node):
                return self.mul(a.args[0], _divide(a.args[1], b))
            return self.node("div", "f", a, b) if b == 0 or not math.isfinite(b) else self.mul(
                a, inverse
            )
        if not isinstance(a, Node):
            if a == 0:
                return 0.0
        elif a.op == "neg":
            return self.neg(self.div(a.args[0], b))
        else:
            m = self.masked(a)
            if m:
                return self.mask(m[0], self.div(m[1], b))
        if b.op == "neg":
            return self.neg(self.div(a, b.args[0]))
        return self.node("div", "f", a, b)

    def total(self, terms: list[Value]) -> Value:
        """Sum of many terms; terms under one mask are summed under it."""
        constant: Value = 0
        groups: dict[Node | None, list[Value]] = {}
        for t in terms:
            if not isinstance(t, Node):
                constant = self.add(constant, t)
                continue
            inner = t.args[0] if t.op == "neg" else t
            m = self.masked(inner)
            if m:
                groups.setdefault(m[0], []).append(m[1] if inner is t else self.neg(m[1]))
            else:
                groups.setdefault(None, []).append(t)
        plain = groups.pop(None, [])
        out: Value = 0 if not plain else None
        for t in plain:
            out = t if out is None else self.add(out, t)
        out = self.add(out, constant)
        for c, parts in groups.items():
            out = self.add(out, self.mask(c, self.total(parts)))  # type: ignore[arg-type]
        return out

    # ---- masks and conditions -----------------------------------------------------------------

    def masked(self, x: Value) -> tuple[Node, Value] | None:
        """(c, v) when x is sel(c, v, 0.0)."""
        if isinstance(x, Node) and x.op == "sel" and x.kind == "f":
            other = x.args[2]
            if not isinstance(other, Node) and other == 0:
                return x.args[0], x.args[1]
        return None

    def mask(self, c: Value, x: Value) -> Value:
        """sel(c, x, 0)."""
        return self.sel(c, x, 0.0 if kind_of(x) == "f" else self.cast(0, kind_of(x)))

    def sel(self, c: Value, a: Value, b: Value) -> Value:
        """A where c holds, else b."""
        if not isinstance(c, Node):
            return a if c else b
        a, b, kind = self.promote(a, b)
        if a is b or (not isinstance(a, Node) and not isinstance(b, Node) and _key(a) == _key(b)):
            return a
        if c.op == "not":
            return self.sel(c.args[0], b, a)
        if kind == "b":
            if not isinstance(a, Node):
                return self.or_(c, b) if a else self.and_(self.not_(c), b)
            if not isinstance(b, Node):
                return self.or_(self.not_(c), a) if b else self.and_(c, a)
        if isinstance(a, Node) and a.op == "sel" and a.args[0] is c:
            return self.sel(c, a.args[1], b)
        if isinstance(b, Node) and b.op == "sel" and b.args[0] is c:
            return self.sel(c, a, b.args[2])
        na, nb = isinstance(a, Node) and a.op == "neg", isinstance(b, Node) and b.op == "neg"
        if (na and nb) or (na and not isinstance(b, Node)) or (nb and not isinstance(a, Node)):
            return self.neg(self.sel(c, self.neg(a), self.neg(b)))
        zero_b = kind == "f" and not isinstance(b, Node) and b == 0
        if kind == "f" and not isinstance(a, Node) and a == 0 and isinstance(b, Node):
            return self.node("sel", kind, self.not_(c), b, 0.0)
        if zero_b:
            b = 0.0
            if c.op == "and":
                return self.sel(c.args[0], self.sel(c.args[1], a, 0.0), 0.0)
            m = self.masked(a)
            if m and m[0].id < c.id:  # older conditions outside
                return self.mask(m[0], self.mask(c, m[1]))
        return self.node("sel", kind, c, a, b)

    def not_(self, a: Value) -> Value:
        """Logical not."""
        if not isinstance(a, Node):
            return not a
        return a.args[0] if a.op == "not" else self.node("not", "b", a)

    def and_(self, a: Value, b: Value) -> Value:
        """A and b, of bools, or of the bits of ints."""
        a, b, kind = self.promote(a, b)
        if not isinstance(a, Node):
            a, b = b, a
        if not isinstance(b, Node):
            if kind == "b":
                return (a if b else False) if isinstance(a, Node) else a and b
            if b == 0:
                return 0
            if b == -1:
                return a
            return self.node("and", kind, a, b) if isinstance(a, Node) else a & b
        if a is b:
            return a
        if kind == "b" and (self.not_(a) is b or (b.op == "and" and a in b.args)):
            return False if self.not_(a) is b else b
        if kind == "b" and a.op == "and" and b in a.args:
            return a
        return self.node("and", kind, a, b)

    def or_(self, a: Value, b: Value) -> Value:
        """A or b, of bools, or of the bits of ints."""
        a, b, kind = self.promote(a, b)
        if not isinstance(a, Node):
            a, b = b, a
        if not isinstance(b, Node):
            if kind == "b":
                return (True if b else a) if isinstance(a, Node) else a or b
            if b == 0:
                return a
            return self.node("or", kind, a, b) if isinstance(a, Node) else a | b
        if a is b:
            return a
        if kind == "b" and self.not_(a) is b:
            return True
        return self.node("or", kind, a, b)

    def xor(self, a: Value, b: Value) -> Value:
        """A xor b, of bools, or of the bits of ints."""
        a, b, kind = self.promote(a, b)
        if not isinstance(a, Node):
            a, b = b, a
        if not isinstance(b, Node):
            if not isinstance(a, Node):
                return a ^ b
            if kind == "b":
                return self.not_(a) if b else a
            return a if b == 0 else self.node("xor", kind, a, b)
        return self.node("xor", kind, a, b)

    def lt(self, a: Value, b: Value) -> Value:
        """A < b; False for NaN."""
        return self._compare("lt", a, b)

    def le(self, a: Value, b: Value) -> Value:
        """A <= b; False for NaN."""
        return self._compare("le", a, b)

    def eq(self, a: Value, b: Value) -> Value:
        """A == b; False for NaN."""
        return self._compare("eq", a, b)

    def ne(self, a: Value, b: Value) -> Value:
        """A != b; True for NaN."""
        return self._compare("ne", a, b)

    def _compare(self, op: str, a: Value, b: Value) -> Value:
        a, b, kind = self.promote(a, b)
        if not isinstance(a, Node) and not isinstance(b, Node):
            return bool({"lt": a < b, "le": a <= b, "eq": a == b, "ne": a != b}[op])
        if kind == "b":
            if op == "ne":
                return self.xor(a, b)
            if op == "eq":
                return self.not_(self.xor(a, b))
            return self.and_(self.not_(a), b) if op == "lt" else self.or_(self.not_(a), b)
        for x, y, swapped in ((a, b, False), (b, a, True)):
            # a select between constants, or a mask, against a constant: the select decides
            if isinstance(x, Node) and x.op == "sel" and not isinstance(y, Node):
                c, u, v = x.args
                if not isinstance(v, Node) and (self.masked(x) or not isinstance(u, Node)):
                    pick = [(y, s) if swapped else (s, y) for s in (u, v)]
                    yes, no = (self._compare(op, *p) for p in pick)
                    return self.sel(c, yes, no)
        if isinstance(a, Node) and not isinstance(b, Node) and b == 0 and a.op == "neg":
            a, b = b, a.args[0]  # -x < 0 is 0 < x
        if a is b and kind != "f":
            return op in ("le", "eq")
        return self.node(op, "b", a, b)

    # ---- one argument -------------------------------------------------------------------------

    def unary(self, op: str, x: Value) -> Value:
        """Abs sqrt floor ceil trunc rint; they pass through masks where that is exact."""
        if not isinstance(x, Node):
            return _fold_unary(op, x)
        if x.kind != "f":
            if op != "abs":
                return x
            return self.sel(self.lt(x, 0), self.neg(x), x)
        if op == "abs":
            if x.op in ("abs", "sqrt"):
                return x
            if x.op == "neg":
                return self.unary("abs", x.args[0])
        m = self.masked(x)
        if m:
            return self.mask(m[0], self.unary(op, m[1]))
        if op in ("floor", "ceil", "trunc", "rint") and (
            x.op in ("floor", "ceil", "trunc", "rint") or (x.op == "cast" and x.kind == "f")
        ):
            return x
        return self.node(op, x.kind, x)

    def minimum(self, a: Value, b: Value) -> Value:
        """Smaller value; NaN if either is."""
        return self._extreme("min", a, b)

    def maximum(self, a: Value, b: Value) -> Value:
        """Larger value; NaN if either is."""
        return self._extreme("max", a, b)

    def _extreme(self, op: str, a: Value, b: Value) -> Value:
        a, b, kind = self.promote(a, b)
        if not isinstance(a, Node):
            a, b = b, a
        if not isinstance(a, Node):
            if a != a or b != b:
                return math.nan
            return min(a, b) if op == "min" else max(a, b)
        if a is b:
            return a
        if kind == "b":
            return self.and_(a, b) if op == "min" else self.or_(a, b)
        if not isinstance(b, Node):
            if a.op == "sel" and self.masked(a):
                return self.sel(a.args[0], self._extreme(op, a.args[1], b), self._extreme(op, 0.0, b))
            if a.op == op and not isinstance(a.args[1], Node) and b == b:
                return self.node(op, kind, a.args[0], (min if op == "min" else max)(a.args[1], b))
            if b in (math.inf, -math.inf) and (b > 0) == (op == "min"):
                return a
        return self.node(op, kind, a, b)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """A * b + c with one rounding."""
        if all(not isinstance(x, Node) for x in (a, b, c)):
            return a * b + c
        if not isinstance(a, Node):
            a, b = b, a
        if isinstance(a, Node):
            return self.node("fma", "f", a, b, c)
        return self.add(self.mul(a, b), c)

    def bits(self, x: Value) -> Value:
        """The bits of a float as int32."""
        if isinstance(x, Node) and x.op == "unbits":
            return x.args[0]
        return self.node("bits", "i", x)

    def unbits(self, x: Value) -> Value:
        """The float with these int32 bits."""
        if isinstance(x, Node) and x.op == "bits":
            return x.args[0]
        return self.node("unbits", "f", x)

    def shift(self, op: str, x: Value, n: Value) -> Value:
        """Shl, shr (arithmetic) or lshr of an int; amounts outside the width give 0 or the sign."""
        kind = kind_of(x) if isinstance(x, Node) else (kind_of(n) if isinstance(n, Node) else "l")
        kind = "l" if kind == "b" else kind
        x, n = self.cast(x, kind), self.cast(n, kind)
        if not isinstance(n, Node):
            if n == 0:
                return x
            if not 0 < n < WRAP[kind]:
                if op != "shr":
                    return 0
                n = WRAP[kind] - 1
            if not isinstance(x, Node):
                mask = (1 << WRAP[kind]) - 1
                folded = {"shl": x << n, "shr": x >> n, "lshr": (x & mask) >> n}[op]
                return wrap(folded, kind)
        return self.node(op, kind, x, n)

    def integer(self, op: str, a: Value, b: Value) -> Value:
        """Floor division ("fdiv") or remainder ("frem") of ints, as Python does; b is not 0."""
        a, b, kind = self.promote(a, b)
        if not isinstance(b, Node) and b != 0:
            if not isinstance(a, Node):
                return a // b if op == "fdiv" else a % b
            if b == 1:
                return a if op == "fdiv" else 0
            if b > 0 and b & (b - 1) == 0:
                n = b.bit_length() - 1
                return self.shift("shr", a, n) if op == "fdiv" else self.and_(a, b - 1)
        return self.node(op, kind, a, b)


def _key(a: Value) -> Any:
    """What tells two arguments apart: 0.0 and -0.0, 1 and 1.0 and True are different."""
    if isinstance(a, Node):
        return a
    if isinstance(a, float):
        return (a, math.copysign(1.0, a)) if a == 0.0 else (a if a == a else "nan")
    return (a, type(a))


def _divide(a: float, b: float) -> float:
    if b == 0.0:
        if a == 0.0 or a != a:
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _fold_unary(op: str, x: Any) -> Any:
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
