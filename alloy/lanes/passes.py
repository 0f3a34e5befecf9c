"""Rewrites of a whole program, and where each statement needs to run.

* `prune` drops carried values that nothing needs;
* `regroup_sums` collects the terms of each sum by the mask they stand under and sinks the addition
  into the mask: a + sel(c, x, 0) becomes sel(c, a + x, a);
* `guards` finds, for every node, the conditions that must hold for its value to matter: what is
  used only by the taken arms of selects on one condition need not run unless some lane takes them;
* `simplify_guarded` resolves selects whose condition is already implied there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from alloy.lanes.scalar import Graph, Loop, Node, Value, depth

Literal = tuple[Node, bool]
Guard = frozenset[Literal]
Rule = Callable[[Node, tuple], Value | None]
SUMS = ("add", "sub", "neg")
NONE: Guard = frozenset()


class Program:
    """The roots of a program; everything else hangs below them."""

    def __init__(self, g: Graph, roots: list[Value]) -> None:
        """Take the output values of a scalarised function."""
        self.g, self.roots = g, roots
        prune(self)

    def order(self) -> list[Node]:
        """All reachable nodes, arguments first; a loop's parts come before its results."""
        return topological([r for r in self.roots if isinstance(r, Node)])


def children(n: Node) -> list[Node]:
    """What must be known before `n`; for the result of a loop, all that the loop needs."""
    if n.op == "out":
        loop: Loop = n.args[0]
        return [x for x in (loop.go, *loop.init, *loop.next) if isinstance(x, Node)]
    return [a for a in n.args if isinstance(a, Node)]


def topological(roots: list[Node]) -> list[Node]:
    """Depth-first post-order."""
    out: list[Node] = []
    seen: set[Node] = set()
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        stack: list[tuple[Node, Iterator[Node]]] = [(root, iter(children(root)))]
        while stack:
            n, rest = stack[-1]
            for c in rest:
                if c not in seen:
                    seen.add(c)
                    stack.append((c, iter(children(c))))
                    break
            else:
                out.append(n)
                stack.pop()
    return out


def prune(p: Program) -> None:
    """Keep only the carried values that the roots need, directly or by another iteration."""
    live: set[Node] = set()
    pending = [r for r in p.roots if isinstance(r, Node)]
    loops: set[Loop] = set()
    while pending:
        n = pending.pop()
        if n in live:
            continue
        live.add(n)
        if n.op == "out":
            loop, i = n.args
            loops.add(loop)
            need = [loop.go, loop.init[i], loop.next[i], loop.carry[i]]
        elif n.op == "carry":
            assert n.loop is not None
            i = n.loop.carry.index(n)
            need = [n.loop.init[i], n.loop.next[i]]
        else:
            need = list(n.args)
        pending.extend(x for x in need if isinstance(x, Node))
    for loop in loops:
        keep = [i for i, (c, o) in enumerate(zip(loop.carry, loop.out, strict=True))
                if c in live or o in live]  # fmt: skip
        for part in ("carry", "init", "next", "out"):
            setattr(loop, part, [getattr(loop, part)[i] for i in keep])
        for i, o in enumerate(loop.out):
            o.args = (loop, i)


def rebuild(
    p: Program, ops: tuple[str, ...], rule: Rule, new: dict[Value, Value] | None = None
) -> None:
    """Build the program again bottom-up; `rule(node, args)` may replace nodes of the given ops."""
    new = {} if new is None else new  # only what changes
    done: set[Loop] = set()
    g = p.g
    for n in p.order():
        op = n.op
        if op == "out":
            loop = n.args[0]
            if loop not in done:
                done.add(loop)
                loop.init = [new.get(x, x) for x in loop.init]
                loop.next = [new.get(x, x) for x in loop.next]
                loop.go = new.get(loop.go, loop.go)
            continue
        args = n.args
        for a in args:
            if a in new:
                args = tuple([new.get(a, a) for a in args])
                break
        made = rule(n, args) if op in ops else None
        if made is None:
            if args is n.args:
                continue
            made = again(g, n, args)
        if made is not n:
            new[n] = made
    p.roots = [new.get(r, r) for r in p.roots]
    prune(p)


