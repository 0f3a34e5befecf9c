"""The driver: gathers a block of worlds, runs the steps of the program, scatters the results.

    drive(ptr arrays, ptr scratch, ptr next_block, i64 worlds)

takes blocks from a shared counter until none is left, so that any number of threads may run it.
Each array is [rows, worlds] with the worlds contiguous; a last, partial block repeats its last
world in the lanes beyond it and does not write them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alloy.lanes.emit import FunctionEmitter, Writer, declarations
from alloy.lanes.scalar import Node, Value, kind_of
from alloy.lanes.schedule import statements
from alloy.lanes.slots import Call, LoopStep, Step

ELEMENT = {"float32": ("float", "f", 4), "float64": ("double", "f", 8), "int32": ("i32", "i", 4),
           "int64": ("i64", "l", 8), "bool": ("i8", "b", 1)}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One row of an array and the slot it is read into or written from."""

    array: int
    row: int
    slot: int
    dtype: str


def functions(w: Writer, steps: list[Step], name: str) -> list[tuple[str, str, int]]:
    """(name, IR, statements) of every straight-line function; names are put into the calls."""
    out: list[tuple[str, str, int]] = []

    def visit(steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Call):
                fn = f"{name}_{len(out)}"
                step.name = fn
                text = FunctionEmitter(w, fn, step.items).text()
                out.append((fn, text, statements(step.items)))
            else:
                visit(step.head)
                visit(step.body)

    visit(steps)
    return out


