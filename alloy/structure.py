"""Nested tuples, lists, dicts, named tuples and dataclasses of tensors, flat and back.

A structure is plain JSON, so that a cached program can rebuild its outputs without being traced.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from itertools import islice
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


class Mismatch(ValueError):
    """A value that is not nested as its structure says."""


def reader(structure: Structure) -> Callable[[Any, list[Tensor]], None]:
    """`flatten` for values of one structure: appends their tensors, or raises Mismatch."""
    kind, items = structure["kind"], structure.get("items", [])
    if kind == "leaf":
        return _read_leaf
    if kind == "static":
        expected = structure["value"]

        def read_static(x: Any, leaves: list[Tensor]) -> None:
            if x != expected:
                raise Mismatch

        return read_static
    if kind == "opaque":
        return lambda x, leaves: None
    names = [key for key, _ in items]
    parts = [reader(part) for _, part in items]
    cls = {"tuple": tuple, "list": list, "dict": dict}.get(kind) or _class(structure["class"])
    of: Callable[[Any], Any] = lambda x: x  # noqa: E731
    if kind == "dict":
        of = lambda x: [x[name] for name in names] if list(x) == names else ()  # noqa: E731
    elif kind == "dataclass":
        of = lambda x: [getattr(x, name) for name in names]  # noqa: E731

    def read(x: Any, leaves: list[Tensor]) -> None:
        if type(x) is not cls:
            raise Mismatch
        values = of(x)
        if len(values) != len(parts):
            raise Mismatch
        for part, value in zip(parts, values, strict=True):
            part(value, leaves)

    return read


def _read_leaf(x: Any, leaves: list[Tensor]) -> None:
    if not isinstance(x, Tensor):
        raise Mismatch
    leaves.append(x)


def builder(structure: Structure) -> Callable[[Iterator[Any]], Any]:
    """`unflatten` for one structure."""
    kind, items = structure["kind"], structure.get("items", [])
    if kind == "leaf":
        return next
    if kind in ("static", "opaque"):
        fixed = structure["value" if kind == "static" else "object"]
        return lambda leaves: fixed
    parts = [builder(part) for _, part in items]
    names = [key for key, _ in items]
    if kind in ("tuple", "list"):
        cls: Any = tuple if kind == "tuple" else list
        if all(part["kind"] == "leaf" for _, part in items):
            return lambda leaves: cls(islice(leaves, len(parts)))
        return lambda leaves: cls([part(leaves) for part in parts])
    pairs = list(zip(names, parts, strict=True))
    if kind == "dict":
        return lambda leaves: {name: part(leaves) for name, part in pairs}
    cls = _class(structure["class"])
    return lambda leaves: cls(**{name: part(leaves) for name, part in pairs})


def unflatten(structure: Structure, leaves: Iterator[Any]) -> Any:
    """The inverse of `flatten`."""
    return builder(structure)(leaves)


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
