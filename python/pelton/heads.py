# mypy: allow-subclassing-any, allow-untyped-decorators, allow-untyped-calls
"""Heads over very many classes behind nets of PyTorch.

>>> from pelton.heads import KnnSoftmax
>>> head = KnnSoftmax(classes=100_000, dim=128)  # in place of Linear and cross_entropy
>>> loss = head(net(pictures), labels)  # doctest: +SKIP
>>> loss.backward()  # doctest: +SKIP
>>> optimizer.step(); head.step(lr=0.1)  # doctest: +SKIP

The weights of the classes are not parameters: they are divided over the ranks of ``torch.distributed`` by rows, and a step
touches those of the classes that take part. ``head.step`` moves them. They stay in Rust on the CPU; with ``device="cuda"``
they are tensors there.
"""

from __future__ import annotations

import math
import os
import secrets
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed
from torch.autograd.function import once_differentiable

from . import _pelton
from ._pelton import ConfigurationError, StateError
from ._world import own_address


class Best(NamedTuple):
    """The best classes of each example, the best first: scores and numbers, each ``[examples, k]``."""

    scores: torch.Tensor
    classes: torch.Tensor


class KnnSoftmax(torch.nn.Module):
    """The mean cross-entropy over very many classes, divided over the ranks, using a subset of the classes in each step.

    ``kind`` says which classes take part in a training step, in addition to the labels of the batch:

    - ``"knn"``: the ``k`` nearest classes of each label, by an exact graph, nearest first, filled up with random
      ones to the share ``budget`` of all classes; the share ``drawn`` of the budget is always random (KNN softmax:
      Song et al., KDD 2020, where ``drawn`` is 0);
    - ``"near"``: others up to ``budget``, drawn by how likely they are for any example; where classes resemble each other this
      comes closest to ``full``;
    - ``"sampled"``: random ones up to ``budget`` (Partial FC);
    - ``"selective"``: those that share a leaf in one of ``trees`` random trees with one of these, up to ``budget``;
    - ``"mach"``: all, hashed into ``buckets``, in ``repetitions`` softmaxes over the buckets;
    - ``"full"``: all.

    ``logits`` are ``"cosine"`` (``scale`` · cos θ), ``"cosface"`` (cos θ − ``margin`` for the right class), ``"arcface"``
    (cos(θ + ``margin``)), ``"combined"`` (cos(m1·θ + m2) − m3 for ``margin=(m1, m2, m3)``, as insightface has it), or
    ``"product"`` (w·x, without bias).

    With ``correct``, random classes are weighted to represent all that do not take part, so the loss estimates that
    over all classes; the paper does not do this. With ``centre``, the mean of a batch's features is subtracted first,
    and outside of training a running mean, ``mean``: with random class weights the features of all classes otherwise
    turn to one direction for the first hundreds of steps. ``begin_at_means`` avoids the same problem by better
    initial weights. ``pelton train classify`` does all three.

    With ``precision="bfloat16"`` products round their operands to half precision, which is faster on CPUs with AVX-512
    BF16; weights, momentum and sums stay float32, and so does evaluation.

    With ``device`` the head computes in PyTorch operators on tensors of that device, ``full``, ``knn`` and ``sampled``, with
    SGD or AdamW: the same steps as on the CPU. There, ``precision="bfloat16"`` keeps the weights in half precision, rounded up or
    down by chance so that small steps count, with f32 sums and momentum; features may have any precision. ``compile`` fuses
    its passes with ``torch.compile``, which makes steps over 10⁵ classes or more about twice as fast.

    ``class_weights`` are one a class, as ``weight`` of ``torch.nn.functional.cross_entropy``: a loss counts for that of its
    class, and the mean is over these weights, of all ranks. In ``eval()`` mode all count alike.

    ``step`` takes SGD with ``momentum``, LARS where ``trust`` is given, or AdamW where ``betas`` are, with ``eps``; all as in
    ``pelton train classify``. With AdamW a row that takes no part does not move and its means do not decay, and their bias is
    corrected by the row's own steps: ``full`` is ``torch.optim.AdamW``. ``momentum``, ``weight_decay``, ``trust``, ``betas``
    and ``eps`` can be changed between steps. ``threads`` is by default what PyTorch uses.

    Where ``torch.distributed`` is initialised, the ranks of ``group`` (by default all) share the head: all make the
    same calls, each with its own examples. They connect by TCP; ``host`` is the address at which others reach this
    rank, by default that of the interface towards ``MASTER_ADDR``.
    """

    def __init__(
        self,
        classes: int,
        dim: int,
        kind: str = "knn",
        *,
        k: int = 10,
        budget: float = 0.1,
        drawn: float = 0.5,
        trees: int = 8,
        buckets: int = 1000,
        repetitions: int = 8,
        correct: bool = True,
        centre: bool = False,
        logits: str = "cosine",
        scale: float = 16.0,
        margin: float | tuple[float, float, float] = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float = 1e-8,
        class_weights: Any = None,
        seed: int = 0,
        threads: int | None = None,
        device: torch.device | str | None = None,
        precision: str = "float32",
        compile: bool = False,
        group: Any = None,
        host: str | None = None,
    ) -> None:
        self._arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__()
        kinds: dict[str, list[float]] = {
            "full": [],
            "near": [budget],
            "knn": [k, budget, drawn],
            "sampled": [budget],
            "selective": [trees, budget],
            "mach": [buckets, repetitions],
        }
        one, three = (margin, ()) if isinstance(margin, (int, float)) else (0.0, tuple(map(float, margin)))
        if logits in ("cosface", "arcface", "combined") and len(three) != (3 if logits == "combined" else 0):
            raise ConfigurationError(
                f"margin={margin} with logits={logits!r}: give one number to cosface and arcface, and (m1, m2, m3) to combined"
            )
        margins: dict[str, list[float]] = {
            "product": [],
            "cosine": [scale],
            "cosface": [scale, one],
            "arcface": [scale, one],
            "combined": [scale, *three],
        }
        parts: Any = {"cosface": (1.0, 0.0, one), "arcface": (1.0, one, 0.0), "combined": three}.get(logits, (1.0, 0.0, 0.0))
        self.classes, self.dim, self.seed = classes, dim, seed
        self.centre = centre
        self.kind, self.logits = _spelled(kind, kinds), _spelled(logits, margins)
        self.momentum, self.weight_decay, self.trust = momentum, weight_decay, trust
        self.betas, self.eps = betas, eps
        weights = None if class_weights is None else _checked_weights(class_weights, classes)
        self._correct: Any = 0
        self._active: Any = 0
        self.device = None if device is None else torch.device(device)
        self._native: Any
        if precision not in ("float32", "bfloat16"):
            raise ConfigurationError(f"precision {precision!r} is neither 'float32' nor 'bfloat16'")
        spelled = (self.kind, self.logits, "f32" if precision == "float32" else "bf16")
        if self.device is None:
            if compile:
                raise ConfigurationError("`compile` is for a head on a device; give it device=")
            self.rank, self.ranks, connected = _ranks(group, host)
            threads = torch.get_num_threads() if threads is None else threads
            self._native = _pelton.Head(
                (classes, dim),
                spelled,
                (correct, centre, None if weights is None else weights.tolist()),
                seed,
                threads,
                connected,
            )
        else:
            from ._device_head import DeviceHead
            from ._device_rows import Ranks
            from ._device_steps import Margin, compiled

            if compile:
                compiled()
            _pelton.Head.check((classes, dim), spelled)
            if dim < 1:
                raise ConfigurationError(f"{dim} features: there must be at least one")
            if kind in ("near", "selective", "mach"):
                raise ConfigurationError(f"a head of kind {kind!r} is only on the CPU, without device=")
            self.rank, self.ranks = _own_rank(group)
            if self.ranks > classes:
                raise ConfigurationError(f"{classes} classes cannot be divided over {self.ranks} ranks on devices")
            setting = {"k": min(k, classes), "budget": budget, "drawn": drawn if kind == "knn" else 1.0}
            of_kind = (kind, setting if kind != "full" else {})
            self._native = DeviceHead(
                (classes, dim),
                of_kind,
                Margin(logits != "product", 1.0 if logits == "product" else scale, parts),
                (centre, correct),
                seed,
                Ranks(group, self.rank, self.ranks),
                self.device,
                getattr(torch, precision),
                None if weights is None else weights.to(self.device),
            )
        # Makes `backward` reach the head even if nothing before it learns.
        self._anchor = torch.zeros(0, requires_grad=True)

    def forward(self, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The mean loss of the examples of all ranks, for float32 features ``[examples, dim]`` on the CPU.

        In training the step uses the classes of this batch, unless ``select`` chose them before, and ``backward()``
        may be called once on the loss. The gradient of the features is computed together with the loss; the weights
        change in ``step``. With several ranks the gradient is what ``DistributedDataParallel`` expects, which
        averages over ranks afterwards.

        In ``eval()`` mode or under ``no_grad`` all classes are used, and the loss has no gradient.
        """
        features, labels = self._checked(features), self._checked_labels(labels)
        if self.training and torch.is_grad_enabled():
            loss: torch.Tensor = _Loss.apply(features, self._anchor, labels, self)
            return loss
        mean, self._correct = self._native.evaluate(self._given(features), self._given(labels))
        return features.new_tensor(mean)

    def select(self, labels: torch.Tensor) -> None:
        """Chooses the classes of a step for several batches, by the labels of all of them.

        ``near`` chooses for each batch when it is scored, by its features. Call this before the first of them when you
        accumulate gradients or a step has several losses. Call
        ``backward()`` on each loss as usual, also with a factor or in a sum, which then weights the loss in the step.
        """
        self._native.select(self._given(self._checked_labels(labels)))

    def step(self, lr: float, scale: float | None = None) -> bool:
        """Updates the weights of the classes from the losses that had ``backward()`` called since the last step.

        ``scale`` is the factor on the losses before ``backward()``, as ``GradScaler.get_scale()`` returns it until
        ``update()``; a step with overflow in losses or features is then skipped. Returns whether the step was taken.
        """
        if self.betas is None:
            adam = None
        elif self.trust is not None:
            raise ConfigurationError("`trust` is of LARS and `betas` are of AdamW: give one of them")
        else:
            adam = (*self.betas, self.eps)
            if not (all(0 <= beta < 1 for beta in self.betas) and 0 < self.eps < math.inf):
                raise ConfigurationError(f"betas={self.betas}, eps={self.eps}: betas are from 0 to below 1, and eps is above 0")
        taken: bool = self._native.step(lr, self.momentum, self.weight_decay, self.trust, scale, adam)
        return taken

    def forget(self) -> None:
        """Skips the step of the losses that had ``backward()`` called, as ``GradScaler.step`` does for the net."""
        self._native.forget()

    @torch.no_grad()
    def begin_at_means(self, batches: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> int:
        """Makes the mean of the unit features of each class its weights, from ``batches`` of features and labels.

        Call it before the first step, with the features of the untrained net in ``eval()`` mode; a few examples of
        each class are enough. A head with ``centre`` reads them twice, and keeps the batches of an iterator in memory
        for that. All ranks give the same number of batches. Returns how many classes have no example, or none with a
        direction: they keep their weights.
        """
        if self.centre and iter(batches) is batches:
            batches = list(batches)
        for of_classes in [False, True] if self.centre else [True]:
            for features, labels in batches:
                given = self._given(self._checked(features)), self._given(self._checked_labels(labels))
                self._native.observe(*given, of_classes)
        missing: int = self._native.begin_at_means()
        return missing

    @property
    def mean(self) -> torch.Tensor | None:
        """The mean subtracted from features outside of training, ``[dim]``; ``None`` without ``centre``."""
        mean = self._native.mean()
        return None if mean is None else torch.as_tensor(mean)[0]

    def rebuild_graph(self) -> None:
        """Finds the neighbours of every class among the current weights; for ``selective``, builds new trees.

        Call it at the start of each epoch; it costs classes² · dim operations over all ranks. The first step builds
        a graph if there is none, unless the weights are still random: then classes are drawn. Does nothing for kinds without a graph.
        """
        self._native.renew()

    @torch.no_grad()
    def predict(self, features: torch.Tensor, k: int = 1) -> Best:
        """The ``k`` best classes of each row of this rank's features, among the classes of all ranks.

        Scores are cosines or products; for ``mach``, mean probabilities.
        """
        if not 0 < k <= self.classes:
            raise ConfigurationError(f"the {k} best of {self.classes} classes: give a number from 1 to {self.classes}")
        scores, classes = self._native.top(self._given(self._checked(features)), k)
        return Best(torch.as_tensor(scores), torch.as_tensor(classes))

    @property
    def correct(self) -> int:
        """Examples of the last batch, over all ranks, whose own class was the best of those that took part."""
        return int(self._correct)

    @property
    def active(self) -> int:
        """Classes that took part in the last step."""
        return int(self._active)

    @property
    def rows(self) -> range:
        """The classes of this rank."""
        first, end = (self.classes * rank // self.ranks for rank in (self.rank, self.rank + 1))
        return range(first, end)

    @property
    def weight(self) -> torch.Tensor:
        """A copy of the weights of this rank's classes, ``[len(rows), dim]``; assigning replaces them and resets
        their momentum."""
        if self.device is not None:
            self._native.settle()
            return self._native.rows.weights.clone()
        found = self._native.weights()
        if found is None:
            raise ConfigurationError("a mach head has weights of buckets, not of classes; use predict()")
        return torch.from_numpy(found)

    @weight.setter
    def weight(self, weight: torch.Tensor) -> None:
        weight = self._checked(weight.detach())
        if len(weight) != len(self.rows):
            raise ConfigurationError(f"this rank has {len(self.rows)} classes, but there are {len(weight)} rows of weights")
        rows = ("weights", self.rows.start, self.classes, self._given(weight))
        self._native.load([rows], *self._native.progress)

    def get_extra_state(self) -> dict[str, Any]:
        """This rank's part of the state, of tensors and numbers; ``state_dict()`` holds it."""
        steps, epochs = self._native.progress
        blocks = [(name, first, total, torch.as_tensor(rows)) for name, first, total, rows in self._native.save()]
        made = {"classes": self.classes, "dim": self.dim, "seed": self.seed, "logits": self.logits, "centre": self.centre}
        return {**made, "steps": steps, "epochs": epochs, "blocks": blocks}

    def set_extra_state(self, state: Any) -> None:
        """Takes this rank's part of a state; ``load_state_dict()`` brings it."""
        if not _is_of_head(state):
            raise StateError("this is not the state of a head over many classes")
        if (state["classes"], state["dim"]) != (self.classes, self.dim):
            raise StateError(
                f"the state has {state['classes']} classes and {state['dim']} features, "
                f"but this head has {self.classes} and {self.dim}"
            )
        if self.kind.startswith("mach") and state["seed"] != self.seed:
            raise StateError(
                f"the state belongs to a head with seed {state['seed']}, which decides the buckets of its classes; "
                f"create this one with seed={state['seed']}"
            )
        logits = state.get("logits", self.logits)
        if logits != self.logits:
            warnings.warn(f"the state belongs to a head with logits {logits}, and this one has {self.logits}", stacklevel=2)
        if state.get("centre", False) != self.centre:
            having = ["without", "with"][state.get("centre", False)]
            warnings.warn(f"the state belongs to a head {having} centre, and this one has centre={self.centre}", stacklevel=2)
        blocks = [(name, first, total, self._given(rows.contiguous())) for name, first, total, rows in state["blocks"]]
        self._native.load(blocks, state["steps"], state["epochs"])

    def __deepcopy__(self, memo: Any) -> KnnSoftmax:
        """A head in the same state, for example for averaging weights over time; only on a single rank."""
        if self.ranks > 1:
            raise StateError(f"a head shared by {self.ranks} ranks cannot be copied; create another and load its state_dict()")
        copied = KnnSoftmax(**self._arguments)
        copied.load_state_dict(self.state_dict())
        copied.momentum, copied.weight_decay, copied.trust = self.momentum, self.weight_decay, self.trust
        copied.betas, copied.eps = self.betas, self.eps
        copied.train(self.training)
        return copied

    def extra_repr(self) -> str:
        ranks = f", rank {self.rank} of {self.ranks}" if self.ranks > 1 else ""
        return f"classes={self.classes}, dim={self.dim}, kind={self.kind}, logits={self.logits}{ranks}"

    def _checked(self, features: torch.Tensor) -> torch.Tensor:
        """Features in a form that can be used without a copy."""
        if self.device is not None:
            if features.device.type != self.device.type:
                raise TypeError(f"features are on {features.device}, but the head is on {self.device}")
        elif features.device.type != "cpu":
            raise TypeError(
                f"features are on {features.device}, but the head computes on the CPU; make it with "
                f"device={str(features.device)!r}, or give it features.cpu()"
            )
        elif features.dtype != torch.float32:
            raise TypeError(f"features are {features.dtype}, but the head computes with float32; give it features.float()")
        if features.ndim != 2:
            raise ValueError(f"features have the shape {list(features.shape)}; the head takes [examples, {self.dim}]")
        return features.contiguous()

    def _checked_labels(self, labels: torch.Tensor) -> torch.Tensor:
        if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool or labels.ndim != 1:
            raise TypeError(
                f"labels are {labels.dtype} of the shape {list(labels.shape)}; the head takes class indices, [examples]"
            )
        return labels.to(self.device or "cpu", torch.int64).contiguous()

    def _given(self, tensor: torch.Tensor) -> Any:
        """A tensor in the form that the head takes, without a copy."""
        return tensor.detach() if self.device is not None else tensor.detach().numpy()


def join_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Joins the state dicts that all ranks saved into one that any number of ranks can load.

    Each rank loads only its rows. With ``torch.load(path, mmap=True)``, only those parts of the files are read.
    Anything that does not belong to a head is taken from the first.
    """
    joined = dict(states[0])
    for name, value in joined.items():
        if _is_of_head(value):
            blocks = [block for state in states for block in state[name]["blocks"]]
            joined[name] = {**value, "blocks": blocks}
    return joined


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: torch.Tensor, anchor: torch.Tensor, labels: torch.Tensor, head: KnnSoftmax) -> torch.Tensor:
        with torch.autocast(features.device.type, enabled=False):
            found = head._native.score(head._given(features), head._given(labels))
        loss, head._correct, head._active, gradient, ctx.ticket = found
        ctx.native, ctx.gradient = head._native, torch.as_tensor(gradient).to(features.dtype)
        return torch.as_tensor(loss, dtype=torch.float32)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_loss: torch.Tensor) -> tuple[torch.Tensor | None, None, None, None]:
        factor: Any = by_loss if by_loss.device.type != "cpu" else by_loss.item()
        ctx.native.backward(ctx.ticket, factor)
        gradient, ctx.gradient = ctx.gradient, None
        if not (isinstance(factor, float) and factor == 1):
            gradient.mul_(factor)
        return gradient, None, None, None


def _checked_weights(weights: Any, classes: int) -> torch.Tensor:
    """Weights of classes on the CPU."""
    checked = torch.as_tensor(weights, dtype=torch.float32, device="cpu").detach()
    if checked.shape != (classes,):
        raise ConfigurationError(f"class_weights have the shape {list(checked.shape)}: give one number to each of the {classes} classes")
    wrong = ~(checked.isfinite() & (checked >= 0))
    if wrong.any():
        at = int(wrong.nonzero()[0])
        raise ConfigurationError(f"class_weights[{at}] is {checked[at]}: weights are finite and at least 0")
    if not checked.any():
        raise ConfigurationError("class_weights are all 0, so that no example counts; give a class a larger one")
    return checked


def _spelled(name: str, known: Mapping[str, Sequence[float]]) -> str:
    """A kind as the command spells it, such as ``knn:10:0.1``."""
    if name not in known:
        raise ConfigurationError(f"`{name}` is not one of {', '.join(known)}")
    return ":".join([name, *map(str, known[name])])


def _is_of_head(state: Any) -> bool:
    return isinstance(state, Mapping) and {"classes", "dim", "seed", "steps", "epochs", "blocks"} <= state.keys()


def _ranks(group: Any, host: str | None) -> tuple[int, int, Any]:
    """This rank, how many there are, and what connects them, if several."""
    rank, ranks = _own_rank(group)
    if ranks == 1:
        return rank, ranks, None
    distributed = torch.distributed
    host = own_address() if host is None else host
    listener = _pelton.Listener(host)
    every: list[Any] = [None] * ranks
    distributed.all_gather_object(every, (host, listener.port, secrets.randbits(128)), group=group)
    return rank, ranks, (listener, rank, [(host, port) for host, port, _ in every], every[0][2])


def _own_rank(group: Any) -> tuple[int, int]:
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(group), distributed.get_world_size(group)
