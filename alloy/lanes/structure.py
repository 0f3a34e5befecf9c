"""Nested tuples, lists, dicts, named tuples and dataclasses of tensors, flat and back.

A structure is plain JSON, so that a cached program can rebuild its outputs without being traced.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor

Structure = dict[str, Any]
STATIC = (type(None), bool, int, float, str)


def flatten(tree: Any, leaves: list[Tensor]) -> Structure:
    """Append the tensors of `tree` to `leaves`; return how to put them back."""
    if isinstance(tree, Tensor):
        leaves.append(tree)
        return {"kind": "leaf"}
    if isinstance(tree, STATIC):
        return {"kind": "static", "value": tree}
    if is_dataclass(tree) and not isinstance(tree, type):
        items = {f.name: getattr(tree, f.name) for f in fields(tree)}
        return _group("dataclass", items, leaves, _path(type(tree)))
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return _group("namedtuple", tree._asdict(), leaves, _path(type(tree)))  # type: ignore[attr-defined]
    if isinstance(tree, dict):
        return _group("dict", tree, leaves)
    if isinstance(tree, (tuple, list)):
        kind = "list" if isinstance(tree, list) else "tuple"
        return _group(kind, {str(i): x for i, x in enumerate(tree)}, leaves)
    return {"kind": "opaque", "object": tree}


def _group(kind: str, items: dict, leaves: list[Tensor], cls: str = "") -> Structure:
    parts = [[key, flatten(value, leaves)] for key, value in items.items()]
    return {"kind": kind, "class": cls, "items": parts}


def _path(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def unflatten(structure: Structure, leaves: Iterator[Any]) -> Any:
    """The inverse of `flatten`."""
    kind = structure["kind"]
    if kind == "leaf":
        return next(leaves)
    if kind == "static":
        return structure["value"]
    if kind == "opaque":
        return structure["object"]
    items = {key: unflatten(part, leaves) for key, part in structure["items"]}
    if kind == "dict":
        return items
    if kind in ("tuple", "list"):
        return tuple(items.values()) if kind == "tuple" else list(items.values())
    return _class(structure["class"])(**items)


def _class(path: str) -> Any:
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def is_plain(structure: Structure) -> bool:
    """Whether the structure can be written as JSON and read back by name."""
    if structure["kind"] == "opaque" or "<locals>" in structure.get("class", ""):
        return False
    return all(isinstance(key, str) and is_plain(part) for key, part in structure.get("items", []))


def same(a: Structure, b: Structure) -> bool:
    """Whether two structures agree on everything but opaque values."""
    if a["kind"] != b["kind"] or a.get("class") != b.get("class"):
        return False
    if a["kind"] == "static":
        return a["value"] == b["value"]
    left, right = a.get("items", []), b.get("items", [])
    return len(left) == len(right) and all(
        ka == kb and same(pa, pb) for (ka, pa), (kb, pb) in zip(left, right, strict=True)
    )
