"""Data-parallel training: as many equal processes as torchrun starts, on CPUs or GPUs."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import Tensor
from torch import distributed as dist


@dataclass(frozen=True)
class Processes:
    """This process among those that train together; alone without torchrun."""

    rank: int = 0
    local_rank: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process logs, saves and evaluates."""
        return self.rank == 0

    @staticmethod
    def join(device: torch.device) -> Processes:
        """Meet the others, over gloo for a CPU and NCCL for CUDA devices, if there are any."""
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count == 1:
            return Processes()
        rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        if not dist.is_initialized():
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return Processes(rank, local, count)

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.count == 1:
            return values
        values = values.clone()
        dist.all_reduce(values)
        return values

    def agreed(self, flag: bool, device: torch.device) -> bool:
        """What the leading process says."""
        if self.count == 1:
            return flag
        value = torch.tensor(int(flag), device=device)
        dist.broadcast(value, src=0)
        return bool(value)

    def leave(self) -> None:
        """End the meeting."""
        if self.count > 1 and dist.is_initialized():
            dist.destroy_process_group()
