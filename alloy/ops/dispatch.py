"""Whether an op runs its kernel: on a GPU, where no derivative is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_forced: bool | None = None


def by_kernel(*tensors: Tensor) -> bool:
    """Whether the kernel of an op takes these arguments.

    Kernels have no derivatives, and torch.compile traces the reference: both of these run the
    reference on a GPU too.
    """
    if torch.compiler.is_compiling():
        return False
    if not (tensors[0].is_cuda if _forced is None else _forced):
        return False
    return not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))


@contextmanager
def kernels(on: bool) -> Iterator[None]:
    """Within, every op that has a kernel runs it whatever the device, or none does.

    For tests: on CPU tensors kernels run in Triton's interpreter.
    """
    global _forced
    before, _forced = _forced, on
    try:
        yield
    finally:
        _forced = before
