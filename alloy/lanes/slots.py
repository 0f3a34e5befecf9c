"""Which values live in the scratch of a block, and where."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from alloy.lanes.passes import children
from alloy.lanes.scalar import Loop, Node, Value
from alloy.lanes.schedule import Item, Region


@dataclass(eq=False)
class Call:
    """One straight-line function."""

    items: list[Item]
    time: int = 0
    name: str = ""


@dataclass(eq=False)
class LoopStep:
    """A loop of functions: head (the condition), body, then the carried values advance."""

    loop: Loop
    head: list[Step]
    body: list[Step]
    start: int = 0
    stop: int = 0


Step = Call | LoopStep


@dataclass
class Layout:
    """Slots of the values that need one; a slot is `width` 4-byte lanes, int64 takes two."""

    slot: dict[Node, int] = field(default_factory=dict)
    size: int = 0
    constants: dict[tuple, int] = field(default_factory=dict)  # constants that are results


def lay_out(steps: list[Step], roots: list[Value]) -> Layout:
    """Give slots to inputs, results, carried values and whatever crosses functions or regions."""
    plan = _Plan()
    plan.clock = 1
    plan.walk(steps, ())
    end = plan.clock + 1
    for r in roots:
        if isinstance(r, Node):
            plan.use(r, end, ())
    return plan.allocate(end)


class _Plan:
    """Life spans in time steps: each function is one step, each loop has a first and last one."""

    def __init__(self) -> None:
        self.clock = 0
        self.born: dict[Node, int] = {}
        self.loops_at: dict[Node, tuple[LoopStep, ...]] = {}
        self.dies: dict[Node, list[tuple[int, tuple[LoopStep, ...]]]] = {}
        self.where: dict[Node, tuple] = {}
        self.steps: list[LoopStep] = []

    def walk(self, steps: list[Step], loops: tuple[LoopStep, ...]) -> None:
        for step in steps:
            self.clock += 1
            if isinstance(step, Call):
                step.time = self.clock
                self.items(step.items, step, (), loops)
            else:
                self.loop(step, loops)

    def loop(self, step: LoopStep, loops: tuple[LoopStep, ...]) -> None:
        self.steps.append(step)
        step.start = self.clock
        loop, inside = step.loop, (*loops, step)
        for x in loop.init:
            self.use(x, self.clock, loops)
        for c, o in zip(loop.carry, loop.out, strict=True):
            # a carried value and its result share a slot, from before the loop on
            self.born[c], self.loops_at[c] = step.start, loops
            self.born[o], self.loops_at[o] = step.start, loops
        self.walk(step.head, inside)
        self.clock += 1
        self.use(loop.go, self.clock, inside)
        self.walk(step.body, inside)
        self.clock += 1
        for x in loop.next:
            self.use(x, self.clock, inside)
        self.use(loop.go, self.clock, inside)
        for c in loop.carry:
            self.use(c, self.clock, inside)
        step.stop = self.clock

    def items(
        self, items: list[Item], call: Call, path: tuple, loops: tuple[LoopStep, ...]
    ) -> None:
        for item in items:
            if isinstance(item, Region):
                self.read(item.literal[0], call, path, loops)
                for e in item.exits:
                    for x in e.args:
                        if isinstance(x, Node) and x is not e.args[1]:
                            self.read(x, call, path, loops)
                self.items(item.items, call, (*path, id(item)), loops)
                for e in item.exits:
                    self.where[e] = (call, path)
            elif isinstance(item, Node):
                for x in children(item):
                    self.read(x, call, path, loops)
                self.where[item] = (call, path)
                self.born[item], self.loops_at[item] = call.time, loops

    def read(self, x: Node, call: Call, path: tuple, loops: tuple[LoopStep, ...]) -> None:
        """A use of x inside a function: by name where its definition dominates, else by slot."""
        at = self.where.get(x)
        if at is None or at[0] is not call or path[: len(at[1])] != at[1]:
            self.use(x, call.time, loops)

    def use(self, x: Value, time: int, loops: tuple[LoopStep, ...]) -> None:
        if isinstance(x, Node):
            self.dies.setdefault(x, []).append((time, loops))

    def allocate(self, end: int) -> Layout:
        layout = Layout()
        spans: list[tuple[int, int, list[Node]]] = []
        tied: set[Node] = set()
        for step in self.steps:
            for c, o in zip(step.loop.carry, step.loop.out, strict=True):
                last = max(self._last(c), self._last(o), step.stop)
                spans.append((step.start, last, [c, o]))
                tied.update((c, o))
        for x in self.dies:
            if x not in tied:
                born = 0 if x.op == "in" else self.born[x]
                spans.append((born, self._last(x), [x]))
        self._pack(spans, layout)
        return layout

    def _last(self, x: Node) -> int:
        """Last time step that reads x; a read in a loop that x is defined outside of lasts it."""
        home = self.loops_at.get(x, ())
        last = self.born.get(x, 0)
        for time, loops in self.dies.get(x, ()):
            outer = loops[len(home)] if len(loops) > len(home) else None
            last = max(last, outer.stop if outer else time)
        return last

    def _pack(self, spans: list[tuple[int, int, list[Node]]], layout: Layout) -> None:
        """First free slot in order of birth; one and two slot values are kept apart."""
        free: dict[int, list[int]] = {1: [], 2: []}
        busy: list[tuple[int, int, int]] = []
        for born, last, nodes in sorted(spans, key=lambda s: (s[0], s[2][0].id)):
            while busy and busy[0][0] < born:
                _, slot, size = heapq.heappop(busy)
                heapq.heappush(free[size], slot)
            size = 2 if nodes[0].kind == "l" else 1
            if free[size]:
                slot = heapq.heappop(free[size])
            else:
                slot, layout.size = layout.size, layout.size + size
            heapq.heappush(busy, (last, slot, size))
            for n in nodes:
                layout.slot[n] = slot
