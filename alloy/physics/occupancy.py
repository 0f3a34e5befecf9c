"""Rows for the contacts there are, in models with many more pairs than ever touch at once.

A model of hundreds of pairs has thousands of constraint rows, all but a few of which are zero. An
eager step on the CPU looks at how many contacts each world has, and takes for it the least number
of a short ladder that is enough (`io_selection.ladder`). Nothing is left out: the result is that of
all rows. Every number that some world needs is computed for all worlds, each of which takes its
own: how torch sums depends on how many it sums for, and no world may depend on its neighbours.
Traced programs and GPUs have rows for all contacts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from alloy.math import where_worlds
from alloy.ops import control
from alloy.physics.layout import Selection
from alloy.physics.model import Data, Model, present

ROWS = ("efc_J", "efc_pos", "efc_kip", "efc_D", "efc_aref", "contact_chosen")  # differ in shape


def by_occupancy(m: Model, d: Data, stages: Callable[[Model, Data], Data]) -> Data:
    """`stages(m, d)`, from constraint rows on, with as many rows as each world needs.

    Args:
        m: the model.
        d: with contacts.
        stages: fills in derived fields of every world by itself.

    Returns:
        What `stages` returns, without the rows themselves.
    """
    ladder: tuple[Selection, ...] = m.derived["ladder"]
    if not ladder or m.selection is not None or control.traced():
        return stages(m, d)
    rung, out = _rungs(m, d, ladder), replace(d, **dict.fromkeys(ROWS))
    for k in control.values(rung, len(ladder) + 1):
        chosen = ladder[k] if k < len(ladder) else None
        found = stages(replace(m, selection=chosen), d)
        for f in present(found):
            new, old = getattr(found, f.name), getattr(out, f.name)
            if f.name not in (*ROWS, "contact_dropped") and new is not old:
                mixed = new if old is None else where_worlds(rung == k, new, old)
                out = replace(out, **{f.name: mixed})
    return out


def _rungs(m: Model, d: Data, ladder: tuple[Selection, ...]) -> Tensor:
    """The first rung (W,) with room for each world's contacts; behind the last: all rows."""
    pushing = d.contact_dist < m.con_margin
    rung = torch.zeros(len(d.qpos), dtype=torch.int64, device=d.qpos.device)
    for k in range(len(ladder[0].groups)):
        room = torch.tensor([selection.groups[k][1] for selection in ladder], device=rung.device)
        count = pushing[:, ladder[0].groups[k][0]].sum(-1)
        rung = torch.maximum(rung, torch.searchsorted(room, count))
    return rung
