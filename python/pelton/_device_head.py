# mypy: allow-untyped-calls, disable-error-code="arg-type, assignment, call-arg, call-overload, index, list-item, return-value"
# (PyTorch 1.13 has comparisons and sums of tensors return numbers.)
"""The head of :mod:`pelton.heads` in PyTorch operators: the steps of the one in Rust, on the device of the features.

Both take the same steps from the same seed: the same first weights, the same classes, the same loss and gradients up to
rounding. Logits are computed for a chunk of classes at a time and never held for batch × classes (Song et al., KDD 2020,
section 3); a row that takes no part in a step moves with its momentum when it is used again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from . import _device_steps as steps
from ._device_rows import Graph, Ranks, Rows
from ._device_steps import FAR, Margin
from ._keyed import MASK, NAMES, first_weights, mix, mixed, shifted, signed
from ._pelton import ConfigurationError, StateError

#: Products are fast if their number of rows is a multiple of this.
_WHOLE = 64
#: Logits that are computed at once.
_LOGITS = {"cpu": 1 << 22, "cuda": 1 << 27}


@dataclass
class Scored:
    """A batch of all ranks that was scored on this one."""

    #: Features of length 1, ``[batch, dim]``.
    unit: Tensor
    #: Index of each example's own class among the active rows; -1 if another rank has it.
    place: Tensor
    #: log Σ exp of the logits, the share of all other classes, the slope of the margin, and the weight of its loss.
    total: Tensor
    wrong: Tensor
    slope: Tensor
    weight: Tensor

    @staticmethod
    def joined(parts: list[Scored]) -> Scored:
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return Scored(*(torch.cat(column) for column in columns))


class DeviceHead:
    """The calls of ``_pelton.Head``, on tensors of one device."""

    def __init__(
        self,
        size: tuple[int, int],
        kind: tuple[str, dict[str, float]],
        logits: Margin,
        options: tuple[bool, bool],
        seed: int,
        ranks: Ranks,
        device: torch.device,
        precision: torch.dtype,
        class_weights: Tensor | None = None,
    ) -> None:
        (self.classes, self.dim), (self.kind, self.setting), self.logits = size, kind, logits
        self.centre, self.correct_sums = options
        self.seed, self.ranks, self.device, self.precision = seed & MASK, ranks, device, precision
        self.class_weights = class_weights
        self.own = ranks.share(self.classes)
        weights = torch.empty(len(self.own), self.dim, dtype=precision, device=device)
        at = 0
        for block in first_weights(self.seed, self.own, self.dim, device):
            weights[at : at + len(block)] = block.to(precision)
            at += len(block)
        self.rows = Rows(weights)
        self.is_random = True
        self.running: Tensor | None = None
        self.observed: tuple[int, Tensor | None] = (0, None)
        self.graph: Graph | None = None
        self.steps = self.epochs = 0
        self.cursor: tuple[int, ...] = (0, 0)
        self.orders: dict[int, tuple[Tensor, Tensor]] = {}
        self.forgotten = 0
        #: Whether a first batch was compared with the budget.
        self.compared = False
        self.one, self.none = torch.ones(1, device=device), torch.zeros(1, device=device)
        self._begin()

    # The parts of a step, in order.

    def select(self, labels: Tensor) -> None:
        """Chooses the classes of a step for several batches, by the labels of all of them."""
        self._choose(self._labels(labels)[0])
        self.shared = True

    def score(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor | int, Tensor, tuple[int, int]]:
        """The mean loss, how many are right and how many classes took part, the gradient of the features of this rank, and
        the ticket for :meth:`backward`."""
        everything, counts = self._labels(labels)
        if not self.shared:
            self._choose(everything)
        all_features = self._features(features, labels)
        unit, inverse = self._unit_features(all_features, learns=True)
        place, cosine = self._places(everything), self.logits.is_cosine
        best = torch.full((len(everything),), -math.inf, device=self.device)
        state = (best, torch.zeros_like(best), best.new_zeros(len(best), dtype=torch.float64), torch.zeros_like(unit))
        rounded = unit.to(self.precision)
        scaled = (rounded.float() * self.logits.scale).to(self.precision)
        for at, rows, weights, _ in self._chunks(len(everything)):
            state = steps.score(scaled, self.rows.table, rows, weights, place - at, state, cosine)
        best, right, total, gradient = state
        is_here = place >= 0
        with_margin, slope = self.logits.of_target(right)
        slope = torch.where(is_here, slope, torch.zeros_like(slope))
        shift = self.ranks.max(best.clone())
        shrink = (best - shift).exp()
        sums = torch.stack([total * shrink, *torch.where(is_here, torch.stack([with_margin, right]), 0.0 * right).double()])
        others, with_margin, plain = self.ranks.sum(sums)
        loss, wrong, factor = steps.losses(others, with_margin, shift.double())
        mean, wrong, weight = loss.mean(), wrong.float(), torch.full_like(best, 1 / len(everything))
        if self.class_weights is not None:
            weight = self.class_weights[everything]
            # If no example counts, the gradient is 0.
            weight = weight / torch.where(weight.any(), weight.sum(), 1.0)
            mean = (loss * weight).sum()
        scored = Scored(rounded, place, (with_margin + loss).float(), wrong, slope, weight)
        gradient = steps.feature_gradient(
            gradient,
            unit,
            inverse,
            steps.woken(self.rows.table, self._active(place.clamp(min=0)))[0],
            slope * wrong,
            (shrink * factor).float(),
            self.logits.scale * weight,
            cosine,
            self.centre,
        )
        self.scored.append(scored)
        self.went.append(False)
        gradient = self.ranks.sum(gradient)
        first = sum(counts[: self.ranks.rank])
        gradient = gradient[first : first + counts[self.ranks.rank]] * self.ranks.size
        ticket = (self.forgotten, len(self.scored) - 1)
        return mean, (plain > shift).sum(), self.active, gradient, ticket

    def backward(self, ticket: tuple[int, int], factor: Tensor) -> None:
        """Makes the batch of a ticket count in the step, ``factor`` times."""
        forgotten, place = ticket
        if forgotten != self.forgotten:
            raise RuntimeError(
                "this loss belongs to a batch that the head no longer has: call backward() before scoring the next batch, or "
                "choose the classes of all batches of a step together with select()"
            )
        if self.went[place]:
            raise RuntimeError("backward() was already called on this loss, and it counts once in a step")
        self.went[place] = True
        self.scored[place].weight *= factor

    def step(
        self,
        rate: float,
        momentum: float,
        weight_decay: float,
        trust: float | None,
        scale: float | None,
        adam: tuple[float, float, float] | None = None,
    ) -> bool:
        """Moves the weights by all batches that went backward, by their gradients over ``scale``, where it is given; then
        whether they were finite. ``adam`` are β₁, β₂ and ε."""
        if trust is not None:
            raise ConfigurationError("LARS of the class weights is only on the CPU: leave trust=None on a device")
        is_scaled, scale = scale is not None, 1.0 if scale is None else scale
        numbers = (rate, momentum, weight_decay, scale)
        if not all(math.isfinite(x) and x >= 0 for x in numbers) or momentum >= 1 or scale == 0:
            raise ConfigurationError(
                f"learning rate {rate}, momentum {momentum}, weight decay {weight_decay}, scale {scale}: all are at least 0, "
                "momentum is below 1 and the scale above 0"
            )
        went = [part for part, went in zip(self.scored, self.went, strict=True) if went]
        if not went:
            raise RuntimeError("backward() was not called on a loss of this head since its last step; call it first")
        batch = Scored.joined(went)
        if not batch.total.isfinite().all():
            self.forget()
            if is_scaled:
                return False
            raise ValueError("features or their logits are not finite, and no step was taken; lower the learning rate")
        self.rows.make_room(momentum > 0, adam is not None)
        key = signed(mix(mix(self.seed ^ 0x726F756E) ^ self.steps))
        rounding = torch.tensor(key), torch.tensor(self.own.start)
        rates = tuple(map(torch.tensor, (rate, momentum, weight_decay) if adam is None else (rate, weight_decay, *adam)))
        scaled = (batch.unit.float() * self.logits.scale).to(self.precision)
        examples = batch.total, -batch.slope * batch.wrong, batch.weight * (self.logits.scale / scale)
        for at, rows, counts, target in self._chunks(len(batch.place)):
            moved, *remembered = steps.step(
                scaled, batch.unit, self.rows.table, rows, counts, (batch.place - at, *examples), rates, rounding,
                self.logits.is_cosine,
            )
            many = len(range(*target.indices(len(self.own)))) if isinstance(target, slice) else len(target)
            self.rows.weights[target] = moved[:many]
            for kept, new in zip((self.rows.velocity, self.rows.squares, self.rows.steps), remembered, strict=False):
                if kept is not None:
                    kept[target] = new[:many]
            self.rows.seen[target] = self.rows.now + 1
        self.rows.next_step(None if adam else momentum, rate)
        self.is_random = False
        self.steps += 1
        self.forget()
        return True

    def forget(self) -> None:
        """Scored batches that have not changed the weights are not used."""
        self._begin()
        self.forgotten += 1

    def renew(self) -> None:
        """Finds the nearest classes of each class (in a ring between ranks: Song et al., section 3.2.2)."""
        self.settle()
        if self.kind == "knn":
            if self.epochs == 0 and self.is_random:
                # The weights are random, so no class is meaningfully near another: draw classes.
                own = torch.arange(self.own.start, self.own.stop, dtype=torch.int32, device=self.device)
                ids = own[:, None].repeat(1, min(int(self.setting["k"]), self.classes))
            else:
                ids = self._neighbours(int(self.setting["k"]))
            self.graph = Graph.divide(ids, self.own, self.ranks)
        self.epochs += 1

    def settle(self) -> None:
        """Moves all rows as far as their momentum has brought them."""
        self.rows.settle()

    # Before the first step.

    def observe(self, features: Tensor, labels: Tensor, classes: bool) -> None:
        """Looks at examples: for the mean of all, of a head that takes it off, or for those of their classes."""
        everything, _ = self._labels(labels)
        features = self._features(features, labels)
        count, sums = self.observed
        if not classes:
            count += len(features)
            mean = features.mean(0)
            running = mean if self.running is None else self.running
            self.running, self.observed = torch.lerp(running, mean, len(features) / count), (count, sums)
            return
        if sums is None:
            sums = torch.zeros(len(self.own) + 1, self.dim + 1, device=self.device)
        unit, inverse = steps.unit_rows(features if self.running is None else features - self.running, True)
        rows = everything - self.own.start
        rows = torch.where((rows >= 0) & (rows < len(self.own)) & (unit != 0).any(1), rows, len(self.own))
        sums.index_add_(0, rows, torch.cat([unit, torch.ones_like(inverse)[:, None]], 1))
        self.observed = (count, sums)

    def begin_at_means(self) -> int:
        """Makes the mean of each class its weights; returns how many classes have none."""
        self.forget()
        (_, sums), self.observed = self.observed, (0, None)
        if sums is None:
            return self.classes
        means = sums[:-1, :-1] / sums[:-1, -1:].clamp(min=1)
        is_missing = (means == 0).all(1, keepdim=True)
        self.rows = Rows(torch.where(is_missing, self.rows.weights.float(), means).to(self.precision))
        self.graph, self.is_random = None, False
        return int(self.ranks.sum(is_missing.sum()))

    def mean(self) -> Tensor | None:
        """What is taken off the features outside of training; none of a head that does not."""
        if not self.centre:
            return None
        return torch.zeros(1, self.dim, device=self.device) if self.running is None else self.running[None]

    # All classes, without training.

    def evaluate(self, features: Tensor, labels: Tensor) -> tuple[float, int]:
        """The mean loss over all classes, and how many examples are right."""
        everything, _ = self._labels(labels)
        self.settle()
        all_features = self._features(features, labels)
        loss, correct = torch.zeros((), dtype=torch.float64, device=self.device), 0
        for some, label in zip(all_features.split(1024), everything.split(1024), strict=True):
            unit = self._unit_features(some)[0].to(self.precision)
            scaled = (unit.float() * self.logits.scale).to(self.precision)
            place = torch.where((label >= self.own.start) & (label < self.own.stop), label - self.own.start, -1)
            best = torch.full((len(label),), -math.inf, device=self.device)
            state = (best, torch.zeros_like(best), best.new_zeros(len(label), dtype=torch.float64), best.new_zeros(len(label), self.dim))
            for at, rows, counts, _ in self._chunks(len(label), every=True):
                state = steps.score(scaled, self.rows.table, rows, counts, place - at, state, self.logits.is_cosine)
            best, right, total, _ = state
            shift = self.ranks.max(best.clone())
            with_margin = torch.where(place >= 0, torch.stack([self.logits.of_target(right)[0], right]), 0.0 * right).double()
            others, with_margin, plain = self.ranks.sum(torch.stack([total * (best - shift).exp(), *with_margin]))
            loss += steps.losses(others, with_margin, shift.double())[0].sum()
            correct += int((plain > shift).sum())
        return loss.item() / len(everything), correct

    def top(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The scores of the ``k`` best classes of each example of this rank, and their numbers."""
        self._check_width(features)
        self.settle()
        parts = self.ranks.gather(features.float())
        found = []
        for some in torch.cat(parts).split(1024):
            unit = self._unit_features(some)[0].to(self.precision)
            scores, numbers = unit.new_zeros(len(some), 0, dtype=torch.float32), self._numbers(len(some), 0)
            for at, _, _, rows in self._chunks(len(some), every=True):
                products = steps.product(unit, self._unit_rows(rows)[0].to(self.precision).t())
                best = products.topk(min(k, products.shape[1]))
                scores, numbers = _best(
                    torch.cat([scores, best.values], 1), torch.cat([numbers, best.indices + at + self.own.start], 1), k
                )
            every = [torch.cat(self.ranks.gather(part.t())).t() for part in (scores, numbers)]
            found.append(_best(every[0], every[1], k))
        first = sum(map(len, parts[: self.ranks.rank]))
        own = slice(first, first + len(features))
        scores, numbers = (torch.cat(part)[own] for part in zip(*found, strict=True))
        return scores, numbers

    # States.

    def save(self) -> list[tuple[str, int, int, Tensor]]:
        """This rank's rows of all that is saved: name, first row, rows of all ranks, and numbers on the CPU."""
        rows = self.rows
        blocks: list[tuple[str, Tensor]] = [("weights", rows.weights)]
        if rows.velocity is not None:
            waited = torch.stack([(rows.now - rows.seen).float(), *rows.waits[:, rows.seen.long()]], 1)
            blocks += [("velocity", rows.velocity), ("waited", waited)]
        if rows.squares is not None:
            blocks += [("squares", rows.squares), ("steps", rows.steps)]
        if self.graph is not None:
            ids = self.graph.ids.long()
            blocks.append(("neighbours", torch.stack([ids >> 16, ids & 0xFFFF], 2).flatten(1)))
        saved = [(name, self.own.start, self.classes, block.float().cpu()) for name, block in blocks]
        # Values common to all ranks are saved as one row a rank, in 16-bit parts that single precision represents exactly.
        alike = []
        if self.kind != "full":
            parts = [word >> shift & 0xFFFF for word in self.cursor for shift in (0, 16, 32, 48)]
            alike.append(("draws", torch.tensor([parts]).float()))
        mean = self.mean()
        if mean is not None:
            alike.append(("mean", mean.cpu()))
        return saved + [(name, self.ranks.rank, self.ranks.size, row) for name, row in alike]

    def load(self, blocks: list[tuple[str, int, int, Tensor]], steps: int, epochs: int) -> None:
        """Takes this rank's rows out of what was saved on ranks of any number, and goes on from these steps and epochs."""
        alike = {name: rows for name, _, _, rows in blocks if name in ("draws", "mean")}
        known = {name for name, *_ in blocks} & {"weights", "velocity", "waited", "squares", "steps", "neighbours"}
        saved = {name: self._rows_of(name, blocks) for name in known}
        weights = saved.get("weights")
        if weights is None or weights.shape[1] != self.dim:
            raise StateError("weights of the head are missing")
        k = min(int(self.setting.get("k", 0)), self.classes)
        if self.kind == "knn" and "neighbours" in saved and saved["neighbours"].shape[1] != 2 * k:
            raise StateError(f"the state has {saved['neighbours'].shape[1] // 2} neighbours a class, and this head k={k}")
        rows = Rows(weights.to(self.device, self.precision))
        if "velocity" in saved:
            waited = saved["waited"]
            steps_waited = waited[:, 0].int()
            most = int(steps_waited.max())
            rows.velocity = saved["velocity"].to(self.device)
            rows.now, seen = most, most - steps_waited
            rows.moved, rows.kept = np.zeros(most + 1, np.float32), np.ones(most + 1, np.float32)
            rows.moved[seen], rows.kept[seen] = waited[:, 1], waited[:, 2]
            rows.seen = seen.to(self.device)
            rows.waits = torch.from_numpy(np.stack([rows.moved, rows.kept])).to(self.device)
            if "squares" in saved:
                rows.squares, rows.steps = (saved[name].to(self.device) for name in ("squares", "steps"))
        self.rows, self.graph, self.is_random = rows, None, False
        if self.kind == "knn" and "neighbours" in saved:
            ids = saved["neighbours"].long().reshape(len(self.own), -1, 2)
            ids = (ids[:, :, 0] << 16 | ids[:, :, 1]).to(self.device, torch.int32)
            self.graph = Graph.divide(ids, self.own, self.ranks)
        if "draws" in alike:
            parts = [int(part) for part in alike["draws"][0]]
            self.cursor = tuple(sum(part << 16 * at for at, part in enumerate(word)) for word in (parts[:4], parts[4:]))
        if self.centre and "mean" in alike:
            self.running = alike["mean"][0].to(self.device)
        self.steps, self.epochs = steps, epochs
        self.forget()

    @property
    def progress(self) -> tuple[int, int]:
        return self.steps, self.epochs

    def _rows_of(self, name: str, blocks: list[tuple[str, int, int, Tensor]]) -> Tensor:
        pieces = [(first, rows) for other, first, _, rows in blocks if other == name]
        found, at = [], self.own.start
        for first, rows in sorted(pieces, key=lambda piece: piece[0]):
            if first <= at < first + len(rows):
                found.append(rows[at - first : self.own.stop - first])
                at = min(first + len(rows), self.own.stop)
        if at < self.own.stop:
            raise StateError(
                f"the state lacks rows {at} to {self.own.stop - 1} of the {name}; put the states of all ranks together with "
                "pelton.heads.join_states"
            )
        return torch.cat(found)

    # Parts of the above.

    def _begin(self) -> None:
        self.shared = False
        self.scored: list[Scored] = []
        self.went: list[bool] = []
        self.active_rows: Tensor | None = None
        self.row_weights = self.one
        self.active: Tensor | int = self.classes

    def _features(self, features: Tensor, labels: Tensor) -> Tensor:
        """The features of all ranks, in f32."""
        self._check_width(features)
        if len(features) != len(labels):
            raise ValueError(
                f"there are {len(features)} rows of features and {len(labels)} labels; give each row one label"
            )
        return torch.cat(self.ranks.gather(features.float()))

    def _check_width(self, features: Tensor) -> None:
        if features.shape[1] != self.dim:
            raise ValueError(f"rows of features have {features.shape[1]} numbers, but the head takes {self.dim}")

    def _labels(self, labels: Tensor) -> tuple[Tensor, list[int]]:
        """The labels of all ranks, each of them a class, and how many each rank gave."""
        parts = self.ranks.gather(labels.to(self.device, torch.int64))
        everything, counts = torch.cat(parts), list(map(len, parts))
        if len(everything) == 0:
            raise ValueError("there are no examples in the batch")
        wrong = (everything < 0) | (everything >= self.classes)
        if wrong.any():
            example = int(wrong.nonzero()[0])
            label, rank = int(everything[example]), 0
            while example >= counts[rank]:
                example, rank = example - counts[rank], rank + 1
            of_rank = f" of rank {rank}" if len(counts) > 1 else ""
            raise IndexError(
                f"labels[{example}]{of_rank} is {label}; there are {self.classes} classes, 0 to {self.classes - 1}"
            )
        return everything, counts

    def _choose(self, labels: Tensor) -> None:
        if any(self.went):
            raise RuntimeError(
                "backward() was called on a loss of this head: call step() first, or choose the classes of all batches of a step "
                "together with select()"
            )
        self.forget()
        budget = int(self.setting.get("budget", 1.0) * self.classes + 0.5)
        if budget >= self.classes:
            self.cursor = (self.cursor[0] + 1, self.cursor[1])
            return
        if not self.compared:
            own = len(labels.unique())
            if own > 0.8 * budget:
                raise ConfigurationError(
                    f"a batch of {own} classes leaves few of the {budget} that take part in a step to others, which would not be "
                    "learned: raise budget=, or take smaller batches"
                )
            self.compared = True
        if self.kind == "knn":
            if self.graph is None:
                self.renew()
            assert self.graph is not None
            rows, places, is_here = self.graph.near(labels)
        else:
            rows, places = labels[:, None] - self.own.start, torch.zeros_like(labels)[:, None]
            is_here = (rows >= 0) & (rows < len(self.own))
        near, taken = self._taken(rows, places, is_here, budget)
        rest, outside = max(budget - taken, 0), self.classes - taken
        drawn = self._draw(int(max(rest - 2 * math.sqrt(rest), 0) / max(outside, 1) * NAMES))
        # If a row was both taken and drawn, the taken one counts; FAR marks no row.
        both = torch.cat([near, 2 * drawn + 1]).sort().values
        both = both[steps.is_first(both >> 1) & (both < FAR)]
        self.active_rows, is_drawn = both >> 1, (both & 1).bool()
        count = torch.stack([is_drawn.sum(), torch.full((), len(both), device=self.device)])
        count = self.ranks.sum(count)
        self.active = count[1]
        self.row_weights = torch.ones(len(both), device=self.device)
        if self.correct_sums:
            weight = torch.where(count[0] > 0, outside / count[0], 1.0).float()
            self.row_weights = torch.where(is_drawn, weight, self.row_weights)

    def _taken(self, rows: Tensor, places: Tensor, is_here: Tensor, budget: int) -> tuple[Tensor, int]:
        """Twice the rows that are taken for themselves, place by place as long as there is room, among ``FAR``, and how many
        they are on all ranks (``pelton_softmax::Selection``)."""
        k = int(self.setting.get("k", 1))
        row, place, first, counts = steps.keys(rows, places, is_here, k)
        counts = self.ranks.sum(counts).tolist()
        limit = int((1 - self.setting.get("drawn", 1.0)) * budget + 0.5)
        taken, last = counts[0], 0
        while last + 1 < k and taken + counts[last + 1] <= limit:
            last += 1
            taken += counts[last]
        is_taken = first & (place <= last)
        room = limit - taken
        if last + 1 < k and room > 0:
            # At the next distance, take the rows with the smallest names; with the highest bit flipped, signed numbers sort
            # like unsigned ones.
            key = mix(mix(self.seed) ^ self.steps)
            names = mixed((row + self.own.start) ^ signed(key)) ^ -(1 << 63)
            candidates = first & (place == last + 1)
            names = torch.where(candidates, names, (1 << 63) - 1)
            is_taken |= candidates & (names < torch.cat(self.ranks.gather(names)).sort().values[room])
            taken = limit
        return torch.where(is_taken, 2 * row, FAR), taken

    def _draw(self, width: int) -> Tensor:
        """The rows of the classes whose turn comes next: each once in a round."""
        turn, at = self.cursor
        end = at + width
        found = []
        for turn, first, last in ((turn, at, min(end, NAMES)), (turn + 1, 0, end - NAMES)):
            if first < last:
                names, order = self._order(turn)
                begin, stop = torch.searchsorted(names, names.new_tensor([first, last])).tolist()
                found.append(order[begin:stop])
                self.cursor = (turn, last)
        return torch.cat(found) if found else self._numbers(0)

    def _order(self, turn: int) -> tuple[Tensor, Tensor]:
        """The names of this rank's classes in a round, ascending, and their rows."""
        if turn not in self.orders:
            key = signed(mix(mix(self.seed ^ 0x64726177) ^ turn))
            numbers = torch.arange(self.own.start, self.own.stop, device=self.device)
            order = shifted(mixed(numbers ^ key), 11).sort()
            self.orders = {at: kept for at, kept in self.orders.items() if at == turn - 1}
            self.orders[turn] = (order.values, order.indices)
        return self.orders[turn]

    def _numbers(self, *shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=torch.int64, device=self.device)

    def _places(self, labels: Tensor) -> Tensor:
        """Places of the labels' classes among this rank's active rows, -1 for those of other ranks."""
        rows = labels - self.own.start
        is_here = (rows >= 0) & (rows < len(self.own))
        if self.active_rows is None:
            return torch.where(is_here, rows, -1)
        places, is_active = torch.zeros_like(rows), torch.zeros_like(is_here)
        if len(self.active_rows) > 0:
            places = torch.searchsorted(self.active_rows, rows).clamp(max=len(self.active_rows) - 1)
            is_active = is_here & (self.active_rows[places] == rows)
        if self.shared and (missing := self.ranks.sum((is_here & ~is_active).long())).any():
            example = int(missing.nonzero()[0])
            raise ValueError(
                f"labels[{example}] is {int(labels[example])}, which select() was not given; give it the labels of all "
                "batches of the step"
            )
        return torch.where(is_active, places, -1)

    def _active(self, places: Tensor) -> Tensor:
        """Rows of these places."""
        if self.active_rows is None:
            return places
        return self.active_rows[places] if len(self.active_rows) else places

    def _chunks(self, batch: int, every: bool = False) -> Iterator[tuple[int, Tensor, Tensor, Tensor | slice]]:
        """Active rows, or all, so many that their logits are held at once: where they begin, rows, what each counts for, and
        the rows again without those that fill them up to a whole number, which count for 0."""
        active = None if every else self.active_rows
        count = len(self.own) if active is None else len(active)
        many = max(_LOGITS.get(self.device.type, _LOGITS["cuda"]) // max(batch, 1) // _WHOLE, 4) * _WHOLE
        for at in range(0, count, many):
            end = min(at + many, count)
            filled = at + -(-(end - at) // _WHOLE) * _WHOLE
            if active is None:
                target: Tensor | slice = slice(at, end)
                rows, counts = torch.arange(at, filled, device=self.device).clamp(max=end - 1), self.one.expand(filled - at)
            else:
                target = active[at:end]
                rows, counts = target, self.row_weights[at:end]
                if filled > end:
                    rows = torch.cat([rows, rows[-1:].expand(filled - end)])
            if filled > end:
                counts = torch.cat([counts[: end - at], self.none.expand(filled - end)])
            yield at, rows, counts, target

    def _unit_rows(self, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Rows of length 1 in f32, and one over the lengths they had."""
        return steps.unit_rows(self.rows.weights[rows].float(), self.logits.is_cosine)

    def _unit_features(self, features: Tensor, learns: bool = False) -> tuple[Tensor, Tensor]:
        """Features of length 1, and one over the lengths they had; centred by their own mean where it learns."""
        if not self.centre:
            return steps.unit_rows(features, self.logits.is_cosine)
        if not learns:
            return steps.unit_rows(features if self.running is None else features - self.running, self.logits.is_cosine)
        mean = features.mean(0)
        # If a batch overflows, its step is skipped and this stays unchanged.
        before = torch.zeros_like(mean) if self.running is None else self.running
        moved = torch.lerp(before, mean, 1.0 if self.running is None else 0.01)
        self.running = torch.where(mean.isfinite().all(), moved, before)
        centred = features - mean
        unit, inverse = steps.unit_rows(centred, self.logits.is_cosine)
        # If all features are equal, centring leaves no direction, so there is no gradient.
        return unit, torch.where((centred == 0).all(1), torch.zeros_like(inverse), inverse)

    def _neighbours(self, k: int) -> Tensor:
        """The ``k`` nearest classes of each class of this rank among those of all, by the cosine in f32, in a ring between
        ranks (Song et al., section 3.2.2). Products of rows in bf16 are exact but for the rounding of their f32 sums, so that
        half precision recalls no others."""
        k = min(k, self.classes)
        parts = [self._unit_rows(rows) for _, _, _, rows in self._chunks(self.dim, every=True)]
        inverse = torch.cat([part[1] for part in parts])
        own = torch.cat([part[0] for part in parts]) if self.precision == torch.float32 else self.rows.weights
        del parts
        scores = inverse.new_zeros(len(own), 0)
        ids = self._numbers(len(own), 0).int()
        length = torch.ones_like(inverse) if self.precision == torch.float32 else inverse
        passed, factor = own, length
        for turn in range(self.ranks.size):
            there = Ranks(None, (self.ranks.rank - turn) % self.ranks.size, self.ranks.size).share(self.classes)
            if turn > 0:
                passed, factor = (self.ranks.passed_on(part, len(there)) for part in (passed, factor))
            best = []
            for rows in _blocks(len(own)):
                some = slice(rows.start, rows.stop)
                best.append(self._nearest(own[some], passed, factor, rows.start if turn == 0 else None, k))
            if best:
                new_scores, new_ids = (torch.cat(part) for part in zip(*best, strict=True))
                scores, ids = _best(torch.cat([scores, new_scores], 1), torch.cat([ids, new_ids + there.start], 1), k)
        return ids

    def _nearest(
        self, queries: Tensor, others: Tensor, factor: Tensor, first: int | None, k: int
    ) -> tuple[Tensor, Tensor]:
        """The ``k`` rows of ``others`` with the largest product times ``factor``, for each query. Each query is the nearest
        of itself where they are the rows from ``first`` on."""
        scores, ids = factor.new_zeros(len(queries), 0), self._numbers(len(queries), 0).int()
        wide = max(_LOGITS.get(self.device.type, _LOGITS["cuda"]) // max(len(queries), 1), 1024)
        for at in range(0, len(others), wide):
            part = slice(at, min(at + wide, len(others)))
            products = steps.product(queries, others[part].t()) * factor[part]
            if first is not None and at < first + len(queries) and part.stop > first:
                own = torch.arange(max(first, at), min(first + len(queries), part.stop), device=self.device)
                products[own - first, own - at] = math.inf
            best = products.topk(min(k, products.shape[1]), dim=1)
            scores, ids = _best(torch.cat([scores, best.values], 1), torch.cat([ids, (best.indices + at).int()], 1), k)
        return scores, ids


def _best(scores: Tensor, numbers: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` best of each row, the best first, equal ones by their numbers."""
    order = numbers.argsort(1)
    scores, numbers = scores.gather(1, order), numbers.gather(1, order)
    order = scores.sort(stable=True, dim=1, descending=True).indices[:, :k]
    return scores.gather(1, order), numbers.gather(1, order)


def _blocks(count: int) -> Iterator[range]:
    for first in range(0, count, 4096):
        yield range(first, min(first + 4096, count))