def again(g: Graph, n: Node, args: Sequence[Value]) -> Value:
    """The same operation on other arguments, through the folding constructors."""
    if n.op in ("abs", "sqrt", "floor", "ceil", "trunc", "rint"):
        return g.unary(n.op, args[0])
    if n.op in ("shl", "shr", "lshr"):
        return g.shift(n.op, *args)
    if n.op in ("fdiv", "frem"):
        return g.integer(n.op, *args)
    if n.op == "cast":
        return g.cast(args[0], n.kind)
    if n.op == "rsqrt":
        x = args[0]
        return g.node("rsqrt", "f", x) if isinstance(x, Node) else g.div(1.0, g.unary("sqrt", x))
    name = {"and": "and_", "or": "or_", "not": "not_", "min": "minimum", "max": "maximum"}
    return getattr(g, name.get(n.op, n.op))(*args)


def use_counts(p: Program, order: list[Node]) -> Counter[Node]:
    """How often each node is used, by nodes, loops and roots."""
    uses: Counter[Node] = Counter(r for r in p.roots if isinstance(r, Node))
    loops: set[Loop] = set()
    for n in order:
        if n.op == "out":
            loops.add(n.args[0])
        else:
            uses.update(a for a in n.args if isinstance(a, Node))
    for loop in loops:
        uses.update(x for x in (loop.go, *loop.init, *loop.next) if isinstance(x, Node))
    return uses


# ---- sums -------------------------------------------------------------------------------------


def regroup_sums(p: Program) -> None:
    """Collect the terms of every sum, plain ones first, masked ones under their masks."""
    order = p.order()
    uses = use_counts(p, order)
    inner = {
        a for n in order if n.op in SUMS and n.kind == "f"
        for a in n.args if isinstance(a, Node) and a.op in SUMS and uses[a] == 1
    }  # fmt: skip
    g = p.g
    stage = _stages(p, order)
    new: dict[Value, Value] = {}

    def rule(n: Node, args: tuple) -> Value | None:
        made = None
        if n.kind == "f" and n not in inner:
            terms: list[tuple[Value, bool]] = []
            _terms(n, False, inner, terms)
            if any(_mask_of(g, t) for t, _ in terms):
                made = 0.0
                of_stage: dict[int, list[tuple[Value, bool]]] = {}
                for t, minus in terms:
                    # the terms of a sum stand below other sums, so take their new versions
                    level = stage[t] if isinstance(t, Node) and t.loop is n.loop else 0
                    of_stage.setdefault(level, []).append((new.get(t, t), minus))
                for level in sorted(of_stage):
                    made = sum_terms(g, made, of_stage[level])
        return made

    rebuild(p, ("add", "sub"), rule, new)


def _stages(p: Program, order: list[Node]) -> dict[Node, int]:
    """How many masks, one after the other, a node stands behind within its own loop.

    What a sum adds is ordered by it: a region must not wait for results of later regions only
    because a sum happens to name them first.
    """
    literals = Literals()
    guard = guards(p, order, literals)
    stage: dict[Node, int] = {}
    for n in order:
        level = 0
        for a in children(n):
            if a.loop is n.loop or n.op == "out":
                mask = a.op == "sel" and not guard[a] and not isinstance(a.args[2], Node)
                level = max(level, stage[a] + mask)
        stage[n] = level
    return stage


def _terms(n: Value, negative: bool, inner: set[Node], out: list[tuple[Value, bool]]) -> None:
    stack = [(n, negative, True)]
    while stack:
        x, minus, top = stack.pop()
        if isinstance(x, Node) and x.op in SUMS and x.kind == "f" and (top or x in inner):
            if x.op == "neg":
                stack.append((x.args[0], not minus, False))
            else:
                stack.append((x.args[1], minus ^ (x.op == "sub"), False))
                stack.append((x.args[0], minus, False))
        else:
            out.append((x, minus))


def _mask_of(g: Graph, t: Value) -> tuple[Node, Value, bool] | None:
    """(c, x, negative) for sel(c, x, 0) or its negation."""
    minus = isinstance(t, Node) and t.op == "neg"
    m = g.masked(t.args[0] if minus else t)
    return (*m, minus) if m else None


