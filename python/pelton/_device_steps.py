# mypy: allow-untyped-calls, disable-error-code="arg-type, assignment, call-arg, call-overload, index, list-item, return-value"
# (PyTorch 1.13 has comparisons and sums of tensors return numbers.)
"""The passes of a head on a device over a chunk of classes, as functions of tensors that ``torch.compile`` fuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Union

import torch
from torch import Tensor

from ._keyed import mixed
from ._pelton import ConfigurationError

#: Weights, velocity, the factors for rows that wait, and the step that each row waits for; for AdamW also the means of
#: squares and the steps of each row.
Table = tuple[Tensor, "Tensor | None", Tensor, Tensor, "Tensor | None", "Tensor | None"]

#: One number for all examples, or one for each.
Number = Union[float, Tensor]
#: Beyond all rows.
FAR = 1 << 62
#: Smaller lengths are raised to this, as in ``torch.nn.functional.normalize``.
_SHORTEST = 1e-12


@dataclass(frozen=True)
class Margin:
    """How a logit comes from a product of rows, and what is asked of the right class (``pelton_softmax::Logits``)."""

    #: Whether only the directions of features and rows count.
    is_cosine: bool
    scale: float
    #: m₁, m₂ and m₃ of cos(m₁·θ + m₂) − m₃, which replaces the cosine of the right class.
    margin: tuple[float, float, float]

    def of_target(self, right: Tensor) -> tuple[Tensor, Tensor]:
        """The right class's logit in place of ``right``, and its derivative by it."""
        if self.margin == (1, 0, 0):
            return right, torch.ones_like(right)
        return with_margin(right, self.scale, *self.margin)


def with_margin(own: Tensor, scale: float, m1: Number, m2: Number, m3: Number) -> tuple[Tensor, Tensor]:
    """scale · (cos(m1·θ + m2) − m3) of scale · cos θ, and the derivative by that; beyond π it goes on with slope 1."""
    z = (own.double() / scale).clamp(-1, 1)
    theta = z.acos()
    added = (m1 - 1) * theta + m2
    sine = (1 - z * z).clamp(min=1e-6).sqrt()
    turn = torch.as_tensor((math.pi - m2) / m1, dtype=z.dtype, device=z.device).clamp(max=math.pi)
    is_inside = theta + added < math.pi
    moved = torch.where(is_inside, (theta + added).cos(), z - (math.pi - turn) * turn.sin()) - m3
    slope = torch.where(is_inside, m1 * (added.cos() + z / sine * added.sin()), torch.ones_like(z))
    return (moved * scale).to(own.dtype), slope.to(own.dtype)


# :func:`compiled` fuses these: functions of tensors alone, one call each for a chunk of classes.


def unit_rows(rows: Tensor, is_cosine: bool) -> tuple[Tensor, Tensor]:
    """Rows of length 1 in f32, and one over the lengths they had."""
    if not is_cosine:
        return rows, rows.new_ones(len(rows))
    inverse = 1 / (rows * rows).sum(1).sqrt().clamp(min=_SHORTEST)
    return rows * inverse[:, None], inverse


