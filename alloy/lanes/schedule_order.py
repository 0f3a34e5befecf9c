"""Ordering of units that depend on each other: groups of one region, and depth-first order."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from alloy.lanes.passes import Literal
from alloy.lanes.scalar import Node


def fire(units: list, deps: dict, key: dict) -> Iterator[tuple[Literal, list]]:
    """Gather the keyed units into as few groups as dependences allow, in a valid order.

    A path that leaves the region of a literal and comes back needs a second group of it; the number
    of such returns before a unit is the least group it can be in. Groups fire once all they need
    has run. Where two groups wait for each other, the one that is readiest fires in part.
    """
    sequence = list(toposort(units, deps))
    turn = _turns(sequence, deps, key)
    groups: dict[tuple, list] = defaultdict(list)
    for u in sequence:
        if key[u] is not None:
            groups[key[u], turn[u]].append(u)
    home = {u: g for g, members in groups.items() for u in members}
    users: dict = defaultdict(list)
    waiting: dict = dict.fromkeys(units, 0)  # unplaced units of other groups before this one
    for u in units:
        for d in deps[u]:
            if home.get(u) is None or home.get(d) != home[u]:
                users[d].append(u)
                waiting[u] += 1
    missing = {g: sum(waiting[u] for u in members) for g, members in groups.items()}
    position = {g: i for i, g in enumerate(groups)}
    complete = [(position[g], g) for g, n in missing.items() if n == 0]
    heapq.heapify(complete)

    def settle(stack: list) -> None:
        """Units have run: whatever stands in no group and now can, runs too."""
        while stack:
            for v in users[stack.pop()]:
                waiting[v] -= 1
                g = home.get(v)
                if g is None:
                    if waiting[v] == 0:
                        stack.append(v)
                else:
                    missing[g] -= 1
                    if missing[g] == 0:
                        heapq.heappush(complete, (position[g], g))

    settle([u for u in units if home.get(u) is None and not deps[u]])
    while groups:
        if complete:
            g = heapq.heappop(complete)[1]
            members = groups.pop(g)
        else:
            g, members = _readiest(groups, deps, waiting, missing)
            taken = set(members)
            groups[g] = [u for u in groups[g] if u not in taken]
            for u in groups[g]:  # the rest now waits for these as for any other unit
                for d in deps[u]:
                    if d in taken:
                        users[d].append(u)
                        waiting[u] += 1
                        missing[g] += 1
        settle(list(members))
        yield g[0], members


def _turns(sequence: list, deps: dict, key: dict) -> dict:
    """How often each keyed unit's arguments have left the region of its key before it."""
    column = {k: i for i, k in enumerate(dict.fromkeys(k for k in key.values() if k is not None))}
    rows: dict = {}
    turn: dict = {}
    for u in sequence:
        row = np.zeros(len(column), np.int16)
        own = key[u]
        for d in deps[u]:
            np.maximum(row, rows[d], out=row)
            if key[d] is not None and key[d] != own:
                row[column[key[d]]] = max(row[column[key[d]]], turn[d] + 1)
        rows[u] = row
        if own is not None:
            turn[u] = int(row[column[own]])
    return turn


def _readiest(groups: dict, deps: dict, waiting: dict, missing: dict) -> tuple[tuple, list]:
    """The group that waits for least by its size, and what of it can run now."""
    for g in sorted(groups, key=lambda g: missing[g] / len(groups[g])):
        members = groups[g]
        can: dict = dict.fromkeys(members, False)
        for u in members:
            can[u] = waiting[u] == 0 and all(can.get(d, True) for d in deps[u])
        ready = [u for u in members if can[u]]
        if ready:
            return g, ready
    raise AssertionError("regions wait for each other")


def toposort(units: Iterable, deps: dict) -> Iterator:
    """Units with dependences first, otherwise in the order given."""
    seen: set = set()
    for root in units:
        if root in seen:
            continue
        seen.add(root)
        stack = [(root, iter(deps[root]))]
        while stack:
            u, rest = stack[-1]
            for d in rest:
                if d not in seen:
                    seen.add(d)
                    stack.append((d, iter(deps[d])))
                    break
            else:
                yield u
                stack.pop()


def depth_first(
    units: list, deps: dict, owner: dict, members: dict, roots: list[Node]
) -> list[object]:
    """Owners (units or boxes) in depth-first post-order from the roots, deepest argument first."""
    height: dict = {}
    for u in toposort(units, deps):
        height[u] = 1 + max((height[d] for d in deps[u]), default=0)
    need: dict[object, list] = {}
    for o in dict.fromkeys(owner.values()):
        inner = members.get(o, [o])
        outside: dict[object, int] = {}
        for u in inner:
            for d in deps[u]:
                if owner[d] is not o:
                    outside[owner[d]] = max(outside.get(owner[d], 0), height[d])
        need[o] = sorted(outside, key=lambda x: -outside[x])
    starts = [owner[r.args[0] if r.op == "out" else r] for r in roots
              if (r.args[0] if r.op == "out" else r) in owner]  # fmt: skip
    return list(toposort([*dict.fromkeys(starts), *need], need))
