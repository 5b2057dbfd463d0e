# mypy: allow-untyped-calls, disable-error-code="arg-type, assignment, call-arg, call-overload, index, list-item, return-value"
# (PyTorch 1.13 has comparisons and sums of tensors return numbers.)
"""What a rank of a head on a device keeps: its rows with their momentum, its part of the graph, and its group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch import Tensor

from ._device_steps import Table, woken

#: Rows with less momentum than this count as at rest.
_REST = 1e-12


class Ranks:
    """The processes that share a head. Alone, each call is free."""

    def __init__(self, group: Any, rank: int, size: int) -> None:
        self.group, self.rank, self.size = group, rank, size

    def __deepcopy__(self, memo: Any) -> Ranks:
        return self

    def share(self, count: int) -> range:
        return range(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def sum(self, tensor: Tensor) -> Tensor:
        if self.size > 1:
            torch.distributed.all_reduce(tensor, group=self.group)
        return tensor

    def max(self, tensor: Tensor) -> Tensor:
        if self.size > 1:
            torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MAX, group=self.group)
        return tensor

    def gather(self, rows: Tensor) -> list[Tensor]:
        """The rows of every rank, which may give different numbers of them."""
        if self.size == 1:
            return [rows]
        lengths = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(self.size)]
        torch.distributed.all_gather(lengths, torch.full_like(lengths[0], len(rows)), group=self.group)
        counts = torch.cat(lengths).tolist()
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows
        every = [torch.empty_like(padded) for _ in counts]
        torch.distributed.all_gather(every, padded, group=self.group)
        return [rows[:count] for rows, count in zip(every, counts, strict=True)]

    def passed_on(self, rows: Tensor, length: int) -> Tensor:
        """What the rank before this one has, of this length; the rank after this one gets ``rows``."""
        came = rows.new_empty(length, *rows.shape[1:])
        distributed = torch.distributed
        at = [rank if self.group is None else distributed.get_global_rank(self.group, rank) for rank in range(self.size)]
        towards, whence = at[(self.rank + 1) % self.size], at[self.rank - 1]
        sends = distributed.P2POp(distributed.isend, rows, towards, self.group)
        receives = distributed.P2POp(distributed.irecv, came, whence, self.group)
        for request in distributed.batch_isend_irecv([sends, receives]):
            request.wait()
        return came


class Rows:
    """The weights of one rank's classes and their momentum, ``[classes, dim]`` (``pelton_softmax::ClassRows``). A row that
    takes no part in a step moves with its momentum when it is used again."""

    def __init__(self, weights: Tensor) -> None:
        self.weights = weights
        #: AdamW's means of the gradients, in addition to those of their squares and the steps of each row, ``[classes, 1]``.
        self.velocity: Tensor | None = None
        self.squares: Tensor | None = None
        self.steps: Tensor | None = None
        self.seen = torch.zeros(len(weights), dtype=torch.int32, device=weights.device)
        # Indexed by the step that a row waits for (the last is the next): it moves by `moved` · v, and v is scaled by `kept`.
        self.moved, self.kept = np.zeros(1, np.float32), np.ones(1, np.float32)
        self.waits = torch.tensor([[0.0], [1.0]], device=weights.device)
        self.now = 0

    @property
    def table(self) -> Table:
        return self.weights, self.velocity, self.waits, self.seen, self.squares, self.steps

    def make_room(self, has_momentum: bool, is_adam: bool) -> None:
        """Room for what a step remembers. A velocity is not a mean of gradients: what another rule left is taken to its end
        and forgotten."""
        if is_adam == (self.squares is None):
            self.settle()
            self.velocity = self.squares = self.steps = None
        if (has_momentum or is_adam) and self.velocity is None:
            self.velocity = torch.zeros(self.weights.shape, device=self.weights.device)
            if is_adam:
                self.squares, self.steps = torch.zeros_like(self.velocity), torch.zeros_like(self.velocity[:, :1])

    def settle(self) -> None:
        """Moves all rows as far as they have come in the steps that they waited."""
        if self.velocity is not None:
            for rows in torch.arange(len(self.weights), device=self.weights.device).split(1 << 18):
                moved, velocity = woken(self.table, rows)
                part = slice(int(rows[0]), int(rows[-1]) + 1)
                self.weights[part], self.velocity[part] = moved.to(self.weights.dtype), velocity
        self.seen.fill_(self.now)

    def next_step(self, momentum: float | None, along: float) -> None:
        """Ends a step: rows that took no part have waited for one more, without momentum where they are."""
        moving = self.kept[: self.now + 1] > np.float32(_REST)
        rests = np.flatnonzero(~moving)
        tail = slice(int(rests[-1]) + 1 if len(rests) else 0, self.now + 1)
        if momentum is not None:
            self.kept[tail] *= np.float32(momentum)
            self.moved[tail] += np.float32(along) * self.kept[tail]
        self.now += 1
        if self.now == len(self.kept):
            self.moved = np.concatenate([self.moved, np.zeros(self.now, np.float32)])
            self.kept = np.concatenate([self.kept, np.ones(self.now, np.float32)])
            self.waits = torch.from_numpy(np.stack([self.moved, self.kept])).to(self.waits.device)
        else:
            tail = slice(tail.start, self.now + 1)
            self.waits[:, tail] = torch.from_numpy(np.stack([self.moved[tail], self.kept[tail]]))


@dataclass
class Graph:
    """Of every class of all ranks, those of its nearest classes that are this rank's (Song et al., section 3.2.3)."""

    k: int
    #: The nearest classes of this rank's classes, ``[classes, k]``, nearest first, beginning with the class itself.
    ids: Tensor
    #: The start of the neighbours of each class of all ranks, their rows, and their indices among its nearest.
    starts: Tensor
    rows: Tensor
    places: Tensor

    @staticmethod
    def divide(ids: Tensor, own: range, ranks: Ranks) -> Graph:
        everything = torch.cat(ranks.gather(ids))
        is_here = (everything >= own.start) & (everything < own.stop)
        counts = is_here.sum(1)
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        places = torch.arange(ids.shape[1], device=ids.device, dtype=torch.int32).expand_as(everything)
        return Graph(ids.shape[1], ids, starts, (everything[is_here] - own.start), places[is_here])

    def near(self, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows and places of the neighbours of these classes, and which of them are here, ``[labels, k]``."""
        if len(self.rows) == 0:
            none = labels.new_zeros(len(labels), 1)
            return none, none, none.bool()
        at = self.starts[labels][:, None] + torch.arange(self.k, device=labels.device)
        is_here = at < self.starts[labels + 1][:, None]
        at = at.clamp(max=len(self.rows) - 1)
        return self.rows[at].long(), self.places[at].long(), is_here
