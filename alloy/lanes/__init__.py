"""Lanes: a world-batched torch function as native code, one world per SIMD lane.

    step = alloy.lanes.compile(fn, (example_state, example_action))
    state = step(state, action)          # any number of worlds, all cores

The package knows torch graphs and nothing of physics. A function is traced once with one world, its
tensors become arrays of scalar values (constants fold, structural zeros vanish, equal expressions
merge), and the scalar program is emitted as vector code through LLVM. See docs/design.md.
"""

from alloy.lanes.compile import compile
from alloy.lanes.compiled import Compiled
from alloy.lanes.errors import LanesError, OverBudget, UnsupportedOperator

__all__ = ["Compiled", "LanesError", "OverBudget", "UnsupportedOperator", "compile"]
