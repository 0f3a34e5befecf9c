"""The scalar program: hash-consed nodes with folding, the ground floor of the lanes compiler.

A value is a `Node` or a Python constant (bool, int, float). Nodes are built only through the verbs
of a `Graph`, which fold constants, drop structural zeros, order commutative arguments and share
equal expressions. Kinds are "f" (float32), "i" (int32), "l" (int64) and "b" (bool). Constants fold
in float64 and are rounded once, when code is emitted.

Two normal forms do most of the work for the guards of `alloy.lanes.passes`:

* signs float outwards, so that a - b and b - a are one node;
* a masked value `sel(c, x, 0)` floats outwards through products, sums of the same mask, negations
  and divisions, so that whole contributions end up under one condition.
"""

from __future__ import annotations

import math
from typing import Any

from alloy.lanes.scalar_constants import BITS, divide, fold_unary, wrap
from alloy.lanes.scalar_logic import Logic
from alloy.lanes.scalar_nodes import Loop, Node, Value, depth, kind_of

__all__ = ["Graph", "Loop", "Node", "Value", "depth", "kind_of"]


class Graph(Logic):
    """All nodes of one program."""

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
                return self.mask(
                    m[0], self.mul(m[1], other[1] if other and other[0] is m[0] else y)
                )
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
                return divide(a, b)
            inverse = divide(1.0, b)
            if b != 0 and math.frexp(b)[0] in (0.5, -0.5):
                return self.mul(a, inverse)  # exact
            if a.op == "mul" and not isinstance(a.args[1], Node):
                return self.mul(a.args[0], divide(a.args[1], b))
            return (
                self.node("div", "f", a, b)
                if b == 0 or not math.isfinite(b)
                else self.mul(a, inverse)
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

    # ---- one argument -------------------------------------------------------------------------

    def unary(self, op: str, x: Value) -> Value:
        """Abs sqrt floor ceil trunc rint; they pass through masks where that is exact."""
        if not isinstance(x, Node):
            return fold_unary(op, x)
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
                return self.sel(
                    a.args[0], self._extreme(op, a.args[1], b), self._extreme(op, 0.0, b)
                )
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
            if not 0 < n < BITS[kind]:
                if op != "shr":
                    return 0
                n = BITS[kind] - 1
            if not isinstance(x, Node):
                mask = (1 << BITS[kind]) - 1
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
