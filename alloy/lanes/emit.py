"""LLVM IR of a scheduled program: straight-line functions over a scratch of vector slots.

One scalar statement becomes one vector instruction, a lane for each world. A program is cut into
functions of bounded size, since LLVM's time grows faster than their length; values that cross from
one function, or from one guarded region, to another go through a slot of the block's scratch, which
stays in L1 or L2. Floats may be contracted into fused multiply-adds; NaN and infinities are kept.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alloy.lanes.scalar import Node, Value, kind_of
from alloy.lanes.schedule import Item, LoopItem, Region, statements
from alloy.lanes.slots import Call, Layout, LoopStep, Step
from alloy.lanes.target import Target

LLVM_TYPE = {"f": "float", "i": "i32", "l": "i64", "b": "i1"}
FUNCTION_SIZE = 1200  # statements
RELOAD = 60  # statements after which a value is read from its slot again rather than kept
BINARY = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor",
          "shl": "shl", "shr": "ashr", "lshr": "lshr"}  # fmt: skip
UNARY = {"abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc",
         "rint": "rint"}  # fmt: skip
COMPARE = {"lt": ("olt", "slt"), "le": ("ole", "sle"), "eq": ("oeq", "eq"), "ne": ("une", "ne")}


def cut(items: list[Item], size: int = FUNCTION_SIZE) -> list[Step]:
    """Cut scheduled items into functions of about `size` statements, and loops of those."""
    steps: list[Step] = []
    current: list[Item] = []
    room = size

    def flush() -> None:
        nonlocal current, room
        if current:
            steps.append(Call(current))
        current, room = [], size

    for item in items:
        if isinstance(item, LoopItem):
            flush()
            head = cut(item.head, size)
            steps.append(LoopStep(item.loop, head, cut(item.body, size)))
            continue
        for part in _split(item, size) if isinstance(item, Region) else [item]:
            n = statements([part])
            if n > room and current:
                flush()
            current.append(part)
            room -= n
    flush()
    return steps


def _split(region: Region, size: int) -> list[Item]:
    """A region too large for one function as several on the same condition."""
    if statements([region]) <= size:
        return [region]
    parts: list[Item] = []
    chunk: list[Item] = []
    count = 0
    for item in region.items:
        for piece in _split(item, size) if isinstance(item, Region) else [item]:
            n = statements([piece])
            if chunk and count + n > size:
                parts.append(_part(region, chunk))
                chunk, count = [], 0
            chunk.append(piece)
            count += n
    if chunk:
        parts.append(_part(region, chunk))
    return parts


def _part(region: Region, items: list[Item]) -> Region:
    inside = set(items)
    return Region(region.literal, items, [e for e in region.exits if e in inside])


@dataclass
class Writer:
    """Vector types and constants of one width, and the lines written so far."""

    target: Target
    width: int
    layout: Layout
    lines: list[str] = field(default_factory=list)
    temps: int = 0

    def type(self, kind: str) -> str:
        """Vector type of a kind."""
        return f"<{self.width} x {LLVM_TYPE[kind]}>"

    def temp(self) -> str:
        """A fresh SSA name."""
        self.temps += 1
        return f"%x{self.temps}"

    def say(self, text: str) -> None:
        """Append an instruction."""
        self.lines.append(" " + text)

    def let(self, text: str) -> str:
        """Append an instruction with a fresh result."""
        name = self.temp()
        self.lines.append(f" {name} = {text}")
        return name

    def constant(self, x: Any, kind: str) -> str:
        """A splat constant; floats are rounded to float32 here, once."""
        if kind == "f":
            with np.errstate(over="ignore"):
                rounded = float(np.float32(x))
            bits = struct.unpack("<Q", struct.pack("<d", rounded))[0]
            return f"splat (float 0x{bits:016X})"
        if kind == "b":
            return "splat (i1 true)" if x else "splat (i1 false)"
        return f"splat ({LLVM_TYPE[kind]} {int(x)})"

    # ---- slots --------------------------------------------------------------------------------

    def address(self, slot: int) -> str:
        """Pointer to a slot."""
        return self.let(f"getelementptr i8, ptr %s, i64 {slot * self.width * 4}")

    def load(self, slot: int, kind: str) -> str:
        """Read a vector from a slot; masks are kept as bits, or as whole lanes without AVX-512."""
        p = self.address(slot)
        if kind != "b":
            return self.let(f"load {self.type(kind)}, ptr {p}, align {self.width * 4}")
        if self.target.masks:
            bits = self.let(f"load i{self.width}, ptr {p}, align 4")
            return self.let(f"bitcast i{self.width} {bits} to {self.type('b')}")
        whole = self.let(f"load {self.type('i')}, ptr {p}, align {self.width * 4}")
        return self.let(f"icmp slt {self.type('i')} {whole}, zeroinitializer")

    def store(self, value: str, slot: int, kind: str) -> None:
        """Write a vector to a slot."""
        p = self.address(slot)
        if kind != "b":
            self.say(f"store {self.type(kind)} {value}, ptr {p}, align {self.width * 4}")
        elif self.target.masks:
            bits = self.let(f"bitcast {self.type('b')} {value} to i{self.width}")
            self.say(f"store i{self.width} {bits}, ptr {p}, align 4")
        else:
            whole = self.let(f"sext {self.type('b')} {value} to {self.type('i')}")
            self.say(f"store {self.type('i')} {whole}, ptr {p}, align {self.width * 4}")

    def any_lane(self, mask: str) -> str:
        """An i1: whether any lane of a mask is set."""
        bits = self.let(f"bitcast {self.type('b')} {mask} to i{self.width}")
        return self.let(f"icmp ne i{self.width} {bits}, 0")


class FunctionEmitter:
    """Emits one straight-line function with its guarded regions."""

    def __init__(self, w: Writer, name: str, items: list[Item]) -> None:
        """Prepare `name` over the given items."""
        self.w, self.name, self.items = w, name, items
        self.names: list[dict[Node, tuple[str, int]]] = [{}]  # by open region: SSA name, when
        self.block = "entry"
        self.blocks = 0
        self.clock = 0

    def text(self) -> str:
        """The function's IR."""
        self.w.lines = []
        self.emit(self.items)
        body = "\n".join(self.w.lines)
        return f"define void @{self.name}(ptr noalias %s) #0 {{\nentry:\n{body}\n ret void\n}}\n"

    def value(self, x: Value, kind: str) -> str:
        """Operand text; loads it from its slot where no SSA value is at hand."""
        if not isinstance(x, Node):
            return self.w.constant(x, kind)
        slot = self.w.layout.slot.get(x)
        for scope in reversed(self.names):
            if x in scope:
                name, when = scope[x]
                if slot is None or self.clock - when < RELOAD:
                    return name
                break
        if slot is None:
            raise AssertionError(f"{x} is used where it was not computed")
        name = self.w.load(slot, x.kind)
        self.names[-1][x] = (name, self.clock)
        return name

    def define(self, n: Node, name: str) -> None:
        """Make a value known, and store it if others need it."""
        self.names[-1][n] = (name, self.clock)
        slot = self.w.layout.slot.get(n)
        if slot is not None:
            self.w.store(name, slot, n.kind)

    def emit(self, items: list[Item]) -> None:
        """Emit items in order."""
        for item in items:
            if isinstance(item, Region):
                self.region(item)
            else:
                assert isinstance(item, Node)
                self.clock += 1
                self.define(item, self.statement(item))

    def region(self, r: Region) -> None:
        """If any lane has the literal: items. Exits merge with their other arm behind it."""
        w = self.w
        cond, holds = r.literal
        mask = self.value(cond, "b")
        if not holds:
            mask = w.let(f"xor {w.type('b')} {mask}, splat (i1 true)")
        other = {e: self.value(self.other_arm(e), e.kind) for e in r.exits}
        go = w.any_lane(mask)
        self.blocks += 1
        k, before = self.blocks, self.block
        w.say(f"br i1 {go}, label %then{k}, label %join{k}")
        w.lines.append(f"then{k}:")
        self.block = f"then{k}"
        self.names.append({})
        # exits are stored behind the join, where their value holds on both ways
        slots = w.layout.slot
        kept = {e: slots.pop(e) for e in r.exits if e in slots}
        self.emit(r.items)
        slots.update(kept)
        inner = self.names.pop()
        w.say(f"br label %join{k}")
        w.lines.append(f"join{k}:")
        after, self.block = self.block, f"join{k}"
        merged = {
            e: w.let(f"phi {w.type(e.kind)} [ {inner[e][0]}, %{after} ], [ {other[e]}, %{before} ]")
            for e in r.exits
        }
        for e, name in merged.items():
            self.define(e, name)

    def other_arm(self, e: Node) -> Value:
        """What an exit is worth where no lane has its condition."""
        return False if e.op == "and" else e.args[2]

    # ---- one statement ------------------------------------------------------------------------

    def statement(self, n: Node) -> str:
        """Emit a node; returns its SSA name."""
        w, op = self.w, n.op
        kind = n.kind if op not in COMPARE else self.operand_kind(n)
        if op == "sel":
            c = self.value(n.args[0], "b")
            a, b = (self.value(x, n.kind) for x in n.args[1:])
            t = w.type(n.kind)
            return w.let(f"select {w.type('b')} {c}, {t} {a}, {t} {b}")
        if op in ("cast", "bits", "unbits"):
            return self.conversion(n)
        args = [self.value(x, kind) for x in n.args]
        t = w.type(kind)
        if op in COMPARE:
            word = "fcmp " + COMPARE[op][0] if kind == "f" else "icmp " + COMPARE[op][1]
            return w.let(f"{word} {t} {args[0]}, {args[1]}")
        if op in ("min", "max"):
            return self.extreme(n, args)
        if op == "neg":
            return w.let(f"fneg {t} {args[0]}") if kind == "f" else w.let(
                f"sub {t} zeroinitializer, {args[0]}")  # fmt: skip
        if op == "not":
            return w.let(f"xor {t} {args[0]}, splat (i1 true)")
        if op == "div":
            return w.let(f"fdiv {t} {args[0]}, {args[1]}")
        if op in BINARY:
            word = f"f{op} contract" if kind == "f" else BINARY[op]
            return w.let(f"{word} {t} {args[0]}, {args[1]}")
        if op == "fma":
            call = "fma" if w.target.fma else "fmuladd"
            return self.intrinsic(call, args)
        if op == "rsqrt":
            root = self.intrinsic("sqrt", args)
            return w.let(f"fdiv {t} {w.constant(1.0, 'f')}, {root}")
        if op in UNARY:
            return self.intrinsic(UNARY[op], args)
        if op in ("fdiv", "frem"):
            return self.floor_division(n, args)
        raise AssertionError(f"no code for {n}")

    def operand_kind(self, n: Node) -> str:
        """Kind of what a comparison compares."""
        return next(kind_of(a) for a in n.args if isinstance(a, Node))

    def intrinsic(self, name: str, args: list[str]) -> str:
        """Call an LLVM intrinsic on floats."""
        t = self.w.type("f")
        inner = ", ".join(f"{t} {a}" for a in args)
        return self.w.let(f"call {t} @llvm.{name}.v{self.w.width}f32({inner})")

    def conversion(self, n: Node) -> str:
        """Casts between kinds, and the bits of floats."""
        w, (x,) = self.w, n.args
        have, want = x.kind, n.kind
        a = self.value(x, have)
        if n.op != "cast":
            return w.let(f"bitcast {w.type(have)} {a} to {w.type(want)}")
        if want == "f":
            return w.let(f"sitofp {w.type(have)} {a} to {w.type('f')}")
        if have == "f":  # out of range is any value, as in torch, but one value
            raw = w.let(f"fptosi {w.type('f')} {a} to {w.type(want)}")
            return w.let(f"freeze {w.type(want)} {raw}")
        word = "trunc" if want == "i" else "sext"
        return w.let(f"{word} {w.type(have)} {a} to {w.type(want)}")

    def extreme(self, n: Node, args: list[str]) -> str:
        """Min or max that keeps NaN: one instruction beside a constant, three otherwise."""
        w, (a, b), t = self.w, args, self.w.type(n.kind)
        less = n.op == "min"
        if n.kind != "f":
            c = w.let(f"icmp {'slt' if less else 'sgt'} {t} {a}, {b}")
            return w.let(f"select {w.type('b')} {c}, {t} {a}, {t} {b}")
        if not isinstance(n.args[1], Node):
            a, b = b, a  # where the comparison fails, also for NaN, the variable stays
        c = w.let(f"fcmp {'olt' if less else 'ogt'} {t} {a}, {b}")
        out = w.let(f"select {w.type('b')} {c}, {t} {a}, {t} {b}")
        if not isinstance(n.args[1], Node):
            return out
        nan = w.let(f"fcmp uno {t} {a}, {a}")
        return w.let(f"select {w.type('b')} {nan}, {t} {a}, {t} {out}")

    def floor_division(self, n: Node, args: list[str]) -> str:
        """Floor division and remainder of ints; dividing by 0 gives some value, never a trap."""
        w, (a, b), t, m = self.w, args, self.w.type(n.kind), self.w.type("b")
        one = w.constant(1, n.kind)
        zero = w.let(f"icmp eq {t} {b}, zeroinitializer")
        minus = w.let(f"icmp eq {t} {b}, {w.constant(-1, n.kind)}")
        odd = w.let(f"or {m} {zero}, {minus}")
        d = w.let(f"select {m} {odd}, {t} {one}, {t} {b}")
        q = w.let(f"sdiv {t} {a}, {d}")
        back = w.let(f"mul {t} {q}, {d}")
        r = w.let(f"sub {t} {a}, {back}")
        mixed = w.let(f"xor {t} {r}, {d}")
        differ = w.let(f"icmp slt {t} {mixed}, zeroinitializer")
        left = w.let(f"icmp ne {t} {r}, zeroinitializer")
        fix = w.let(f"and {m} {differ}, {left}")
        if n.op == "fdiv":
            lower = w.let(f"sub {t} {q}, {one}")
            q = w.let(f"select {m} {fix}, {t} {lower}, {t} {q}")
            flipped = w.let(f"sub {t} zeroinitializer, {a}")
            return w.let(f"select {m} {minus}, {t} {flipped}, {t} {q}")
        higher = w.let(f"add {t} {r}, {d}")
        r = w.let(f"select {m} {fix}, {t} {higher}, {t} {r}")
        return w.let(f"select {m} {minus}, {t} zeroinitializer, {t} {r}")


DECLARED = {"fabs": 1, "sqrt": 1, "floor": 1, "ceil": 1, "trunc": 1, "rint": 1, "fma": 3,
            "fmuladd": 3}  # fmt: skip


def declarations(width: int) -> str:
    """Intrinsics that functions of this width may call, and their attributes."""
    t = f"<{width} x float>"
    lines = [
        f"declare {t} @llvm.{name}.v{width}f32({', '.join([t] * n)})"
        for name, n in DECLARED.items()
    ]
    return "\n".join([*lines, "attributes #0 = { nounwind }", ""])
