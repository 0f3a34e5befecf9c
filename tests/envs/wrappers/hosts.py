"""Hooks that fail where a tensor leaves torch, or where Python looks at its values."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class NothingReachesTheHost(TorchDispatchMode):
    """Fails on an operator that brings a tensor's values to Python."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket._qualified_op_name in ("aten::_local_scalar_dense", "aten::nonzero"):
            raise AssertionError(f"{func} looks at a value")
        return func(*args, **(kwargs or {}))


def forbid_arrays(monkeypatch):
    """Until `monkeypatch.undo()`, fail where a tensor becomes an array or a list."""

    def refuse(*args, **kwargs):
        raise AssertionError("a tensor became an array")

    for name in ("numpy", "tolist", "__array__", "cpu"):
        monkeypatch.setattr(torch.Tensor, name, refuse)
