# mypy: allow-subclassing-any, allow-untyped-calls
"""Which classes take part in a step of `pelton.partial_cross_entropy`.

A chooser is a module: ``rows, correction = chooser(features, target, weight)`` gives the rows that take part, ascending, the
targets among them, and what is added to their logits, so that sums over all classes are estimated without bias. It computes on
the device of the weights, and waits for nothing. Draws follow from ``seed`` and the number of the step, which is part of its
``state_dict()``.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import _pelton
from ._keyed import MASK, NAMES, is_compiling, mix, mixed, shifted, signed
from ._pelton import ConfigurationError
from ._ranks import Ranks


class Chooser(torch.nn.Module):
    """What choosers have in common: a share of the classes, and draws that follow from ``seed`` and the step."""

    step: Tensor

    def __init__(self, classes: int, budget: float = 0.1, seed: int = 0) -> None:
        super().__init__()
        if classes < 1 or not 0 < budget <= 1:
            raise ConfigurationError(f"{classes} classes and the budget {budget}: give at least one class, and a share above 0 and up to 1")
        self.classes, self.budget, self.seed = classes, budget, seed
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def extra_repr(self) -> str:
        return f"classes={self.classes}, budget={self.budget}, seed={self.seed}"

    def _check(self, target: Tensor, weight: Tensor) -> int:
        """How many rows take part: the budget, and at least the targets and a tenth of the budget besides, so that the classes
        which are no targets have some to stand for them."""
        if len(weight) != self.classes:
            raise ConfigurationError(f"weight has {len(weight)} rows, and the chooser was made for {self.classes} classes")
        wanted, count = math.ceil(self.budget * self.classes), target.numel()
        others = math.ceil(wanted / 10)
        if count + others > wanted and target.device.type == "cpu" and not is_compiling():
            # Elsewhere it would have to be waited for.
            count = len(target.unique())
            if count + others > wanted and wanted < self.classes:
                warnings.warn(
                    f"{count} targets nearly fill the budget of {wanted} classes, so that {min(self.classes, count + others)} take part; "
                    "give a larger budget or smaller batches",
                    stacklevel=4,
                )
        return min(self.classes, max(wanted, count + others))

    def _uniform(self, device: torch.device) -> Tensor:
        """A number above 0 and below 1 for each class, by the seed and the step."""
        key = self.step.to(device) * signed(0x9E3779B97F4A7C15) + signed(mix(self.seed & MASK ^ 0x63686F73))
        numbers = torch.arange(self.classes, device=device) * signed(0xD1342543DE82EF95)
        uniform = shifted(mixed(numbers + key), 11).double()
        if self.training:
            self.step += 1
        return (uniform + 0.5) * (1 / NAMES)


class Sampled(Chooser):
    """The targets, and others drawn evenly up to the share ``budget`` of all ``classes`` (An et al., "Partial FC", 2021; here
    with the correction by which the sum over all classes is estimated without bias; ``correct=False`` is the published form).
    """

    def __init__(self, classes: int, budget: float = 0.1, *, correct: bool = True, seed: int = 0) -> None:
        super().__init__(classes, budget, seed)
        self.correct = correct

    def forward(self, features: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor | None]:
        most = self._check(target, weight)
        keys = self._uniform(weight.device).float()
        keys[target.flatten()] = -1.0
        return _lowest(keys, most, self.classes, self.correct)


class Knn(Chooser):
    """The targets, the ``k`` nearest classes of each, nearest first, and even draws, up to ``budget``; the share ``drawn`` of it
    is always drawn (KNN softmax: Song et al., KDD 2020, where ``drawn`` is 0). ``correct`` is that of `Sampled`.

    Call `rebuild` with the weights before the first step and now and then; random first weights have no useful neighbours. With
    ``group``, as `pelton.partial_cross_entropy` has it, ``classes`` are those of this rank, and the nearest are found among those of
    all ranks; each rank keeps its own of them.
    """

    graph: Tensor

    def __init__(
        self,
        classes: int,
        k: int = 10,
        budget: float = 0.1,
        drawn: float = 0.5,
        *,
        correct: bool = True,
        seed: int = 0,
        group: Any = None,
    ) -> None:
        super().__init__(classes, budget, seed)
        if not 0 < k < 1 << 15 or not 0 <= drawn <= 1:
            raise ConfigurationError(f"k={k} and drawn={drawn}: k is from 1 to 32767, and drawn a share from 0 to 1")
        self.k, self.drawn, self.correct = k, drawn, correct
        self._ranks = Ranks.of(group)
        self.register_buffer("graph", torch.zeros(0, k, dtype=torch.int32))
        # Of all classes, one after the other: where their neighbours on this rank begin, and these, nearest first.
        self._divided: tuple[Tensor, Tensor, Tensor] | None = None

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *others: object) -> None:
        graph = state_dict.get(prefix + "graph")
        if graph is not None and graph.shape != self.graph.shape:
            self.graph = torch.zeros_like(graph, device=self.graph.device)
        self._divided = None
        super()._load_from_state_dict(state_dict, prefix, *others)

    @torch.no_grad()
    def rebuild(self, weight: Tensor) -> None:
        """Finds the ``k`` rows of the largest cosine to each row, itself among them, exactly; among the rows of all ranks, which
        all call this. The cost is 2·classes²·d operations, and memory for 2²⁴ cosines."""
        ranks, self._divided = self._ranks, None
        if ranks is None and weight.device.type == "cpu" and weight.dtype == torch.float32:
            k = min(self.k, len(weight))
            found = _pelton.nearest_classes(np.from_dlpack(weight.detach().contiguous()), k, torch.get_num_threads())
            self.graph = torch.from_numpy(found).int()
            return
        unit = torch.nn.functional.normalize(weight.detach().float(), dim=1)
        best = unit.new_zeros(len(unit), 0), torch.zeros(len(unit), 0, dtype=torch.int64, device=unit.device)
        first = 0
        for rank, others in enumerate([unit] if ranks is None else ranks.every(unit)):
            parts, at = [], 0
            for rows in unit.split(max(1, (1 << 24) // max(1, len(others)))):
                cosines = rows @ others.t()
                if ranks is None or rank == ranks.rank:
                    # Rounding could have another before the row itself.
                    cosines.diagonal(at).fill_(math.inf)
                parts.append(cosines.topk(min(self.k, len(others)), dim=1))
                at += len(rows)
            scores, ids = (torch.cat([getattr(part, of) for part in parts]) for of in ("values", "indices"))
            scores, ids = torch.cat([best[0], scores], 1), torch.cat([best[1], ids + first], 1)
            order = scores.topk(min(self.k, scores.shape[1]), dim=1).indices
            best = scores.gather(1, order), ids.gather(1, order)
            first += len(others)
        self.graph = best[1].int()

    def _near(self, target: Tensor, everyone: Tensor | None) -> tuple[Tensor, Tensor]:
        """Neighbours of these classes among the rows of this rank, and how near they are: 0 is the class itself; 1 << 15 is none."""
        if self._ranks is None or everyone is None:
            near = self.graph.to(target.device)[target.flatten()].long()
            return near, torch.arange(near.shape[1], device=near.device).expand(near.shape)
        if self._divided is None:
            first = sum(map(len, self._ranks.gather(self.graph)[: self._ranks.rank]))
            rows, places, counts = [], [], []
            for graph in self._ranks.every(self.graph):
                is_here = (graph >= first) & (graph < first + self.classes)
                rows.append(graph[is_here].long() - first)
                places.append(torch.arange(graph.shape[1], device=graph.device).expand(graph.shape)[is_here])
                counts.append(is_here.sum(1))
            none = rows[0].new_zeros(1)
            starts = torch.cat([none, torch.cat(counts).cumsum(0)])
            self._divided = starts, torch.cat([*rows, none]), torch.cat([*places, none])
        starts, all_rows, all_places = self._divided
        everyone = everyone[everyone >= 0]
        at = starts[everyone][:, None] + torch.arange(self.k, device=everyone.device)
        is_one = at < starts[everyone + 1][:, None]
        at = at.clamp(max=len(all_rows) - 1)
        return torch.where(is_one, all_rows[at], 0), torch.where(is_one, all_places[at], 1 << 15)

    def forward(self, features: Tensor, target: Tensor, weight: Tensor, everyone: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        most = self._check(target, weight)
        if len(self.graph) != self.classes:
            raise ConfigurationError("the chooser has no graph; call rebuild(weight) before the first step")
        keys = self._uniform(weight.device).float()
        near, place = self._near(target, everyone)
        # Below 0, and the lower the nearer.
        place = torch.where(place < 1 << 15, place.float() - 2 * self.k, 0.0)
        by_place = torch.zeros_like(keys).scatter_reduce_(0, near.flatten(), place.flatten(), "amin")
        by_place[target.flatten()] = -2.0 * self.k
        # As many of the nearest as the budget leaves besides the draws, ties by the draws.
        kept = max(min(self.classes, target.numel()), most - round(self.drawn * self.budget * self.classes))
        near_rows = (by_place + 0.5 * keys).topk(min(kept, most), largest=False).indices
        chosen = by_place[near_rows] < 0
        keys[near_rows] = torch.where(chosen, -1.0, keys[near_rows])
        return _lowest(keys, most, self.classes, self.correct)


class Near(Chooser):
    """The targets, and others up to ``budget`` drawn by how likely they are: in proportion to a class's largest share of any
    example's softmax over all classes, and a fifth of the chances alike for all.

    Priority sampling (Duffield, Lund and Thorup, 2007): the most likely are always there, and one drawn with a chance of 1 in 5
    counts five times. It multiplies the features with all rows, a third of the operations of a full step; ``scale`` is that of
    the cosines, where the loss has some, and ``bias`` its bias.
    """

    def __init__(self, classes: int, budget: float = 0.1, *, scale: float | None = None, seed: int = 0) -> None:
        super().__init__(classes, budget, seed)
        self.scale = scale
        self.bias: Tensor | None = None

    def forward(self, features: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor | None]:
        most = self._check(target, weight)
        rows, even = weight, 0.2 / self.classes
        if self.scale is not None:
            features, rows = (torch.nn.functional.normalize(of, dim=1) for of in (features, weight))
        largest = torch.zeros(self.classes, device=weight.device)
        for some in features.split(max(1, (1 << 22) // self.classes)):
            logits = (some @ rows.t()).float()
            if self.scale is not None:
                logits *= self.scale
            if self.bias is not None:
                logits += self.bias.detach()
            largest = torch.maximum(largest, logits.softmax(1).amax(0))
        largest[target.flatten()] = 0.0
        chance = 0.8 * largest.double() / largest.sum().clamp(min=1e-30) + even
        priority = chance / self._uniform(weight.device)
        priority[target.flatten()] = math.inf
        if most == self.classes:
            return torch.arange(self.classes, device=weight.device), None
        found = priority.topk(most + 1)
        order, by_row = found.indices[:most].sort().values, found.values[most]
        # One of chance p is drawn if p over its number is above the next one's; if no place is left, none counts.
        correction = torch.where(priority[order].isinf(), 0.0, (by_row / chance[order]).clamp(min=1.0).log())
        return order, correction.float()


def _lowest(keys: Tensor, most: int, classes: int, correct: bool) -> tuple[Tensor, Tensor | None]:
    """The rows of the lowest keys, and what makes those from 0 on stand for all that have such a key."""
    rows = keys.topk(most, largest=False).indices.sort().values
    if not correct:
        return rows, None
    is_drawn = keys[rows] >= 0
    drawn = is_drawn.sum()
    all_drawn = classes - (most - drawn)
    return rows, torch.where(is_drawn, (all_drawn / drawn.clamp(min=1)).log(), 0.0)
