"""Compiled programs on disk: one file an entry, safe to share between processes.

An entry is written under a temporary name and renamed, so that readers see all of it or nothing;
two processes that build the same program both write the same bytes. A checksum guards against what
a crash or a full disk leaves behind. A cache that cannot be used costs a warning and a rebuild,
never a wrong result. The least recently used entries go when the folder grows over its bound.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite
import torch

from alloy import structure
from alloy.lanes.target import Target

MAGIC = b"ALLOYLANES1\n"
DEFAULT_BYTES = 512 << 20
SUFFIX = ".lanes"


@dataclass(frozen=True)
class Entry:
    """What a program needs to run again: a description and its object files."""

    meta: dict[str, Any]
    objects: list[bytes]


def folder() -> Path:
    """Where entries live: $ALLOY_CACHE_DIR, or ~/.cache/alloy/lanes."""
    given = os.environ.get("ALLOY_CACHE_DIR")
    return Path(given) if given else Path.home() / ".cache" / "alloy" / "lanes"


def limit() -> int:
    """Bound on the folder's size in bytes: $ALLOY_CACHE_BYTES, or 512 MiB."""
    try:
        return int(os.environ.get("ALLOY_CACHE_BYTES", DEFAULT_BYTES))
    except ValueError:
        return DEFAULT_BYTES


@functools.cache
def compiler_version() -> str:
    """Hash of what compiles: this package, how results are nested, and torch and llvmlite."""
    h = hashlib.sha256(f"{torch.__version__} {llvmlite.__version__}".encode())
    for path in (Path(structure.__file__), *sorted(Path(__file__).parent.glob("*.py"))):
        h.update(path.read_bytes())
    return h.hexdigest()


def digest(target: Target, *parts: str) -> str:
    """Key of an entry: compiler, host and whatever else decides the code."""
    h = hashlib.sha256(compiler_version().encode())
    for part in (target.cpu, target.features, target.triple, *parts):
        h.update(len(part).to_bytes(8, "little") + part.encode())
    return h.hexdigest()


_warned: set[str] = set()


def _warn(what: str, error: object) -> None:
    if what not in _warned:
        _warned.add(what)
        warnings.warn(
            f"lanes cache in {folder()}: {what} ({error}); compiling without it. "
            "Set ALLOY_CACHE_DIR to a writable folder.",
            RuntimeWarning,
            stacklevel=3,
        )


def read(key: str) -> Entry | None:
    """The entry of a key, or None; a damaged entry is removed."""
    path = folder() / (key + SUFFIX)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as e:
        _warn("cannot be read", e)
        return None
    try:
        entry = _decode(data)
    except (ValueError, KeyError, TypeError) as e:
        _warn("holds a damaged entry, which is rebuilt", e)
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return entry


def write(key: str, entry: Entry) -> None:
    """Store an entry, then trim the folder to its bound."""
    root = folder()
    temporary = ""
    try:
        root.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=root, suffix=".tmp")
        with os.fdopen(handle, "wb") as f:
            f.write(_encode(entry))
        os.replace(temporary, root / (key + SUFFIX))
        _trim(root)
    except OSError as e:
        _warn("cannot be written", e)
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _encode(entry: Entry) -> bytes:
    head = json.dumps({"meta": entry.meta, "sizes": [len(o) for o in entry.objects]}).encode()
    body = len(head).to_bytes(8, "little") + head + b"".join(entry.objects)
    return MAGIC + hashlib.sha256(body).digest() + body


def _decode(data: bytes) -> Entry:
    start = len(MAGIC) + 32
    if data[: len(MAGIC)] != MAGIC:
        raise ValueError("not an entry")
    body = data[start:]
    if hashlib.sha256(body).digest() != data[len(MAGIC) : start]:
        raise ValueError("wrong checksum")
    size = int.from_bytes(body[:8], "little")
    head = json.loads(body[8 : 8 + size])
    objects, at = [], 8 + size
    for n in head["sizes"]:
        objects.append(body[at : at + n])
        at += n
    return Entry(head["meta"], objects)


def _trim(root: Path) -> None:
    """Remove the least recently used entries beyond the bound."""
    files = []
    for path in root.glob("*" + SUFFIX):
        with contextlib.suppress(OSError):
            stat = path.stat()
            files.append((stat.st_mtime, stat.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files, key=lambda f: f[0]):
        if total <= limit():
            break
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size
