"""Conditions: conversions between kinds, selects and masks, logic and comparisons, folded."""

from __future__ import annotations

import math

from alloy.lanes.scalar_constants import BITS, key_of, wrap
from alloy.lanes.scalar_nodes import Builder, Node, Value, kind_of


class Logic(Builder):
    """The verbs of a graph that conditions need; the arithmetic is `Graph`'s."""

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
                limit = 1 << (BITS[kind] - 1)
                return int(max(-limit, min(limit - 1, x))) if math.isfinite(x) else -limit
            return wrap(int(x), kind)
        if have == kind:
            return x
        if have == "b":
            return self.sel(x, self.cast(True, kind), self.cast(False, kind))
        if kind == "b":
            return self.ne(x, self.cast(0, have))
        return self.node("cast", kind, x)

    def neg(self, a: Value) -> Value:
        """-a."""
        if not isinstance(a, Node):
            return wrap(-a, "l") if isinstance(a, int) else -a
        if a.op == "neg":
            return a.args[0]
        if a.op == "mul" and not isinstance(a.args[1], Node):
            return self.node("mul", a.kind, a.args[0], self.neg(a.args[1]))
        return self.node("neg", a.kind, a)

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
        if a is b or (
            not isinstance(a, Node) and not isinstance(b, Node) and key_of(a) == key_of(b)
        ):
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
