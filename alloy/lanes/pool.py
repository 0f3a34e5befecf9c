"""A small persistent pool of threads that run one native function with the GIL released."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


class Pool:
    """`extra` threads besides the caller's own; all of them run the same job at once."""

    def __init__(self, extra: int) -> None:
        """Start the threads; they sleep until there is a job and never keep the process alive."""
        self.extra = extra
        self.lock = threading.Lock()
        self.job: Callable[[int], None] = lambda _: None
        self.start = [threading.Lock() for _ in range(extra)]
        self.done = [threading.Lock() for _ in range(extra)]
        for i in range(extra):
            self.start[i].acquire()
            self.done[i].acquire()
            threading.Thread(target=self._work, args=(i,), daemon=True, name=f"lanes-{i}").start()

    def _work(self, i: int) -> None:
        while True:
            self.start[i].acquire()
            try:
                self.job(i + 1)
            finally:
                self.done[i].release()

    def run(self, job: Callable[[int], None], threads: int) -> None:
        """Call job(k) for k in 0 .. threads - 1, each in a thread of its own, and wait."""
        n = min(threads - 1, self.extra)
        if n <= 0:
            job(0)
            return
        with self.lock:
            self.job = job
            for i in range(n):
                self.start[i].release()
            try:
                job(0)
            finally:
                for i in range(n):
                    self.done[i].acquire()


_POOLS: dict[int, Pool] = {}
_GUARD = threading.Lock()


def pool(threads: int) -> Pool:
    """The shared pool for this many threads, caller included."""
    with _GUARD:
        if threads not in _POOLS:
            _POOLS[threads] = Pool(threads - 1)
        return _POOLS[threads]


def default_threads() -> int:
    """Cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    _POOLS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
