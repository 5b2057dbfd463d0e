# mypy: allow-untyped-calls
"""The processes that share tensors by rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed
from torch import Tensor
from torch.autograd.function import once_differentiable

from ._pelton import ConfigurationError


class Ranks:
    """The processes of a group. Alone, each call is free."""

    def __init__(self, group: Any, rank: int, size: int) -> None:
        self.group, self.rank, self.size = group, rank, size

    @staticmethod
    def of(group: Any) -> Ranks | None:
        """Those of a process group, or of the default one for True; none if this process is alone."""
        if group is None or group is False:
            return None
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            raise ConfigurationError("`group` needs torch.distributed.init_process_group() first; alone, leave it out")
        group = None if group is True else group
        ranks = Ranks(group, distributed.get_rank(group), distributed.get_world_size(group))
        return None if ranks.size == 1 else ranks

    def __deepcopy__(self, memo: Any) -> Ranks:
        return self

    def share(self, count: int) -> range:
        return range(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def sum(self, tensor: Tensor) -> Tensor:
        torch.distributed.all_reduce(tensor, group=self.group)
        return tensor

    def max(self, tensor: Tensor) -> Tensor:
        torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MAX, group=self.group)
        return tensor

    def gather(self, rows: Tensor) -> list[Tensor]:
        """The rows of every rank, which may give different numbers of them."""
        lengths = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(self.size)]
        torch.distributed.all_gather(lengths, torch.full_like(lengths[0], len(rows)), group=self.group)
        counts = torch.cat(lengths).tolist()
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows
        found = [torch.empty_like(padded) for _ in range(self.size)]
        torch.distributed.all_gather(found, padded, group=self.group)
        return [part[:count] for part, count in zip(found, counts, strict=True)]

    def every(self, rows: Tensor) -> Iterator[Tensor]:
        """The rows of one rank after the other, on all ranks; only one rank's are in memory at once."""
        counts = [len(part) for part in self.gather(rows.new_zeros(len(rows), 0))]
        for rank, count in enumerate(counts):
            part = rows.contiguous() if rank == self.rank else rows.new_empty(count, *rows.shape[1:])
            source = rank if self.group is None else torch.distributed.get_global_rank(self.group, rank)
            torch.distributed.broadcast(part, source, group=self.group)
            yield part


class Gathered(torch.autograd.Function):
    """The rows of all ranks. The gradient is this rank's part of the sum over ranks, times their number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks) -> Tensor:
        every = ranks.gather(x)
        ctx.ranks, ctx.first, ctx.count = ranks, sum(map(len, every[: ranks.rank])), len(x)
        return torch.cat(every)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_all: Tensor) -> tuple[Tensor, None]:
        by_all = ctx.ranks.sum(by_all.contiguous())
        return by_all[ctx.first : ctx.first + ctx.count] * ctx.ranks.size, None