def keys(rows: Tensor, places: Tensor, is_here: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Candidate rows in ascending order with their least places, which of them are the first of their row, and how many
    rows there are by place."""
    found = torch.where(is_here, rows << 16 | places, FAR).flatten().sort().values
    row, place = found >> 16, (found & 0xFFFF).clamp(max=k - 1)
    first = is_first(row) & (found < FAR)
    counts = torch.zeros(k, dtype=torch.int64, device=rows.device).index_add_(0, place, first.long())
    return row, place, first, counts


def woken(table: Table, rows: Tensor) -> tuple[Tensor, Tensor | None]:
    """Weights in f32 and velocity of rows, moved as far as they have come."""
    weights, velocity, waits, seen, _, _ = table
    if velocity is None:
        return weights[rows].float(), None
    moved, kept = waits[:, seen[rows].long()][:, :, None]
    return weights[rows].float() - moved * velocity[rows], kept * velocity[rows]


def score(
    scaled: Tensor, table: Table, rows: Tensor, counts: Tensor, place: Tensor, state: tuple[Tensor, ...], is_cosine: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Adds rows to the best other logit of each example, the own one, the sum of exp(logit - best) of the others and its
    gradient by the features of length 1. ``counts`` is what each row counts for, 0 for one that fills a gap; ``place`` is
    that of the own class among the rows."""
    best, right, total, gradient = state
    unit = unit_rows(woken(table, rows)[0], is_cosine)[0].to(scaled.dtype)
    logits = product(scaled, unit.t())
    own = torch.arange(logits.shape[1], device=logits.device) == place[:, None]
    right = right + torch.where(own, logits, 0.0).sum(1)
    logits = torch.where(own | (counts == 0), -math.inf, logits)
    higher = torch.maximum(best, logits.amax(1)).clamp(min=torch.finfo(torch.float32).min)
    exponentials = counts * (logits - higher[:, None]).exp()
    shrink = (best - higher).exp()
    total = total * shrink + exponentials.sum(1)
    gradient = gradient * shrink[:, None] + product(exponentials.to(scaled.dtype), unit)
    return higher, right, total, gradient


def losses(others: Tensor, with_margin: Tensor, shift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of the other classes' sum of exp(logit - shift) and the right class's logit: the loss, the share of the others, and
    one over the whole sum."""
    own = (with_margin - shift).exp()
    loss = torch.where(with_margin > shift, (others / own).log1p(), shift - with_margin + (others + own).log())
    wrong = torch.where(own.isinf(), torch.zeros_like(own), others / (others + own))
    return loss, wrong, 1 / (others + own)


def feature_gradient(
    gradient: Tensor, unit: Tensor, inverse: Tensor, own: Tensor, right: Tensor, factor: Tensor, scale: Tensor,
    is_cosine: bool, centre: bool
) -> Tensor:
    """The gradient by the features of the mean loss, from that of the other classes by those of length 1. ``own`` are the
    weights of the own classes, and ``right`` what they get; ``scale`` is that of the logits times what each loss counts for."""
    gradient = gradient * factor[:, None] - right[:, None] * unit_rows(own, is_cosine)[0]
    gradient = gradient * scale[:, None]
    if is_cosine:
        gradient = (gradient - (gradient * unit).sum(1, keepdim=True) * unit) * inverse[:, None]
    return gradient - gradient.mean(0) if centre else gradient


def step(
    scaled: Tensor,
    features: Tensor,
    table: Table,
    rows: Tensor,
    counts: Tensor,
    examples: tuple[Tensor, Tensor, Tensor, Tensor],
    rates: tuple[Tensor, ...],
    rounding: tuple[Tensor, Tensor],
    is_cosine: bool,
) -> tuple[Tensor, ...]:
    """One step of rows, with SGD of this rate, momentum and weight decay, or with AdamW where the table has means of squares,
    of this rate, weight decay, β₁, β₂ and ε: weights, and what is remembered. Of each example: the own class's place among
    them, log Σ exp, what that class gets and what the loss counts for. ``rounding`` is a key and the number of the first row's
    class."""
    place, total, own_share, factor = examples
    weights, velocity = woken(table, rows)
    unit, inverse = unit_rows(weights, is_cosine)
    logits = product(scaled, unit.to(scaled.dtype).t())
    own = torch.arange(logits.shape[1], device=logits.device) == place[:, None]
    shares = counts * (logits - total[:, None]).exp()
    shares = (torch.where(own, own_share[:, None], shares) * factor[:, None]).to(scaled.dtype)
    gradient = product(shares.t(), features)
    if is_cosine:
        gradient = (gradient - (gradient * unit).sum(1, keepdim=True) * unit) * inverse[:, None]
    squares, counted = table[4:]
    if squares is None or counted is None or velocity is None:
        rate, momentum, weight_decay = rates
        gradient = gradient + weight_decay * weights
        if velocity is not None:
            gradient = gradient + momentum * velocity
        moved, remembered = weights - rate * gradient, (gradient,)
    else:
        rate, weight_decay, b1, b2, eps = rates
        taken = counted[rows] + 1
        mean = velocity + (1 - b1) * (gradient - velocity)
        square = b2 * squares[rows] + (1 - b2) * gradient * gradient
        first, second = ((1 - beta.double() ** taken.double()).float() for beta in (b1, b2))
        moved = weights * (1 - rate * weight_decay) - rate / first * mean / ((square / second).sqrt() + eps)
        remembered = (mean, square, taken)
    if table[0].dtype != torch.float32:
        # Stochastic rounding: the expected value is the number (Gupta et al., ICML 2015).
        columns = torch.arange(moved.shape[1], device=moved.device)
        key, first = rounding
        noise = mixed(((rows + first)[:, None] * moved.shape[1] + columns) ^ key) & 0xFFFF
        moved = ((moved.view(torch.int32) + noise.int()) & -(1 << 16)).view(torch.float32)
    return moved.to(table[0].dtype), *remembered


def product(a: Tensor, b: Tensor) -> Tensor:
    """a · b with f32 sums, in f32; of f64 in f64."""
    if a.dtype in (torch.float32, torch.float64):
        return a @ b
    if a.device.type != "cuda":
        return a.float() @ b.float()
    # Before PyTorch 2.8 products of half precision are rounded to it.
    return torch.ops.aten.mm.dtype(a, b, torch.float32) if hasattr(torch.ops.aten.mm, "dtype") else (a @ b).float()


def is_first(ordered: Tensor) -> Tensor:
    """Which of equal numbers side by side is the first."""
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return first


def compiled() -> None:
    """Fuses the passes over a chunk of classes with ``torch.compile``, for the process."""
    if not hasattr(torch, "compile"):
        raise ConfigurationError(f"compile=True needs PyTorch 2 or newer, and this is {torch.__version__}")
    compile: Callable[..., Any] = torch.compile
    for name in ("keys", "score", "losses", "feature_gradient", "step"):
        globals()[name] = compile(globals()[name], dynamic=True)
