"""Alloy: a scene becomes a vector environment. MuJoCo's physics on batched torch tensors."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alloy import envs as envs
    from alloy.scene import Scene as Scene
    from alloy.scene_support import support_report as support_report
    from alloy.sim import Simulator as Simulator
    from alloy.sim import build as build

__version__ = "0.1.0"
__all__ = ["Scene", "Simulator", "__version__", "build", "envs", "support_report"]

# Loaded when first asked for, so that `import alloy` is quick.
_LAZY = {
    "Scene": "alloy.scene",
    "Simulator": "alloy.sim",
    "build": "alloy.sim",
    "support_report": "alloy.scene_support",
}


def __getattr__(name: str) -> Any:
    if name == "envs":
        return importlib.import_module("alloy.envs")
    if name not in _LAZY:
        raise AttributeError(f"module 'alloy' has no attribute {name!r}; it has {__all__}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
