"""A text that is equal only for objects that compute the same: what a compiled program is kept by.

It walks data, tensors and functions down to their byte code, closures and the globals they name.
What it cannot look into (a C object, a generator, an open file) makes the whole fingerprint None:
better no key than a wrong program.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

_LIBRARIES = ("alloy", "torch", "numpy", "math", "builtins", "functools", "operator", "itertools")
_PLAIN = (
    type(None), bool, int, float, complex, str, bytes, slice, range, torch.dtype, torch.device,
)  # fmt: skip


class _CannotSeeError(Exception):
    """An object that the walk cannot look into."""


@functools.lru_cache(maxsize=1)
def source_digest() -> str:
    """Digest of every source file of this package, and of the libraries' versions."""
    h = hashlib.sha256(f"{torch.__version__} {np.__version__}".encode())
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        h.update(str(path.relative_to(root)).encode())
        h.update(path.read_bytes())
    return h.hexdigest()


def fingerprint(*objects: Any) -> str | None:
    """Digest of what the objects hold and compute; None if some of it cannot be seen."""
    walk = _Walk()
    walk.feed("source", source_digest())
    try:
        for item in objects:
            walk.visit(item)
    except _CannotSeeError:
        return None
    return walk.hash.hexdigest()


class _Walk:
    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.seen: dict[int, int] = {}
        self.keep: list[Any] = []  # visited objects stay alive, so that ids stay theirs

    def feed(self, *texts: object) -> None:
        for text in texts:
            raw = text if isinstance(text, bytes) else str(text).encode()
            self.hash.update(len(raw).to_bytes(8, "little") + raw)

    def visit(self, item: Any) -> None:
        if isinstance(item, enum.Enum):
            self.feed("enum", type(item).__qualname__, item.name)
            return
        if isinstance(item, _PLAIN):
            self.feed(type(item).__name__, repr(item))
            return
        if id(item) in self.seen:
            self.feed("again", self.seen[id(item)])
            return
        self.seen[id(item)] = len(self.seen)
        self.keep.append(item)
        self._deep(item)

    def _deep(self, item: Any) -> None:
        handlers: tuple[tuple[Any, Callable[[Any], None]], ...] = (
            (torch.Tensor, self._tensor),
            ((np.ndarray, np.generic), self._array),
            ((tuple, list), self._sequence),
            (dict, self._mapping),
            ((set, frozenset), self._set),
            (types.FunctionType, self._function),
            (types.MethodType, lambda x: self._sequence((x.__func__, x.__self__))),
            (functools.partial, lambda x: self._sequence((x.func, x.args, x.keywords))),
            (types.CodeType, self._code),
            (types.ModuleType, self._module),
            (type, self._class),
            ((types.BuiltinFunctionType, types.MethodWrapperType), self._builtin),
        )
        for kind, handle in handlers:
            if isinstance(item, kind):
                handle(item)
                return
        self._instance(item)

    def _tensor(self, x: torch.Tensor) -> None:
        self.feed("tensor", x.dtype, tuple(x.shape), x.device)
        self.feed(x.detach().cpu().contiguous().numpy().tobytes())

    def _array(self, x: Any) -> None:
        if x.dtype == object:
            raise _CannotSeeError
        self.feed("array", x.dtype, x.shape, np.ascontiguousarray(x).tobytes())

    def _sequence(self, items: Iterable[Any]) -> None:
        items = list(items)
        self.feed("sequence", len(items))
        for item in items:
            self.visit(item)

    def _mapping(self, items: dict[Any, Any]) -> None:
        self.feed("mapping", len(items))
        for key, value in items.items():
            self.visit(key)
            self.visit(value)

    def _set(self, items: Iterable[Any]) -> None:
        if not all(isinstance(item, _PLAIN) for item in items):
            raise _CannotSeeError
        self.feed("set", *sorted(repr(item) for item in items))

    def _function(self, f: types.FunctionType) -> None:
        self.feed("function", f.__module__, f.__qualname__)
        self.visit(f.__defaults__)
        self.visit(f.__kwdefaults__)
        self._sequence(c.cell_contents for c in f.__closure__ or ())
        if f.__module__.partition(".")[0] in _LIBRARIES:
            return  # its code and its globals are covered by the source digest and the versions
        self.visit(f.__code__)
        for name in _names(f.__code__):
            if name in f.__globals__:
                self.feed("global", name)
                self.visit(f.__globals__[name])

    def _code(self, code: types.CodeType) -> None:
        self.feed("code", code.co_code, code.co_names, code.co_varnames, code.co_freevars)
        self._sequence(code.co_consts)

    def _module(self, module: types.ModuleType) -> None:
        if module.__name__.partition(".")[0] not in _LIBRARIES:
            raise _CannotSeeError
        self.feed("module", module.__name__)

    def _class(self, cls: type) -> None:
        self.feed("class", cls.__module__, cls.__qualname__)
        if cls.__module__.partition(".")[0] not in _LIBRARIES:
            raise _CannotSeeError

    def _builtin(self, f: Any) -> None:
        self.feed("builtin", f.__qualname__)
        if isinstance(f.__self__, types.ModuleType) or f.__self__ is None:
            return
        self.visit(f.__self__)

    def _instance(self, item: Any) -> None:
        cls = type(item)
        self.feed("instance", cls.__module__, cls.__qualname__)
        if cls.__module__.partition(".")[0] not in _LIBRARIES:
            raise _CannotSeeError
        if dataclasses.is_dataclass(item):
            values = {f.name: getattr(item, f.name) for f in dataclasses.fields(item)}
        elif hasattr(item, "__dict__"):
            values = vars(item)
        else:
            raise _CannotSeeError
        self._mapping(values)


def _names(code: types.CodeType) -> list[str]:
    """Names a function may look up in its globals, those of inner functions included."""
    names = list(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names += _names(const)
    return names