def sum_terms(g: Graph, acc: Value, terms: list[tuple[Value, bool]]) -> Value:
    """Acc + all terms, masked ones added under their masks, in order of their conditions."""
    groups: dict[Node, list[tuple[Value, bool]]] = {}
    for t, minus in terms:
        m = _mask_of(g, t)
        if m:
            groups.setdefault(m[0], []).append((m[1], minus ^ m[2]))
        else:
            acc = g.sub(acc, t) if minus else g.add(acc, t)
    for c in sorted(groups, key=lambda c: c.id):
        acc = g.sel(c, sum_terms(g, acc, groups[c]), acc)
    return acc


# ---- guards -----------------------------------------------------------------------------------


class Literals:
    """Atomic conditions implied by a condition and its truth, remembered for one pass."""

    def __init__(self) -> None:
        """Nothing known yet."""
        self.known: dict[Literal, Guard] = {}

    def __call__(self, c: Value, holds: bool) -> Guard:
        """Atomic conditions implied by c being `holds`."""
        if not isinstance(c, Node):
            return NONE
        found = self.known.get((c, holds))
        if found is None:
            if c.op == "not":
                found = self(c.args[0], not holds)
            elif c.op == ("and" if holds else "or") and c.kind == "b":
                found = self(c.args[0], holds) | self(c.args[1], holds)
            else:
                found = frozenset([(c, holds)])
            self.known[c, holds] = found
        return found


def guards(p: Program, order: list[Node], literals: Literals) -> dict[Node, Guard]:
    """For each node the conditions under which its value matters."""
    found: dict[Node, Guard] = {r: NONE for r in p.roots if isinstance(r, Node)}
    loops: set[Loop] = set()

    def meet(x: Value, guard: Guard) -> None:
        if isinstance(x, Node):
            have = found.get(x)
            found[x] = guard if have is None else have & guard

    for n in reversed(order):
        if n.op == "out":
            loop = n.args[0]
            if loop not in loops:
                loops.add(loop)
                for x in (loop.go, *loop.init, *loop.next):
                    meet(x, NONE)
            found[n] = NONE
            continue
        guard = found[n]
        if guard:
            # a condition has to be known where the node runs, and is never its own guard
            guard = frozenset(
                (c, s) for c, s in guard if depth(c.loop) <= depth(n.loop) and c is not n
            )
            found[n] = guard
        if n.op == "sel":
            c, a, b = n.args
            meet(c, guard)
            meet(a, guard | literals(c, True))
            meet(b, guard | literals(c, False))
        elif n.op == "and" and n.kind == "b":
            meet(n.args[0], guard)
            meet(n.args[1], guard | literals(n.args[0], True))
        else:
            for a in n.args:
                meet(a, guard)
    return found


def simplify_guarded(p: Program) -> bool:
    """Resolve selects and conjunctions that their own guard decides; True if anything changed."""
    order = p.order()
    literals = Literals()
    guard = guards(p, order, literals)
    changed = False

    def rule(n: Node, args: tuple) -> Value | None:
        nonlocal changed
        known = guard[n]
        if not known or (n.op == "and" and n.kind != "b"):
            return None
        atoms = literals(n.args[0], True)
        if atoms <= known:
            changed = True
            return args[1]
        if any((c, not s) in known for c, s in atoms):
            changed = True
            return args[2] if n.op == "sel" else False
        return None

    rebuild(p, ("sel", "and"), rule)
    return changed


def share_reciprocals(p: Program) -> None:
    """Several divisions by one value become products with its reciprocal."""
    order = p.order()
    count = Counter(n.args[1] for n in order if n.op == "div" and isinstance(n.args[1], Node))
    g = p.g

    def rule(n: Node, args: tuple) -> Value | None:
        if isinstance(n.args[1], Node) and count[n.args[1]] > 1:
            return g.mul(args[0], g.div(1.0, args[1]))
        return None

    rebuild(p, ("div",), rule)


def optimise(p: Program) -> None:
    """All rewrites, in the order that lets each see what the last has uncovered."""
    simplify_guarded(p)
    regroup_sums(p)
    simplify_guarded(p)
    share_reciprocals(p)
