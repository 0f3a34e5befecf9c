"""How a simulation is: which worlds are in trouble, what memory it takes, and of which device."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from alloy.guard import Guard
from alloy.physics.model import Data, Model, field_shape, tensor_fields

if TYPE_CHECKING:
    from alloy.sim import Simulator


class SimulationError(RuntimeError):
    """Raised under strict=True when a world is invalid or contacts found no slot."""


class Health(NamedTuple):
    """What each world has been through since its reset; [W] each."""

    invalid: Tensor  # bool: turned NaN or larger than 1e10, stands still until its reset
    bad_ctrl: Tensor  # int64: control steps whose controls counted as zero
    dropped_contacts: Tensor  # int64: contacts of all physics steps that found no slot
    solver_iterations: Tensor  # int64: of the last substep


class SolverStatistics(NamedTuple):
    """How the constraint solver fares in the present state, with the present inputs; [W] each."""

    iterations: Tensor  # int64: of Newton's method, from the last acceleration
    gradient: Tensor  # of what it minimises where it ends, in units of its tolerance
    constraints: Tensor  # int64: rows that hold


def solver_statistics(sim: Simulator) -> SolverStatistics:
    """See `Simulator.solver_statistics`."""
    m, d = sim.model, sim.at("acceleration")
    left = (d.M @ d.qacc.unsqueeze(-1)).squeeze(-1) - d.qfrc_smooth - d.qfrc_constraint
    gradient = torch.linalg.vector_norm(left, dim=-1) / (m.meaninertia * max(1, m.nv))
    active = d.efc_active if m.nefc else torch.zeros_like(left, dtype=torch.bool)
    return SolverStatistics(d.solver_niter.clone(), gradient, active.sum(-1))


def most_contacts(m: Model, d: Data) -> int:
    """Most contacts of one condim that any world has, within their margins."""
    if not m.ncon:
        return 0
    near = d.contact_dist < m.con_margin
    dims = torch.tensor(m.derived["contact"].dim, device=near.device)
    return max(int(near[:, dims == dim].sum(1).max()) for dim in dims.unique())


def suggest_capacity(sim: Simulator, steps: int) -> int:
    """See `Simulator.suggest_capacity`."""
    state, strict, most = sim.state(), sim.strict, 1
    try:
        sim.strict = False
        for _ in range(steps):
            most = max(most, most_contacts(sim.model, sim.at("position")))
            sim.step()
        most = max(most, most_contacts(sim.model, sim.at("position")))
    finally:
        sim.strict = strict
        sim.load_state(state)
    return math.ceil(1.5 * most)


def raise_if_unhealthy(guard: Guard, time: Tensor) -> None:
    """Look at the flags of all worlds, whose times are [W].

    Raises:
        SimulationError: a world is invalid, or contacts found no slot.
    """
    worlds, count = guard.invalid.nonzero().flatten().tolist(), len(time)
    if worlds:
        raise SimulationError(
            f"worlds {worlds[:20]} ({len(worlds)} of {count}) turned non-finite; the first stands "
            f"at time {time[worlds[0]].item():g} s. Reset them, or build with strict=False to go "
            f"on with the others"
        )
    worlds = guard.dropped.nonzero().flatten().tolist()
    if worlds:
        raise SimulationError(dropped_message(worlds, count))


def dropped_message(worlds: list[int], count: int) -> str:
    """What strict=True says of worlds with contacts that found no slot."""
    return (
        f"in worlds {worlds[:20]} ({len(worlds)} of {count}) there are more contacts than slots, "
        f"and some are left out: raise max_contacts (see suggest_capacity), or where a shape lies "
        f"on a height field take a coarser field or a smaller shape; strict=False goes on with the "
        f"nearest and outermost contacts"
    )


def memory_report(groups: dict[str, list[Tensor | None]]) -> dict[str, int]:
    """Bytes of the memory behind each group of tensors, and their total; shared memory counts once.

    What a group shares with an earlier one counts there.
    """
    seen: set[int] = set()
    report = {}
    for group, tensors in groups.items():
        storages = {t.untyped_storage().data_ptr(): t for t in tensors if t is not None}
        new = storages.keys() - seen
        report[group] = sum(storages[at].untyped_storage().nbytes() for at in new)
        seen |= new
    return report | {"total": sum(report.values())}


def bytes_per_world(m: Model) -> int:
    """Bytes of one world's Data with every field computed."""
    size = {"int": 8, "bool": 1, "float": m.qpos0.element_size()}
    return sum(
        math.prod(field_shape(m, f)) * size[f.metadata["dtype"]] for f in tensor_fields(Data)
    )


def require_device(device: torch.device | str | None) -> torch.device:
    """A device as torch knows it, with its index; None is torch's own default device.

    Raises:
        ValueError: torch knows no such device, or it holds no values.
        RuntimeError: it is not there.
    """
    try:
        kind = None if device is None else torch.device(device).type
    except (RuntimeError, TypeError):
        raise ValueError(
            f"device must be 'cpu', 'cuda' or another of torch's, not {device!r}"
        ) from None
    if kind == "meta":
        raise ValueError("device 'meta' holds no values to simulate; use 'cpu' or 'cuda'")
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).partition("\n")[0].partition(". ")[0]
        raise RuntimeError(f"device {str(device)!r} is not there: {why}. Use 'cpu'") from error


def require_memory(m: Model, worlds: int) -> None:
    """See that a step of so many worlds fits: it reads one Data, writes one, and works in a third.

    Raises:
        MemoryError: naming what is needed, what is there, and how many worlds fit.
    """
    device = m.qpos0.device
    available = _available(device)
    each = 3 * bytes_per_world(m)
    if available is not None and each * worlds > available:
        raise MemoryError(
            f"{worlds} worlds of this model need about {each * worlds / 2**30:.1f} GiB on {device} "
            f"and {available / 2**30:.1f} GiB are free; build with at most {available // each} "
            f"worlds, or with dtype=torch.float32 if this is float64."
        )


def _available(device: torch.device) -> int | None:
    """Free bytes of the device, None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "cpu" and "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", {}):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None
