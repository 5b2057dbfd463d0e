# mypy: allow-subclassing-any, allow-untyped-decorators, allow-untyped-calls
"""The cross-entropy over very many classes with some of them, on ordinary parameters of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import _pelton
from ._keyed import is_compiling
from ._pelton import ConfigurationError
from ._ranks import Gathered, Ranks
from .choose import Knn

#: One number for all examples, or one for each.
Number = Union[float, Tensor]
#: What chooses classes: the rows that take part, ascending, each once and the targets among them, and what is added to
#: their logits.
Chooser = Callable[[Tensor, Tensor, Tensor], "tuple[Tensor, Tensor | None]"]
#: Logits that are computed at once.
_LOGITS = {"cpu": 1 << 22, "cuda": 1 << 27}


def partial_cross_entropy(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    chooser: Chooser | None = None,
    *,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    softcap: float | None = None,
    z_loss: float = 0.0,
    scale: float | None = None,
    margin: Number | tuple[Number, Number, Number] | None = None,
    class_weights: Tensor | None = None,
    binary: bool = False,
    reduction: str = "mean",
    sparse: bool = False,
    group: Any = None,
) -> Tensor:
    """``cross_entropy(linear(x, weight, bias), target)`` over the classes that ``chooser`` chooses, without holding the
    logits; over all classes without one.

    ``x`` is ``[..., d]``, ``weight`` an ordinary parameter ``[classes, d]``, which may be tied to an embedding, and ``target``
    ``[...]`` or ``[..., k]`` for several labels, of which ``ignore_index`` fills gaps: their mean is the loss of an example.
    ``ignore_index``, ``label_smoothing``, ``class_weights`` (``weight`` there) and ``reduction`` are those of
    `torch.nn.functional.cross_entropy`; sums over all classes become estimates from the chosen ones.

    ``softcap`` makes a logit ``softcap · tanh(logit / softcap)``, and ``z_loss`` adds ``z_loss · log Σ exp(logit)²`` to a loss.
    With ``scale`` a logit is ``scale`` times a cosine. ``margin`` then replaces that of the right class: a number m for
    cos θ − m (CosFace), or ``(m1, m2, m3)`` for cos(m1·θ + m2) − m3 (ArcFace is ``(1, m, 0)``); each may be a tensor of one for
    each example, as AdaFace has them.

    With ``binary`` each class is a question of its own, as in `torch.nn.functional.binary_cross_entropy_with_logits`: the loss
    of an example is the sum of those of all classes, estimated from the chosen ones, its labels having the target 1. An example
    of ``[..., k]`` without labels has 0 everywhere. ``class_weights`` are then of the classes' terms.

    With ``group``, a process group or True for the default one, ``weight``, ``bias`` and ``class_weights`` have this rank's rows,
    those of all ranks one after another being the classes, and the chooser is made for this rank's number of them. Each rank
    gives its own examples; the loss is that of all of them, and the gradient of ``x`` what `DistributedDataParallel` expects,
    which averages over ranks. All ranks make the same calls. ``reduction="none"`` is not divided.

    The gradient of ``weight`` has all rows, or with ``sparse`` those that took part, for `torch.optim.SparseAdam` and the
    like. The cost is 6·n·m·d operations for n examples and m rows, and memory for some of the n·m logits at a time.
    """
    _check(
        x, weight, target, bias, class_weights, sparse,
        reduction=reduction, label_smoothing=label_smoothing, softcap=softcap, z_loss=z_loss, scale=scale, margin=margin, binary=binary,
        group=group,
    )  # fmt: skip
    (classes, dim), ranks = weight.shape, Ranks.of(group)
    several = target.ndim == x.ndim
    shape = target.shape[:-1] if several else target.shape
    half = False
    if x.dtype != weight.dtype:
        # Under autocast, as `linear` does.
        kind = _autocast(x)
        half = x.device.type == "cpu" and kind == torch.bfloat16 and weight.dtype == torch.float32
        if half:
            # Products round their operands.
            x = x.float()
        else:
            x, weight = x.to(kind), weight.to(kind)
            bias = None if bias is None else bias.to(kind)
    x, target = x.reshape(-1, dim), target.reshape(math.prod(shape), target.shape[-1] if several else 1)
    valid, here, everyone, most = target != ignore_index, None, None, classes
    if ranks is None and not len(x) and reduction != "none":
        # As `cross_entropy`.
        return x.sum() * (math.nan if reduction == "mean" else 0.0)
    if ranks is None:
        _check_range(target, valid, classes)
    else:
        own_rows = torch.cat(ranks.gather(torch.tensor([classes], device=x.device)))
        first, most, classes = int(own_rows[: ranks.rank].sum()), int(own_rows.max()), int(own_rows.sum())
        _check_range(target, valid, classes)
        target = torch.cat(ranks.gather(target))
        valid = target != ignore_index
        everyone = torch.where(valid, target, -1).flatten()
        here = valid & (target >= first) & (target < first + len(weight))
        target = target - first
        if isinstance(margin, tuple):
            margin = tuple(torch.cat(ranks.gather(m)) if isinstance(m, Tensor) and m.ndim else m for m in margin)  # type: ignore[assignment]
        elif isinstance(margin, Tensor) and margin.ndim:
            margin = torch.cat(ranks.gather(margin))
    plain = x
    if scale is not None:
        x = torch.nn.functional.normalize(x, dim=-1, eps=1e-12)
    if ranks is not None:
        x = Gathered.apply(x, ranks)
    asked_for = valid if here is None else here
    target = torch.where(asked_for, target, target.new_zeros(()))
    rows = correction = None
    if chooser is not None:
        with torch.no_grad():
            # A place without a label asks for the first class that some example has.
            asked = torch.where(asked_for, target, torch.where(asked_for, target, -1).amax().clamp(min=0))
            given = (x.detach(), asked, weight.detach())
            rows, correction = chooser(*given, everyone) if isinstance(chooser, Knn) else chooser(*given)
            _check_rows(rows, correction, asked)
    elif sparse:
        raise ConfigurationError("`sparse` is for the rows that a chooser chooses; give one")
    places = target if rows is None else torch.searchsorted(rows, target).clamp(max=len(rows) - 1)
    many = valid.sum(1)
    counts = (many > 0).to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    if binary and several:
        counts = torch.ones_like(counts)
    own_counts, class_weights = counts, None if class_weights is None else class_weights.to(counts.dtype)
    correction = None if correction is None else correction.to(counts.dtype)
    if class_weights is not None and not binary:
        # Of several labels the mean.
        own_counts = (class_weights[target] * asked_for).sum(1) / many.clamp(min=1)
        if ranks is not None:
            own_counts = ranks.sum(own_counts)
    factor = None
    if reduction != "none":
        factor = torch.ones_like(counts) if reduction == "sum" else (1 / own_counts.sum()).expand_as(counts)
    margins = None if margin is None else margin if isinstance(margin, tuple) else (1.0, 0.0, margin)
    plainly = all(of is None for of in (ranks, bias, softcap)) and not (label_smoothing or z_loss or binary)
    if plainly and factor is not None and _is_native(plain, weight, margins):
        logits = None if scale is None else (scale, margins or (1.0, 0.0, 0.0))
        labels, factors = (places if rows is None else rows[places]), factor * own_counts
        if several:
            labels, factors = labels[valid], (factors / many.clamp(min=1)).repeat_interleave(many)
        labels = labels.flatten()
        # Without any label PyTorch says what the mean of nothing is.
        if len(labels):
            made = _native(plain, weight, (labels, many if several else None), factors, rows, correction, logits, half, sparse)
            if made is not None:
                return made
    if half:
        x, weight = x.bfloat16(), weight.bfloat16()
    w = weight
    if rows is not None:
        w = torch.nn.functional.embedding(rows, weight, sparse=True) if sparse else weight.index_select(0, rows)
        bias = None if bias is None else bias.index_select(0, rows)
        class_weights = None if class_weights is None else class_weights[rows]
    if scale is not None:
        w = torch.nn.functional.normalize(w, dim=-1, eps=1e-12)
    terms = _Terms(
        places, valid, own_counts, counts, correction, class_weights, scale or 1.0, margins, softcap, z_loss, label_smoothing,
        classes, max(1, most), here, ranks, binary,
    )  # fmt: skip
    losses: Tensor = _Loss.apply(x, w, bias, terms, factor)
    return losses.reshape(shape) if factor is None else losses


@dataclass
class _Terms:
    """What a loss needs besides the tensors that have gradients."""

    #: Of each example the rows of its labels, and which of them there are, ``[n, k]``.
    places: Tensor
    valid: Tensor
    #: What the loss of the labels counts for, and that of all classes by smoothing, ``[n]``.
    own_counts: Tensor
    counts: Tensor
    correction: Tensor | None
    class_weights: Tensor | None
    scale: float
    margins: tuple[Number, Number, Number] | None
    softcap: float | None
    z_loss: float
    smoothing: float
    classes: int
    #: The most rows of a rank.
    most: int
    #: With a group: which labels are of this rank's rows, ``[n, k]``.
    here: Tensor | None
    ranks: Ranks | None
    binary: bool

    def only_here(self, part: slice, value: Tensor, other: Tensor | float) -> Tensor:
        """A value where the label is one of this rank's rows, and the other elsewhere."""
        return value if self.here is None else torch.where(self.here[part], value, other)

    def all_sums(self, most: Tensor, total: Tensor, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of the largest logit, the sum of exp(logit - largest), and what is known on one rank: those over all ranks."""
        if self.ranks is None:
            return most, total, own
        largest = self.ranks.max(most.clone())
        sums = self.ranks.sum(torch.cat([total * (most - largest).exp(), own], 1))
        return largest, sums[:, :1], sums[:, 1:]

    def spread(self, rows: int) -> Tensor:
        """What the loss of each class counts for by label smoothing: over all, or an estimate of that."""
        spread = self.counts.new_ones(rows) if self.class_weights is None else self.class_weights
        return (spread if self.correction is None else spread * self.correction.exp()) / self.classes


def _binary(
    logits: Tensor, part: slice, terms: _Terms, factor: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The sums over all classes of the binary losses of some examples, and the gradients of those by the logits."""
    asked = (terms.valid if terms.here is None else terms.here)[part].to(logits.dtype)
    # -1 where the target is 1: the loss is log(1 + exp(sign * logit)).
    sign = torch.ones_like(logits).scatter_reduce_(1, terms.places[part], 1 - 2 * asked, "amin")
    signed = logits * sign
    of_class = terms.class_weights
    if terms.correction is not None:
        count = terms.correction.exp()
        of_class = count if of_class is None else of_class * count
    # Not PyTorch's, which is the identity above 20.
    each = signed.clamp(min=0) + signed.abs().neg_().exp_().log1p_()
    losses = (each if of_class is None else each * of_class).sum(1)
    if terms.ranks is not None:
        losses = terms.ranks.sum(losses)
    losses = losses * terms.own_counts[part]
    if factor is None:
        return losses, None
    gradient = signed.sigmoid_().mul_(sign).mul_((terms.own_counts[part] * factor[part])[:, None])
    return losses, gradient if of_class is None else gradient.mul_(of_class)


def _of_part(
    x: Tensor, w: Tensor, bias: Tensor | None, part: slice, terms: _Terms, factor: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The losses of some examples, and with a ``factor`` of each the gradient of their products with the rows."""
    places, rest = terms.places[part], 1 - terms.smoothing
    own_counts, counts = terms.own_counts[part, None], terms.counts[part, None]
    logits = product(x[part], w.t())
    if terms.scale != 1:
        logits *= terms.scale
    if bias is not None:
        logits += bias
    of_cap = None
    if terms.softcap is not None:
        logits = (logits / terms.softcap).tanh_()
        of_cap = 1 - logits * logits
        logits *= terms.softcap
    if terms.binary:
        losses, gradient = _binary(logits, part, terms, factor)
        return losses, gradient if gradient is None or of_cap is None else gradient.mul_(of_cap)
    own, of_margin = logits.gather(1, places), None
    if terms.margins is not None:
        m1, m2, m3 = (m[part, None] if isinstance(m, Tensor) and m.ndim else m for m in terms.margins)
        plain_own = own
        own, of_margin = with_margin(own, terms.scale, m1, m2, m3)
        logits.scatter_(1, places, terms.only_here(part, own, plain_own))
        of_margin = terms.only_here(part, of_margin, 1.0)
    spread = terms.spread(len(w)) if terms.smoothing else None
    # Of the plain logits.
    smoothed = None if spread is None else (logits @ spread)[:, None]
    every = None if spread is None else spread.sum()
    own = terms.only_here(part, own, 0.0)
    if terms.correction is not None:
        logits += terms.correction
    is_one = places.shape[1] == 1
    if is_one:
        # Without the own class, so that nothing is lost where it has nearly all of the sum.
        logits.scatter_(1, places, terms.only_here(part, torch.full_like(own, -math.inf), logits.gather(1, places)))
    most = logits.amax(1, keepdim=True).clamp(min=torch.finfo(logits.dtype).min)
    shares = logits.sub_(most).exp_()
    if not is_one:
        valid = terms.valid[part].to(logits.dtype)
        valid = valid / valid.sum(1, keepdim=True).clamp(min=1)
        # Not finite logits stay so where their label is not one.
        own = terms.only_here(part, torch.where(valid > 0, own * valid, 0), 0.0).sum(1, keepdim=True)
    known = own if smoothed is None or every is None else torch.cat([own, smoothed, every.expand_as(own)], 1)
    largest, total, known = terms.all_sums(most, shares.sum(1, keepdim=True), known)
    own = known[:, :1]
    if smoothed is not None:
        smoothed, every = known[:, 1:2], known[:1, 2]
    log_sum = largest + total.log()
    if is_one:
        gap = log_sum - own
        lost = torch.nn.functional.softplus(gap, threshold=40)
        log_sum = own + lost
    else:
        lost = log_sum - own
    losses = lost if rest == 1 else rest * lost
    if terms.z_loss:
        losses = losses + terms.z_loss * log_sum * log_sum
    losses = own_counts * losses
    if smoothed is not None and every is not None:
        losses = losses + terms.smoothing * counts * (every * log_sum - smoothed)
    if factor is None:
        return losses[:, 0], None
    factor = factor[part, None]
    # What the labels pull, and what the sum over all pulls back.
    of_own = own_counts * factor if rest == 1 else rest * own_counts * factor
    of_sum = of_own
    if terms.z_loss:
        of_sum = of_sum + 2 * terms.z_loss * log_sum * own_counts * factor
    if every is not None:
        of_sum = of_sum + terms.smoothing * counts * every * factor
    gradient = shares.mul_((most - log_sum).exp() * of_sum)
    if is_one:
        wrong = gap.sigmoid()
        by_own = -of_own * wrong
        if of_sum is not of_own:
            by_own = by_own + (of_sum - of_own) * (1 - wrong)
        gradient.scatter_(1, places, terms.only_here(part, by_own, gradient.gather(1, places)))
    else:
        gradient.scatter_add_(1, places, terms.only_here(part, -of_own * valid, 0.0))
    if spread is not None:
        gradient -= terms.smoothing * counts * factor * spread
    if of_margin is not None:
        gradient.scatter_(1, places, gradient.gather(1, places) * of_margin)
    if of_cap is not None:
        gradient *= of_cap
    return losses[:, 0], gradient


def product(a: Tensor, b: Tensor) -> Tensor:
    """a · b with f32 sums, in f32; of f64 in f64."""
    if a.dtype in (torch.float32, torch.float64):
        return a @ b
    if a.device.type != "cuda":
        return a.float() @ b.float()
    # Before PyTorch 2.8 products of half precision are rounded to it.
    return torch.ops.aten.mm.dtype(a, b, torch.float32) if hasattr(torch.ops.aten.mm, "dtype") else (a @ b).float()


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


def _parts(x: Tensor, w: Tensor, terms: _Terms) -> list[slice]:
    """Examples whose logits are computed at once, equal on all ranks."""
    size = max(1, _LOGITS.get(x.device.type, 1 << 24) // (max(1, len(w)) if terms.ranks is None else terms.most))
    return [slice(at, min(at + size, len(x))) for at in range(0, len(x), size)]


def _gradients(
    x: Tensor, w: Tensor, bias: Tensor | None, terms: _Terms, factor: Tensor, needs: Sequence[bool]
) -> tuple[Tensor, list[Tensor | None]]:
    """The losses, and the gradients of the sum of ``factor`` times them by the three tensors."""
    losses = terms.counts.new_empty(len(x))
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    by_x = torch.empty_like(x) if needs[0] else None
    by_w = torch.zeros(w.shape, dtype=wide, device=w.device) if needs[1] else None
    by_bias = torch.zeros(len(w), dtype=wide, device=w.device) if needs[2] else None
    for part in _parts(x, w, terms):
        losses[part], gradient = _of_part(x, w, bias, part, terms, factor)
        assert gradient is not None
        if by_bias is not None:
            by_bias += gradient.sum(0)
        # Not before: products of rows at another scale.
        rounded = (gradient if terms.scale == 1 else gradient.mul_(terms.scale)).to(x.dtype)
        if by_x is not None:
            by_x[part] = product(rounded, w)
        if by_w is not None and x.dtype == wide:
            by_w.addmm_(rounded.t(), x[part])
        elif by_w is not None:
            by_w += product(rounded.t(), x[part])
    return losses, [
        by_x,
        None if by_w is None else by_w.to(w.dtype),
        None if by_bias is None or bias is None else by_bias.to(bias.dtype),
    ]


class _Loss(torch.autograd.Function):
    """The sum of ``factor`` times the losses, with the gradients made in the forward pass; or the losses, without a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, terms: _Terms, factor: Tensor | None) -> Tensor:
        needs = ctx.needs_input_grad[:3]
        ctx.made = []
        ctx.terms = terms
        # Operands have their precision, and sums f32.
        with torch.autocast(x.device.type, enabled=False):
            if factor is not None and any(needs):
                losses, ctx.made = _gradients(x, w, bias, terms, factor, needs)
            else:
                parts = [_of_part(x, w, bias, part, terms, None)[0] for part in _parts(x, w, terms)]
                losses = torch.cat(parts) if parts else terms.counts.new_zeros(0)
                ctx.save_for_backward(x, w, bias)
        return losses if factor is None else (losses * factor).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_loss: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        if ctx.made:
            made, ctx.made = ctx.made, []
            by_x, by_w, by_bias = (None if of is None else of.mul_(by_loss.to(of.dtype)) for of in made)
        else:
            if not ctx.saved_tensors:
                raise RuntimeError("backward() was already called on this loss; its gradients are made once")
            x, w, bias = ctx.saved_tensors
            factor = by_loss.to(ctx.terms.counts.dtype)
            _, (by_x, by_w, by_bias) = _gradients(x, w, bias, ctx.terms, factor, ctx.needs_input_grad[:3])
        return by_x, by_w, by_bias, None, None


def _is_native(x: Tensor, weight: Tensor, margins: tuple[Number, Number, Number] | None) -> bool:
    """Whether these are plain tensors in memory, for which there is a pass in Rust."""
    kinds = (Tensor, torch.nn.Parameter)
    return (
        type(x) in kinds
        and type(weight) in kinds
        and x.device.type == weight.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and weight.is_contiguous()
        and len(x) > 0
        and weight.numel() > 0
        and (margins is None or all(isinstance(m, (int, float)) for m in margins))
        and not is_compiling()
    )


def _native(
    x: Tensor, weight: Tensor, labels: tuple[Tensor, Tensor | None], factor: Tensor, rows: Tensor | None, correction: Tensor | None,
    logits: tuple[float, tuple[Number, Number, Number]] | None, half: bool, sparse: bool,
) -> Tensor | None:  # fmt: skip
    """The sum of ``factor`` times the losses, by `pelton_softmax::Pass`, of labels and how many each example has; None if something
    is not finite, or a label is given twice."""
    active = None
    if rows is not None:
        counts = torch.ones(len(rows)) if correction is None else correction.exp()
        active = (rows.long().numpy(), counts.float().numpy())
    learns = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    # Not `numpy()`, after which FSDP can no longer free the memory of a parameter.
    target, many = labels[0].long(), labels[1]
    given: list[Any] = [np.from_dlpack(of.detach().contiguous()) for of in (x, weight, target, factor.float())]
    several = None if many is None else many.numpy()
    found = _pelton.class_losses(given[0], given[1], given[2], several, given[3], active, logits, half, torch.get_num_threads(), learns)
    if found is None:
        return None
    loss, made = torch.tensor(found[0], dtype=torch.float32), found[1]
    if made is None:
        return loss
    by_x, by_rows = map(torch.from_numpy, made)
    result: Tensor = _Made.apply(x, weight, loss, by_x, by_rows, rows, sparse)
    return result


class _Made(torch.autograd.Function):
    """A loss whose gradients were made with it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, loss: Tensor, by_x: Tensor, by_rows: Tensor, rows: Tensor | None, sparse: bool) -> Tensor:
        ctx.made, ctx.rows, ctx.sparse, ctx.shape = [by_x, by_rows], rows, sparse, weight.shape
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_loss: Tensor) -> tuple[Tensor | None, ...]:
        if not ctx.made:
            raise RuntimeError("backward() was already called on this loss; its gradients are made once")
        (by_x, by_rows), ctx.made = ctx.made, []
        if by_loss != 1:
            by_x *= by_loss
            by_rows *= by_loss
        by_weight: Tensor | None = by_rows
        if not ctx.needs_input_grad[1]:
            by_weight = None
        elif ctx.sparse:
            by_weight = torch.sparse_coo_tensor(ctx.rows[None], by_rows, ctx.shape, check_invariants=False)
        elif ctx.rows is not None:
            by_weight = by_rows.new_zeros(ctx.shape).index_copy_(0, ctx.rows, by_rows)
        return by_x if ctx.needs_input_grad[0] else None, by_weight, None, None, None, None, None


def _check(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, class_weights: Tensor | None, sparse: bool, **options: Any
) -> None:
    for name, given in (("x", x), ("weight", weight), ("target", target)):
        if not isinstance(given, Tensor):
            raise ConfigurationError(f"{name} is a {type(given).__name__}; give a tensor of PyTorch")
    shapes = f"x is {list(x.shape)}, weight {list(weight.shape)}, target {list(target.shape)}"
    if weight.ndim != 2 or x.ndim < 1 or x.shape[-1] != weight.shape[1] or x.shape[:-1] != target.shape[: x.ndim - 1]:
        raise ConfigurationError(f"{shapes}: they are [..., d], [classes, d] and [...], or [..., k] for several labels")
    if target.ndim not in (x.ndim - 1, x.ndim):
        raise ConfigurationError(f"{shapes}: target has one dimension fewer than x, or as many for several labels")
    if x.dtype != weight.dtype and _autocast(x) is None:
        raise ConfigurationError(f"x is {x.dtype} and weight {weight.dtype}: give both one type, or use torch.autocast")
    if not x.is_floating_point():
        raise ConfigurationError(f"x is {x.dtype}; features are floating point numbers")
    if target.is_floating_point() or target.dtype == torch.bool:
        raise ConfigurationError(f"target is {target.dtype}; give indices of classes, for several labels [..., k] of them")
    for name, of in (("bias", bias), ("class_weights", class_weights)):
        if of is not None and of.shape != weight.shape[:1]:
            raise ConfigurationError(f"`{name}` is {list(of.shape)}, and weight has {len(weight)} rows; give one number a row")
    if options["group"] not in (None, False) and options["reduction"] == "none":
        raise ConfigurationError("`reduction` none is not divided over a group; use mean or sum")
    if options["reduction"] not in ("mean", "sum", "none"):
        raise ConfigurationError(f"`reduction` is {options['reduction']!r}; use mean, sum or none")
    if not 0 <= options["label_smoothing"] <= 1:
        raise ConfigurationError(f"`label_smoothing` is {options['label_smoothing']}; give a share from 0 to 1")
    if options["binary"]:
        for name in ("label_smoothing", "z_loss", "margin"):
            if options[name]:
                raise ConfigurationError(f"`{name}` is of a softmax; leave it out, or `binary`")
    for name in ("softcap", "scale"):
        if options[name] is not None and not options[name] > 0:
            raise ConfigurationError(f"`{name}` is {options[name]}; give a number above 0, or leave it out")
    if options["margin"] is not None:
        if options["scale"] is None:
            raise ConfigurationError("`margin` is one of angles; give `scale` too, such as 64")
        if target.ndim == x.ndim or options["softcap"] is not None or bias is not None:
            raise ConfigurationError("`margin` goes with one label for each example, without `softcap` and `bias`")
        if isinstance(options["margin"], tuple) and len(options["margin"]) != 3:
            raise ConfigurationError(f"`margin` is {options['margin']}; give one number, or three (m1, m2, m3)")
        numbers = [m if isinstance(m, (int, float)) else 1.0 for m in options["margin"]] if isinstance(options["margin"], tuple) else [1.0, 0.0]
        if not (0 < numbers[0] <= 2 and 0 <= numbers[1] <= math.pi / 2):
            raise ConfigurationError(f"`margin` is {options['margin']}: m1 is above 0 and at most 2, and m2 an angle in radians, at most {math.pi / 2:.4f}")


def _autocast(x: Tensor) -> torch.dtype | None:
    """The type that autocast has for such tensors, if it is on."""
    kind = x.device.type
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    if kind == "cpu":
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


def _check_rows(rows: Tensor, correction: Tensor | None, asked: Tensor) -> None:
    """What a chooser chose; on a device it would have to be waited for."""
    if correction is not None and correction.shape != rows.shape:
        raise ConfigurationError(f"the chooser gave {len(rows)} rows and a correction of the shape {list(correction.shape)}; give one a row")
    if rows.device.type == "cpu" and not is_compiling():
        if (rows[1:] <= rows[:-1]).any():
            raise ConfigurationError("the chooser gave rows that do not ascend, or one twice; sort them")
        places = torch.searchsorted(rows, asked).clamp(max=len(rows) - 1)
        lacking = asked[rows[places] != asked]
        if lacking.numel():
            raise ConfigurationError(f"the chooser left out the target {int(lacking[0])}; the targets are always among its rows")


def _check_range(target: Tensor, valid: Tensor, classes: int) -> None:
    """On a device the lookup of the classes fails instead, without waiting for it here."""
    if target.device.type == "cpu" and target.numel() and not is_compiling():
        wrong = valid & ((target < 0) | (target >= classes))
        if wrong.any():
            at = int(wrong.flatten().nonzero()[0]) // target.shape[1]
            found = int(target[wrong][0])
            remedy = f"; ignore_index={found} leaves such examples out" if found < 0 else ""
            raise ConfigurationError(f"target {found} of example {at} is not one of the {classes} classes{remedy}")