class _Driver:
    def __init__(self, w: Writer) -> None:
        self.w, self.blocks = w, 0
        self.called: list[str] = []
        self.globals: list[str] = []
        self.entry: list[str] = []  # allocas: in the entry block, or the stack would grow
        self.here = "entry"

    def label(self) -> int:
        self.blocks += 1
        return self.blocks

    def open(self, label: str) -> None:
        self.w.lines.append(f"{label}:")

    # ---- the program --------------------------------------------------------------------------

    def run(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Call):
                name = step.name
                self.called.append(name)
                self.w.say(f"call void @{name}(ptr %s)")
            else:
                self.loop(step)

    def loop(self, step: LoopStep) -> None:
        """Run while some lane goes on and the limit is not reached; stopped lanes keep theirs."""
        w, loop, k = self.w, step.loop, self.label()
        for x, c in zip(loop.init, loop.carry, strict=True):
            w.store(self.value(x, c.kind), w.layout.slot[c], c.kind)
        counter = w.temp()
        self.entry.append(f" {counter} = alloca i64")
        w.say(f"store i64 0, ptr {counter}")
        w.say(f"br label %head{k}")
        self.open(f"head{k}")
        if loop.limit is not None:
            i = w.let(f"load i64, ptr {counter}")
            more = w.let(f"icmp slt i64 {i}, {loop.limit}")
            after = w.let(f"add i64 {i}, 1")
            w.say(f"store i64 {after}, ptr {counter}")
            w.say(f"br i1 {more}, label %test{k}, label %done{k}")
            self.open(f"test{k}")
        self.run(step.head)
        if isinstance(loop.go, Node):
            some = w.any_lane(self.value(loop.go, "b"))
            w.say(f"br i1 {some}, label %body{k}, label %done{k}")
            self.open(f"body{k}")
        self.run(step.body)
        self.advance(step)
        w.say(f"br label %head{k}")
        self.open(f"done{k}")

    def advance(self, step: LoopStep) -> None:
        """Next values into the carried slots, all read before any that could be overwritten."""
        w, loop = self.w, step.loop
        go = self.value(loop.go, "b") if isinstance(loop.go, Node) else None
        own = set(loop.carry)
        early = {x: self.value(x, x.kind) for x in loop.next if x in own}
        for x, c in zip(loop.next, loop.carry, strict=True):
            if x is c:
                continue
            slot, t = w.layout.slot[c], w.type(c.kind)
            new = early[x] if x in early else self.value(x, c.kind)
            frozen = (
                isinstance(x, Node) and x.op == "sel" and x.args[0] is loop.go and x.args[2] is c
            )
            if go is not None and not frozen:
                old = w.load(slot, c.kind)
                new = w.let(f"select {w.type('b')} {go}, {t} {new}, {t} {old}")
            w.store(new, slot, c.kind)

    def value(self, x: Value, kind: str) -> str:
        if isinstance(x, Node):
            return self.w.load(self.w.layout.slot[x], x.kind)
        return self.w.constant(x, kind)

    # ---- memory -------------------------------------------------------------------------------

    def transfer(self, rows: list[Row], reading: bool) -> None:
        """Loops over tables of rows, one table for each element type."""
        for dtype in ELEMENT:
            table = [r for r in rows if r.dtype == dtype]
            if table:
                self.table(table, dtype, reading)

    def table(self, rows: list[Row], dtype: str, reading: bool) -> None:
        w, k = self.w, self.label()
        entry = "[3 x i32]"
        data = ", ".join(f"{entry} [i32 {r.array}, i32 {r.row}, i32 {r.slot}]" for r in rows)
        self.globals.append(f"@table{k} = private constant [{len(rows)} x {entry}] [{data}]")
        w.say(f"br label %row{k}")
        before = self.here
        self.open(f"row{k}")
        i, following = f"%row_i{k}", f"%row_n{k}"
        w.say(f"{i} = phi i64 [ 0, %{before} ], [ {following}, %row{k} ]")
        fields = []
        for place in range(3):
            p = w.let(f"getelementptr {entry}, ptr @table{k}, i64 {i}, i64 {place}")
            narrow = w.let(f"load i32, ptr {p}, align 4")
            fields.append(w.let(f"sext i32 {narrow} to i64"))
        array, row, slot = fields
        element, _, size = ELEMENT[dtype]
        p = w.let(f"getelementptr ptr, ptr %arrays, i64 {array}")
        base = w.let(f"load ptr, ptr {p}, align 8")
        start = w.let(f"mul i64 {row}, %worlds")
        first = w.let(f"add i64 {start}, %w0")
        source = w.let(f"getelementptr {element}, ptr {base}, i64 {first}")
        bytes_ = w.let(f"mul i64 {slot}, {w.width * 4}")
        place = w.let(f"getelementptr i8, ptr %s, i64 {bytes_}")
        (self.read if reading else self.write)(source, place, dtype)
        w.say(f"{following} = add i64 {i}, 1")
        done = w.let(f"icmp eq i64 {following}, {len(rows)}")
        w.say(f"br i1 {done}, label %rows{k}, label %row{k}")
        self.open(f"rows{k}")
        self.here = f"rows{k}"

    def read(self, source: str, place: str, dtype: str) -> None:
        w = self.w
        element, kind, size = ELEMENT[dtype]
        n, t = w.width, f"<{w.width} x {element}>"
        last = w.let(f"getelementptr {element}, ptr {source}, i64 %last")
        one = w.let(f"load {element}, ptr {last}, align {size}")
        single = w.let(f"insertelement {t} poison, {element} {one}, i32 0")
        spread = w.let(f"shufflevector {t} {single}, {t} poison, <{n} x i32> zeroinitializer")
        x = w.let(
            f"call {t} @llvm.masked.load.v{n}{self.suffix(dtype)}.p0(ptr align {size} {source}, "
            f"<{n} x i1> %valid, {t} {spread})"
        )
        if dtype == "float64":
            x = w.let(f"fptrunc {t} {x} to {w.type('f')}")
        if dtype == "bool":
            x = w.let(f"icmp ne {t} {x}, zeroinitializer")
        self.put(x, place, kind)

    def put(self, x: str, place: str, kind: str) -> None:
        w = self.w
        if kind != "b":
            w.say(f"store {w.type(kind)} {x}, ptr {place}, align {w.width * 4}")
        elif w.target.masks:
            bits = w.let(f"bitcast {w.type('b')} {x} to i{w.width}")
            w.say(f"store i{w.width} {bits}, ptr {place}, align 4")
        else:
            whole = w.let(f"sext {w.type('b')} {x} to {w.type('i')}")
            w.say(f"store {w.type('i')} {whole}, ptr {place}, align {w.width * 4}")

    def write(self, target: str, place: str, dtype: str) -> None:
        w = self.w
        element, kind, size = ELEMENT[dtype]
        n, t = w.width, f"<{w.width} x {element}>"
        if kind != "b":
            x = w.let(f"load {w.type(kind)}, ptr {place}, align {n * 4}")
        elif w.target.masks:
            bits = w.let(f"load i{n}, ptr {place}, align 4")
            x = w.let(f"bitcast i{n} {bits} to {w.type('b')}")
        else:
            whole = w.let(f"load {w.type('i')}, ptr {place}, align {n * 4}")
            x = w.let(f"icmp slt {w.type('i')} {whole}, zeroinitializer")
        if dtype == "float64":
            x = w.let(f"fpext {w.type('f')} {x} to {t}")
        if dtype == "bool":
            x = w.let(f"zext {w.type('b')} {x} to {t}")
        w.say(
            f"call void @llvm.masked.store.v{n}{self.suffix(dtype)}.p0({t} {x}, "
            f"ptr align {size} {target}, <{n} x i1> %valid)"
        )

    def suffix(self, dtype: str) -> str:
        return {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64", "bool": "i8"}[
            dtype
        ]

    # ---- the whole ----------------------------------------------------------------------------

    def text(self, steps: list[Step], reads: list[Row], writes: list[Row]) -> str:
        w = self.w
        w.lines = []
        n = w.width
        for (kind, _, x), slot in w.layout.constants.items():
            w.store(w.constant(x, kind), slot, kind)
        w.say("br label %next")
        self.open("next")
        w.say("%b = atomicrmw add ptr %next_block, i64 1 monotonic")
        w.say(f"%w0 = mul i64 %b, {n}")
        w.say("%in_range = icmp slt i64 %w0, %worlds")
        w.say("br i1 %in_range, label %block, label %exit")
        self.open("block")
        w.say("%left = sub i64 %worlds, %w0")
        w.say(f"%more = icmp sgt i64 %left, {n}")
        w.say(f"%count = select i1 %more, i64 {n}, i64 %left")
        w.say("%last = sub i64 %count, 1")
        iota = ", ".join(f"i32 {i}" for i in range(n))
        w.say("%count32 = trunc i64 %count to i32")
        w.say(f"%c0 = insertelement <{n} x i32> poison, i32 %count32, i32 0")
        w.say(
            f"%c1 = shufflevector <{n} x i32> %c0, <{n} x i32> poison, <{n} x i32> zeroinitializer"
        )
        w.say(f"%valid = icmp slt <{n} x i32> <{iota}>, %c1")
        self.here = "block"
        self.transfer(reads, True)
        self.run(steps)
        w.say("br label %scatter")
        self.open("scatter")
        self.here = "scatter"
        self.transfer(writes, False)
        w.say("br label %next")
        self.open("exit")
        w.say("ret void")
        body = "\n".join(w.lines)
        return (
            "\n".join(self.globals)
            + "\ndefine void @drive(ptr %arrays, ptr %s, ptr %next_block, i64 %worlds) #0 {"
            + "\nentry:\n"
            + "\n".join([*self.entry, body])
            + "\n}\n"
        )

    def declarations(self) -> str:
        n = self.w.width
        lines = [f"declare void @{name}(ptr)" for name in dict.fromkeys(self.called)]
        for dtype, (element, _, _) in ELEMENT.items():
            t, s = f"<{n} x {element}>", f"v{n}{self.suffix(dtype)}"
            lines.append(f"declare {t} @llvm.masked.load.{s}.p0(ptr, <{n} x i1>, {t})")
            lines.append(f"declare void @llvm.masked.store.{s}.p0({t}, ptr, <{n} x i1>)")
        return "\n".join([*lines, ""])


def driver(w: Writer, steps: list[Step], reads: list[Row], writes: list[Row]) -> str:
    """IR of the module that holds `drive`; the functions of the steps are external to it."""
    d = _Driver(w)
    text = d.text(steps, reads, writes)
    return declarations(w.width) + d.declarations() + text


def place_constants(w: Writer, roots: list[Value]) -> list[int]:
    """Slot of every result; results that are constants get slots that are filled once."""
    layout = w.layout
    out = []
    for r in roots:
        if isinstance(r, Node):
            out.append(layout.slot[r])
            continue
        kind = kind_of(r)
        key = (kind, repr(r), r)
        if key not in layout.constants:
            layout.constants[key] = layout.size
            layout.size += 2 if kind == "l" else 1
        out.append(layout.constants[key])
    return out


def aligned(slots: int, width: int) -> np.ndarray:
    """Scratch memory for one thread, aligned to cache lines."""
    size = max(slots, 1) * width * 4
    raw = np.zeros(size + 128, np.uint8)
    start = -raw.ctypes.data % 128
    return raw[start : start + size]
