"""The order of a program: straight lines, guarded regions and loops.

Every node gets a home: the path of conditions under which it runs. Nodes of one path are gathered
into as few regions as their dependences allow (a region fires when some value of it is due, and
then takes along all that is ready), small regions dissolve into their surroundings, and units are
put in depth-first order from the results, for short lives and good locality.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from alloy.lanes.passes import Guard, Literal, Literals, Program, children, guards
from alloy.lanes.scalar import Loop, Node, depth
from alloy.lanes.schedule_order import depth_first, fire

Path = tuple[Literal, ...]
MIN_REGION = 8  # statements worth a branch


@dataclass(eq=False)
class Region:
    """Items that run only if some lane has the literal; exits are its results outside."""

    literal: Literal
    items: list[Item]
    exits: list[Node] = field(default_factory=list)


@dataclass(eq=False)
class LoopItem:
    """A loop: head computes the condition, body the next carried values."""

    loop: Loop
    head: list[Item]
    body: list[Item]


Item = Node | Region | LoopItem


def schedule(p: Program, *, guarded: bool = True, min_region: int = MIN_REGION) -> list[Item]:
    """Put a program in order; without guards everything is always computed."""
    order = p.order()
    homes = _homes(p, order, min_region) if guarded else {}
    return _Scheduler(order, homes, min_region).level(None, [r for r in p.roots])


def _homes(p: Program, order: list[Node], min_region: int) -> dict[Node, Path]:
    literals = Literals()
    guard = guards(p, order, literals)
    place = {n: i for i, n in enumerate(order)}
    always: set[Literal] = set()  # true while their loop runs
    for o in order:
        if o.op == "out":
            always |= literals(o.args[0].go, True)

    def path(lits: Guard, loop: Loop | None) -> Path:
        if not lits:
            return ()
        keep = [
            x for x in lits
            if x[0] in place and x not in always and depth(x[0].loop) <= depth(loop)
        ]  # fmt: skip
        return tuple(sorted(keep, key=lambda x: (depth(x[0].loop), place[x[0]], x[1])))

    homes: dict[Node, Path] = {}
    exits: dict[Node, Path] = {}
    for n in order:
        if n.op in ("in", "carry", "out"):
            continue
        homes[n] = path(guard[n], n.loop)
        if n.op == "sel":
            exits[n] = path(guard[n] | literals(n.args[0], True), n.loop)
        elif n.op == "and" and n.kind == "b":
            exits[n] = path(guard[n] | literals(n.args[0], True), n.loop)
    _drop_small(homes, exits, min_region)
    seen_from = dict(homes)  # where a value is known: an exit behind its region
    for n, inside in exits.items():
        outside = homes[n]
        if inside[:-1] == outside and len(inside) == len(outside) + 1 and inside[-1][1]:
            value = n.args[1]
            if isinstance(value, Node) and seen_from.get(value) == inside:
                if inside[-1][0] is n.args[0]:
                    homes[n] = inside
    return {n: h for n, h in homes.items() if h}


def _drop_small(homes: dict[Node, Path], exits: dict[Node, Path], min_region: int) -> None:
    """Take literals out of paths until every region is worth its branch."""
    while True:
        size: Counter[Path] = Counter()
        for h, n in Counter(homes.values()).items():
            for k in range(1, len(h) + 1):
                size[h[:k]] += n
        small = {h for h, n in size.items() if n < min_region}
        if not small:
            break
        # innermost first: an outer region may grow by what its inner ones give up
        outer = {h[:k] for h in small for k in range(1, len(h))}
        small -= outer

        @functools.cache
        def shorten(h: Path, small: frozenset[Path] = frozenset(small)) -> Path:
            for k in range(len(h), 0, -1):
                if h[:k] in small:
                    return h[: k - 1] + h[k:]
            return h

        for table in (homes, exits):
            for n, h in table.items():
                if h:
                    table[n] = shorten(h)


class _Scheduler:
    def __init__(self, order: list[Node], homes: dict[Node, Path], min_region: int) -> None:
        self.homes, self.min_region = homes, min_region
        self.by_loop: dict[Loop | None, list[Node]] = defaultdict(list)
        self.parts: dict[Loop, list[Node]] = {}  # everything a loop needs from outside
        self.loop_of_out: dict[Loop, list[Node]] = defaultdict(list)
        for n in order:
            if n.op not in ("in", "carry"):
                self.by_loop[n.loop].append(n)
            if n.op == "out":
                self.loop_of_out[n.args[0]].append(n)
        self._captures(order)

    def _captures(self, order: list[Node]) -> None:
        """For each loop the outer nodes it needs before it starts."""
        need: dict[Loop, dict[Node, None]] = defaultdict(dict)
        for n in order:
            loop = n.loop
            if n.op == "out":
                inner = n.args[0]
                for x in (inner.go, *inner.init, *inner.next):
                    if isinstance(x, Node):
                        self._need(need, x, inner)
                for x in children(n):
                    if loop is not None:
                        self._need(need, x, loop)
            elif loop is not None:
                for x in children(n):
                    self._need(need, x, loop)
                for c, _ in self.homes.get(n, ()):
                    self._need(need, c, loop)
        self.parts = {loop: list(nodes) for loop, nodes in need.items()}

    def _need(self, need: dict, x: Node, loop: Loop) -> None:
        """X is used inside `loop`: every loop around the use that x is not part of captures it."""
        at: Loop | None = loop
        while at is not None and depth(at) > depth(x.loop):
            need[at][x] = None
            at = at.parent

    # ---- one loop level -----------------------------------------------------------------------

    def level(self, loop: Loop | None, roots: list) -> list[Item]:
        """Items of one loop level that make its roots."""
        nodes = self.by_loop[loop]
        units: list[Node | Loop] = []
        seen: set[Loop] = set()
        for n in nodes:
            if n.op == "out":
                if n.args[0] not in seen:
                    seen.add(n.args[0])
                    units.append(n.args[0])
            else:
                units.append(n)
        return self.group(units, 0, [r for r in roots if isinstance(r, Node)])

    def deps(self, u: Node | Loop, rank: int) -> list[Node | Loop]:
        """Units that must come before this one."""
        if isinstance(u, Loop):
            found = [x for x in self.parts.get(u, ()) if depth(x.loop) == depth(u.parent)]
            found += [x for x in u.init if isinstance(x, Node)]
        else:
            found = [a for a in u.args if isinstance(a, Node)]
            found += [c for c, _ in self.homes.get(u, ())]
        return [x.args[0] if x.op == "out" else x for x in found]

    def group(self, units: list[Node | Loop], rank: int, roots: list[Node]) -> list[Item]:
        """Order units, those with a path longer than `rank` gathered into regions."""
        inside = set(units)
        deps = {u: [d for d in self.deps(u, rank) if d in inside and d is not u] for u in units}
        key = {u: self._key(u, rank) for u in units}
        owner: dict[Node | Loop, object] = {u: u for u in units}
        members: dict[object, list[Node | Loop]] = {}
        if any(key.values()):
            for literal, nodes in fire(units, deps, key):
                if len(nodes) < self.min_region:
                    continue
                box = _Box(literal)
                members[box] = nodes
                for n in nodes:
                    owner[n] = box
        sequence = depth_first(units, deps, owner, members, roots)
        items: list[Item] = []
        for x in sequence:
            if isinstance(x, _Box):
                items.append(self._region(x.literal, members[x], rank))
            elif isinstance(x, Loop):
                items.append(self._loop(x))
            else:
                items.append(x)  # type: ignore[arg-type]
        return items

    def _key(self, u: Node | Loop, rank: int) -> Literal | None:
        path = self.homes.get(u, ()) if isinstance(u, Node) else ()
        return path[rank] if len(path) > rank else None

    def _region(self, literal: Literal, nodes: list, rank: int) -> Region:
        exits = [
            n for n in nodes
            if n.op in ("sel", "and") and literal == (n.args[0], True)
            and len(self.homes[n]) == rank + 1
        ]  # fmt: skip
        return Region(literal, self.group(nodes, rank + 1, exits), exits)

    def _loop(self, loop: Loop) -> LoopItem:
        go = [loop.go] if isinstance(loop.go, Node) else []
        items = self.level(loop, [*go, *loop.next])
        head: list[Item] = []
        if go and loop.go.loop is loop and loop.go.op != "carry":
            while items:
                item = items.pop(0)
                head.append(item)
                if item is loop.go or (isinstance(item, Region) and loop.go in item.exits):
                    break
        return LoopItem(loop, head, items)


@dataclass(eq=False)
class _Box:
    literal: Literal


def statements(items: list[Item]) -> int:
    """Number of scalar statements in items, nested ones included."""
    total = 0
    for item in items:
        if isinstance(item, Region):
            total += statements(item.items)
        elif isinstance(item, LoopItem):
            total += statements(item.head) + statements(item.body)
        else:
            total += 1
    return total


def summary(items: list[Item]) -> tuple[int, int, int]:
    """(regions, statements inside regions, loops) of items."""
    regions = guarded = loops = 0
    for item in items:
        if isinstance(item, Region):
            r, _, loops_inside = summary(item.items)
            regions, guarded, loops = (
                regions + 1 + r,
                guarded + statements([item]),
                loops + loops_inside,
            )
        elif isinstance(item, LoopItem):
            loops += 1
            for part in (item.head, item.body):
                r, n, k = summary(part)
                regions, guarded, loops = regions + r, guarded + n, loops + k
    return regions, guarded, loops
