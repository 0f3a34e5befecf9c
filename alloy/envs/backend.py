"""The edge of an environment: tensors in and out as torch, tensordict or numpy, converted once.

Whatever leaves is a copy that nothing writes again; whatever comes in is copied before it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

BACKENDS = ("torch", "tensordict", "numpy")

Tree = Tensor | Mapping[str, Any]  # a tensor, or a dict of trees by name


def _torch(tree: Tree, worlds: int) -> Any:
    """A contiguous copy of every tensor of a tree."""
    if isinstance(tree, Mapping):
        return {name: _torch(value, worlds) for name, value in tree.items()}
    return tree.detach().clone(memory_format=torch.contiguous_format)


def _numpy(tree: Tree, worlds: int) -> Any:
    if isinstance(tree, Mapping):
        return {name: _numpy(value, worlds) for name, value in tree.items()}
    return tree.detach().to("cpu", copy=True, memory_format=torch.contiguous_format).numpy()


def _tensordict(tree: Tree, worlds: int) -> Any:
    if not isinstance(tree, Mapping):
        return _torch(tree, worlds)
    from tensordict import TensorDict  # which takes a second to import

    values = {name: _tensordict(value, worlds) for name, value in tree.items()}
    return TensorDict(values, batch_size=[worlds])


def exporter(backend: str) -> Callable[[Tree, int], Any]:
    """The function that turns a tree of tensors [W, ...], and W, into what leaves the environment.

    Raises:
        ValueError: an unknown backend.
    """
    known = {"torch": _torch, "tensordict": _tensordict, "numpy": _numpy}
    if backend not in known:
        raise ValueError(f"backend must be one of {list(BACKENDS)}, not {backend!r}")
    return known[backend]


def import_action(
    action: Any, shape: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """An action of any backend as a new tensor [W, A]; the caller's array is never kept or changed.

    Raises:
        ValueError: a wrong shape, kind of number or device; naming expected and received.
    """
    if hasattr(action, "batch_size") and not isinstance(action, Tensor):  # a TensorDict
        if "action" not in action.keys():
            raise ValueError(
                f"a TensorDict action needs the key 'action'; it has {[*action.keys()]}"
            )
        action = action["action"]
    if isinstance(action, Tensor):
        if action.device != device:
            raise ValueError(
                f"action must be on device {device}, received {action.device}; "
                f"move it with action.to({str(device)!r})"
            )
        kind = str(action.dtype)
        numeric = action.dtype != torch.bool and not action.dtype.is_complex
    else:
        try:
            action = np.asarray(action)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"action must be an array of shape {shape}, received {type(action).__name__} "
                f"that is none: {error}"
            ) from error
        kind = f"numpy {action.dtype}"
        numeric = action.dtype.kind in "fiu"
    if tuple(action.shape) != shape:
        raise ValueError(
            f"action must have shape {shape}, one row per world and one column per action, "
            f"received {tuple(action.shape)}"
        )
    if not numeric:
        raise ValueError(f"action must hold real numbers (float or integer), received {kind}")
    if isinstance(action, np.ndarray):
        action = torch.from_numpy(
            action.astype(np.float64 if dtype == torch.float64 else np.float32)
        )
    # world axis last in memory, as everything of the physics: a compiled step reads it in place
    kept = torch.empty(shape[::-1], device=device, dtype=dtype).T
    return kept.copy_(action.detach())


def import_mask(mask: Any, worlds: int, device: torch.device) -> Tensor:
    """A reset mask of any backend as a bool tensor [W].

    Raises:
        ValueError: a wrong shape, kind or device, or no world selected.
    """
    mask = mask if isinstance(mask, Tensor) else torch.from_numpy(np.array(mask))
    if tuple(mask.shape) != (worlds,) or mask.dtype != torch.bool:
        raise ValueError(
            f"options['reset_mask'] must be bool of shape ({worlds},), "
            f"received {mask.dtype} of shape {tuple(mask.shape)}"
        )
    if not mask.any():
        raise ValueError("options['reset_mask'] selects no world; at least one must be True")
    return mask.to(device=device, copy=True)
