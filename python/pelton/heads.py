# mypy: allow-subclassing-any, allow-untyped-decorators, allow-untyped-calls
"""Heads over very many classes behind nets of PyTorch.

>>> from pelton.heads import KnnSoftmax
>>> head = KnnSoftmax(classes=100_000, dim=128)  # in place of Linear and cross_entropy
>>> loss = head(net(pictures), labels)  # doctest: +SKIP
>>> loss.backward()  # doctest: +SKIP
>>> optimizer.step(); head.step(lr=0.1)  # doctest: +SKIP

``head.weight`` is a parameter like any other: an optimiser may move it instead of ``head.step``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import _pelton, choose, optim
from ._keyed import MASK, first_weights
from ._partial import Number, partial_cross_entropy, product
from ._pelton import ConfigurationError, StateError
from ._ranks import Ranks


class Best(NamedTuple):
    """The best classes of each example, the best first: scores and numbers, each ``[examples, k]``."""

    scores: Tensor
    classes: Tensor


class ClassIndex:
    """The best classes of queries without looking at all of them, as `KnnSoftmax.index` makes it.

    An inverted file (Jégou et al., 2011, section 4, without the quantisation): lists of similar classes, of which as many are
    looked at as find the best class of 99.5 % of sample queries. Scores are exact.
    """

    def __init__(self, native: Any) -> None:
        self._native = native

    @property
    def recall(self) -> float:
        """The share of sample queries, which did not choose how much is looked at, whose best class is found."""
        return float(self._native.recall)

    def search(self, x: Tensor, k: int = 1) -> Best:
        """The ``k`` best classes of features ``[examples, d]``, best first; −1 where fewer are found. It computes on the CPU."""
        if x.ndim != 2 or x.shape[1] != self._native.d or k < 1:
            raise ConfigurationError(f"features have the shape {list(x.shape)} and k is {k}; give [examples, {self._native.d}] and at least 1")
        scores, classes = self._native.search(x.detach().float().cpu().contiguous().numpy(), k)
        return Best(torch.from_numpy(scores), torch.from_numpy(classes))

    def state_dict(self) -> dict[str, Any]:
        """All of it, to be saved with a head: numbers and tensors, as large as the weights; `load_index` takes it."""
        numbers, places, rows = self._native.parts()
        arrays = dict(zip(("classes", "starts", "centres", "rows", "mean"), map(torch.from_numpy, [*places, *rows])))
        return {"numbers": list(numbers), **arrays}


def load_index(state: Mapping[str, Any]) -> ClassIndex:
    """The index whose ``state_dict()`` this is."""
    try:
        numbers, (*places, centres, rows, mean) = state["numbers"], (state[name].contiguous().numpy() for name in ("classes", "starts", "centres", "rows", "mean"))
    except (KeyError, TypeError, AttributeError) as error:
        raise StateError("this is not the state of an index over classes") from error
    return ClassIndex(_pelton.ClassIndex.of_parts(tuple(numbers), places, [centres, rows, mean], torch.get_num_threads()))


def load_head(run: str | os.PathLike[str], **options: Any) -> KnnSoftmax:
    """The head of the folder of a finished run of ``pelton train classify``: its weights, its logits and the mean that it subtracts.

    Row i is class i of the run's ``classes.json``. The parameters of the net in front of it are in ``model.safetensors``, under
    the names that PyTorch has. ``options`` are further ones of `KnnSoftmax`; without a ``kind`` all classes take part in a step.
    """
    weights, mean, logits = _pelton.head_of_run(os.fspath(run))
    kind: dict[str, Any] = {"logits": "product"}
    if logits is not None:
        is_plain = tuple(logits[1]) == (1.0, 0.0, 0.0)
        kind = {"scale": logits[0], **({} if is_plain else {"logits": "combined", "margin": tuple(logits[1])})}
    given = {"kind": "full", **kind, "centre": len(mean) > 0, **options}
    head = KnnSoftmax(*weights.shape, **given)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(weights)[head.rows.start : head.rows.stop])
        if head.mean is not None and mean:
            head.mean.copy_(torch.tensor(mean))
            head._seen.fill_(1)
    return head


class KnnSoftmax(torch.nn.Module):
    """The cross-entropy over very many classes, using a part of them in each training step: `pelton.partial_cross_entropy` with
    its weights and its chooser.

    ``kind`` says which classes take part besides the labels of a batch, up to the share ``budget`` of all: ``"knn"``, ``"near"`` and
    ``"sampled"`` are `pelton.choose.Knn` (with ``k`` and ``drawn``), `Near` and `Sampled`; ``"full"`` are all. With ``correct``, drawn
    classes stand for those that do not take part, so that the loss estimates that over all.

    ``logits`` are ``"cosine"`` (``scale`` · cos θ), ``"cosface"`` (cos θ − ``margin`` for the right class), ``"arcface"``
    (cos(θ + ``margin``)), ``"combined"`` (cos(m1·θ + m2) − m3 for ``margin=(m1, m2, m3)``, as insightface has it), or
    ``"product"`` (w·x). With ``centre``, the mean of a batch's features is subtracted first, and outside of training a
    running mean, ``mean``: with random class weights the features of all classes otherwise turn to one direction for the first
    hundreds of steps. `begin_at_means` avoids the same by better first weights.

    ``class_weights``, ``label_smoothing``, ``softcap``, ``z_loss``, ``reduction`` and ``sparse`` are those of
    `pelton.partial_cross_entropy`; ``class_weights`` count in training only. An example with the label −1 or −100 has no loss.

    ``weight`` is a parameter ``[classes, dim]`` of the ``dtype``, on the ``device``, with first rows and draws by ``seed``, for an optimiser of your choice, or for `step`: SGD with ``momentum``, LARS where
    ``trust`` is given, or AdamW where ``betas`` are, with ``eps`` (`pelton.optim`); all of them and ``weight_decay`` can be changed
    between steps. ``sparse`` gives its gradient by rows, which `step`, `pelton.optim` and `torch.optim.SparseAdam` take.

    With ``group``, a process group or True for the default one, each rank has the classes ``rows``, with their rows of ``weight``; all
    ranks make the same calls, each with its own examples. `DistributedDataParallel` then wraps the net alone.
    """

    mean: Tensor | None
    class_weights: Tensor | None
    _seen: Tensor

    def __init__(
        self,
        classes: int,
        dim: int,
        kind: str = "knn",
        *,
        k: int = 10,
        budget: float = 0.1,
        drawn: float = 0.5,
        correct: bool = True,
        centre: bool = False,
        logits: str = "cosine",
        scale: float = 16.0,
        margin: float | tuple[float, float, float] = 0.1,
        class_weights: Any = None,
        label_smoothing: float = 0.0,
        softcap: float | None = None,
        z_loss: float = 0.0,
        reduction: str = "mean",
        sparse: bool = False,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float = 1e-8,
        seed: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        group: Any = None,
    ) -> None:
        made = {name: value for name, value in locals().items() if name not in ("self", "__class__", "device", "group")}
        super().__init__()
        if kind in ("selective", "mach"):
            raise ConfigurationError(f"a head of kind {kind!r} is one of the command: pelton train classify --head {kind}")
        self._margin = _margin(logits, margin)
        self.scale = None if logits == "product" else scale
        self.classes, self.dim, self.kind, self.logits, self.seed = classes, dim, kind, logits, seed
        self.label_smoothing, self.softcap, self.z_loss = label_smoothing, softcap, z_loss
        self.reduction, self.sparse = reduction, sparse
        self.momentum, self.weight_decay, self.trust = momentum, weight_decay, trust
        self.betas, self.eps = betas, eps
        if classes < 1 or dim < 1:
            raise ConfigurationError(f"{classes} classes of {dim} features: there must be at least one of each")
        self._ranks = Ranks.of(group)
        if self._ranks is not None:
            _agree(self._ranks, {**made, "class_weights": None})
            if self._ranks.size > classes:
                raise ConfigurationError(f"{classes} classes cannot be divided over {self._ranks.size} ranks")
        weights = [block for block in first_weights(seed, self.rows, dim, torch.device(device or "cpu"))]
        self.weight = torch.nn.Parameter(torch.cat(weights).to(dtype or torch.get_default_dtype()))
        self.register_buffer("class_weights", None)
        if class_weights is not None:
            self.class_weights = _checked_weights(class_weights, classes)[self.rows.start : self.rows.stop].to(self.weight.device)
        self.register_buffer("mean", torch.zeros(dim, device=device) if centre else None)
        self.register_buffer("_seen", torch.zeros((), dtype=torch.int64, device=device), persistent=centre)
        self.chooser = self._made_chooser(kind, (k, budget, drawn, correct))
        if self.chooser is not None:
            self.chooser.register_forward_hook(self._chosen)
        if device is not None:
            self.to(device)
        #: Classes of this rank that took part in the last step.
        self.active = len(self.rows)
        self._optimizer: Any = None
        self._is_compared = False

    def _made_chooser(self, kind: str, settings: tuple[int, float, float, bool]) -> choose.Chooser | None:
        k, budget, drawn, correct = settings
        own, seed = len(self.rows), self.seed if self._ranks is None else self.seed ^ self._ranks.rank << 40
        group = None if self._ranks is None else self._ranks.group or True
        makers: dict[str, Callable[[], choose.Chooser | None]] = {
            "full": lambda: None,
            "knn": lambda: choose.Knn(own, k, budget, drawn, correct=correct, seed=seed, group=group),
            "near": lambda: choose.Near(own, budget, scale=self.scale, seed=seed),
            "sampled": lambda: choose.Sampled(own, budget, correct=correct, seed=seed),
        }
        if kind not in makers:
            raise ConfigurationError(f"`{kind}` is not one of {', '.join(makers)}")
        return makers[kind]()

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """The loss of features ``[..., dim]`` with labels ``[...]``, or ``[..., k]`` for several a row, over the examples of all ranks.

        In training the classes that take part are chosen for this batch; in ``eval()`` mode or under ``no_grad`` all take part."""
        if not isinstance(labels, Tensor):
            raise ConfigurationError(f"labels are a {type(labels).__name__}; give a tensor of PyTorch")
        labels = torch.where(labels == -1, -100, labels)
        trains = self.training and torch.is_grad_enabled()
        if self._ranks is not None and not self._is_compared:
            self._compare(labels)
        features = self._centred(features, trains) if isinstance(features, Tensor) else features
        chooser = None
        if trains and self.chooser is not None:
            if isinstance(self.chooser, choose.Knn) and len(self.chooser.graph) != len(self.rows):
                # Each is the only neighbour of itself: others are drawn.
                own = torch.arange(self.rows.start, self.rows.stop, dtype=torch.int32, device=self.weight.device)
                self.chooser.graph = own[:, None].repeat(1, self.chooser.k)
            chooser = self.chooser
        elif self._optimizer is not None and not trains:
            self.settle()
        return partial_cross_entropy(
            features,
            self.weight,
            labels,
            chooser,
            label_smoothing=self.label_smoothing,
            softcap=self.softcap,
            z_loss=self.z_loss,
            scale=self.scale,
            margin=self._margin,
            class_weights=self.class_weights if trains else None,
            reduction=self.reduction,
            sparse=self.sparse and chooser is not None,
            group=None if self._ranks is None else self._ranks.group or True,
        )

    def _chosen(self, chooser: choose.Chooser, given: Any, found: tuple[Tensor, Tensor | None]) -> None:
        """Before the rows are used."""
        self.active = len(found[0])
        if isinstance(self._optimizer, optim.SGD):
            self._optimizer.wake(self.weight, found[0])

    def _centred(self, features: Tensor, trains: bool) -> Tensor:
        if self.mean is None:
            return features
        if not trains:
            return features - self.mean.to(features.dtype)
        flat = features.reshape(-1, self.dim)
        mean = flat.detach().float().mean(0) if self._ranks is None else _mean(flat.detach().float(), self._ranks)
        moved = torch.where(self._seen == 0, mean, torch.lerp(self.mean, mean, 0.01))
        # Of a batch that overflows nothing is kept.
        is_finite = mean.isfinite().all()
        self.mean = torch.where(is_finite, moved, self.mean)
        self._seen += is_finite
        centred: Tensor = _Centred.apply(flat, self._ranks)
        return centred.reshape(features.shape)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """What `step` moves the weights with; made when it is first used."""
        kind: Any = optim.AdamW if self.betas is not None else optim.LARS if self.trust is not None else optim.SGD
        if self.betas is not None and self.trust is not None:
            raise ConfigurationError("`trust` is of LARS and `betas` are of AdamW: give one of them")
        if type(self._optimizer) is not kind or self._optimizer.param_groups[0]["params"][0] is not self.weight:
            if self._optimizer is not None and type(self._optimizer) is not kind:
                self.settle()
            group = None if self._ranks is None or kind is not optim.LARS else self._ranks.group or True
            self._optimizer = kind([self.weight], lr=0.0, **({"group": group} if group is not None else {}))
        changes: dict[str, Any] = {"weight_decay": self.weight_decay}
        if kind is optim.AdamW:
            changes |= {"betas": self.betas, "eps": self.eps}
        else:
            changes |= {"momentum": self.momentum, **({"trust": self.trust} if kind is optim.LARS else {})}
        self._optimizer.param_groups[0].update(changes)
        found: torch.optim.Optimizer = self._optimizer
        return found

    @torch.no_grad()
    def step(self, lr: float, scale: float | None = None) -> bool:
        """Moves the weights by their gradient with the rate ``lr``, and drops it.

        ``scale`` is the factor on the losses, as ``GradScaler.get_scale()`` returns it until ``update()``: a step with a gradient that
        is not finite is then left out. Returns whether the step was taken."""
        gradient = self.weight.grad
        if gradient is None:
            raise RuntimeError("backward() was not called on a loss of this head since its last step; call it first")
        taken = True
        values = gradient.coalesce().values() if gradient.is_sparse else gradient
        if scale is None and values.device.type == "cpu" and not values.sum().isfinite():
            self.weight.grad = None
            raise ValueError("features or their logits are not finite, and no step was taken; lower the learning rate")
        if scale is not None:
            bad = (~values.isfinite()).any().float()
            taken = not bool(bad if self._ranks is None else self._ranks.max(bad))
            self.weight.grad = gradient / scale
        if taken:
            optimizer = self.optimizer
            optimizer.param_groups[0]["lr"] = lr
            optimizer.step()
        self.weight.grad = None
        return taken

    def settle(self) -> None:
        """Moves all rows as far as the momentum of `step` has brought them; evaluation, `predict` and ``state_dict()`` do it too."""
        if isinstance(self._optimizer, optim.SGD):
            self._optimizer.settle()

    @torch.no_grad()
    def begin_at_means(self, batches: Iterable[tuple[Tensor, Tensor]]) -> int:
        """Makes the mean of the unit features of each class its weights, from ``batches`` of features and labels.

        Call it before the first step, with the features of the untrained net in ``eval()`` mode; a few examples of
        each class are enough. A head with ``centre`` reads them twice, and keeps the batches of an iterator in memory
        for that. All ranks give the same number of batches. Returns how many classes have no example, or none with a
        direction: they keep their weights."""
        if self.mean is not None:
            batches = list(batches) if iter(batches) is batches else batches
            sums = torch.zeros(self.dim + 1, device=self.weight.device)
            for features, _ in batches:
                sums += torch.cat([features.float().sum(0), features.new_tensor([len(features)]).float()])
            sums = sums if self._ranks is None else self._ranks.sum(sums)
            self.mean, self._seen = sums[:-1] / sums[-1].clamp(min=1), torch.ones_like(self._seen)
        sums = torch.zeros(len(self.rows) + 1, self.dim + 1, device=self.weight.device)
        for features, labels in batches:
            features, labels = features.float(), labels.to(features.device)
            if self._ranks is not None:
                features, labels = (torch.cat(self._ranks.gather(of)) for of in (features, labels))
            unit = torch.nn.functional.normalize(features if self.mean is None else features - self.mean, dim=1)
            rows = labels - self.rows.start
            rows = torch.where((rows >= 0) & (rows < len(self.rows)) & (unit != 0).any(1), rows, len(self.rows))
            sums.index_add_(0, rows, torch.cat([unit, torch.ones_like(unit[:, :1])], 1))
        means = sums[:-1, :-1] / sums[:-1, -1:].clamp(min=1)
        is_missing = (means == 0).all(1, keepdim=True)
        self.weight.copy_(torch.where(is_missing, self.weight.float(), means))
        self._optimizer = None
        missing = is_missing.sum()
        return int(missing if self._ranks is None else self._ranks.sum(missing))

    def rebuild_graph(self) -> None:
        """Finds the neighbours of every class among the current weights (`pelton.choose.Knn.rebuild`).

        Call it at the start of each epoch but the first, whose weights are random; until then classes are drawn. Does nothing for
        kinds without a graph."""
        self.settle()
        if isinstance(self.chooser, choose.Knn):
            self.chooser.rebuild(self.weight)

    @torch.no_grad()
    def predict(self, features: Tensor, k: int = 1) -> Best:
        """The ``k`` best classes of each row of this rank's features ``[examples, dim]``, among the classes of all ranks; scores are
        cosines or products. It looks at all classes; `index` does not."""
        if not 0 < k <= self.classes:
            raise ConfigurationError(f"the {k} best of {self.classes} classes: give a number from 1 to {self.classes}")
        self.settle()
        features = self._centred(features, trains=False).to(self.weight.dtype)
        weight, first = self.weight, self.rows.start
        if self._ranks is not None:
            counts = [len(part) for part in self._ranks.gather(features)]
            own = sum(counts[: self._ranks.rank])
            features, own_part = torch.cat(self._ranks.gather(features)), slice(own, own + counts[self._ranks.rank])
        if self.scale is not None:
            features = torch.nn.functional.normalize(features, dim=1)
        found = []
        for some in features.split(max(1, (1 << 24) // len(weight))):
            if self.scale is None:
                scores = product(some, weight.t())
            else:
                scores = product(some, torch.nn.functional.normalize(weight, dim=1).t())
            best = scores.topk(min(k, len(weight)), dim=1)
            found.append((best.values, best.indices + first))
        scores, classes = (torch.cat(part) for part in zip(*found, strict=True)) if found else (features[:, :0], features[:, :0].long())
        if self._ranks is not None:
            every = [torch.cat(self._ranks.gather(of.t().contiguous())).t() for of in (scores, classes)]
            order = every[0].topk(k, dim=1).indices
            scores, classes = (of.gather(1, order)[own_part] for of in every)
        return Best(scores, classes)

    @torch.no_grad()
    def index(self, sample: Tensor | None = None) -> ClassIndex:
        """An index of the current weights, to search without looking at all classes; on the CPU and one rank. ``sample`` are
        features of the kind that will be searched for, which decide how much is looked at; without any, the weights are."""
        if self._ranks is not None:
            raise ConfigurationError("an index needs all classes; load the joined state in one process for that")
        self.settle()
        given = [of.detach().float().cpu().contiguous() for of in (self.weight, self.weight[:0] if sample is None else sample)]
        if self.mean is not None and sample is not None:
            given[1] = given[1] - self.mean.cpu()
        weights, queries = (np.from_dlpack(of) for of in given)
        mean = [] if self.mean is None else self.mean.tolist()
        return ClassIndex(_pelton.ClassIndex(weights, self.scale is not None, queries, mean, self.seed & MASK, torch.get_num_threads()))

    @torch.no_grad()
    def add(self, weights: int | Tensor) -> range:
        """Adds classes, with these weights ``[classes, dim]``, or so many with random ones; returns their numbers. ``weight`` is
        another parameter afterwards, for which an optimiser of your own must be made again; ``class_weights`` of new ones are 1."""
        self._alone("add")
        before = self.classes
        if isinstance(weights, int):
            numbers = range(before, before + weights)
            weights = torch.cat([block for block in first_weights(self.seed, numbers, self.dim, self.weight.device)])
        elif weights.ndim != 2 or weights.shape[1] != self.dim:
            raise ConfigurationError(f"weights have the shape {list(weights.shape)}; give [classes, {self.dim}], or how many to add")
        self._take(torch.cat([self.weight, weights.to(self.weight)]), None)
        return range(before, self.classes)

    @torch.no_grad()
    def remove(self, classes: Sequence[int] | Tensor) -> Tensor:
        """Removes these classes. Returns the new number of each old class, −1 of those removed, ``[classes]``. ``weight`` is another
        parameter afterwards, as with `add`."""
        self._alone("remove")
        gone = torch.as_tensor(classes, dtype=torch.int64, device=self.weight.device)
        if gone.numel() and not 0 <= int(gone.min()) <= int(gone.max()) < self.classes:
            raise ConfigurationError(f"classes {int(gone.min())} to {int(gone.max())} are not all among the {self.classes}")
        stays = torch.ones(self.classes, dtype=torch.bool, device=self.weight.device).index_fill_(0, gone, False)
        if not stays.any():
            raise ConfigurationError("no class would be left")
        self._take(self.weight[stays], stays)
        return torch.where(stays, stays.cumsum(0) - 1, -1)

    def _alone(self, name: str) -> None:
        if self._ranks is not None:
            raise ConfigurationError(f"`{name}` needs all classes; load the joined state in one process for that")
        self.settle()

    def _take(self, weight: Tensor, stays: Tensor | None) -> None:
        """Other classes than before."""
        self.weight, self._optimizer, self.classes = torch.nn.Parameter(weight), None, len(weight)
        if self.class_weights is not None:
            more = self.class_weights.new_ones(len(weight) - len(self.class_weights)) if stays is None else None
            self.class_weights = torch.cat([self.class_weights, more]) if more is not None else self.class_weights[stays]
        if self.chooser is not None:
            self.chooser.classes = len(weight)
            if isinstance(self.chooser, choose.Knn):
                # Drawn until the next graph.
                self.chooser.graph = self.chooser.graph[:0]

    @property
    def rows(self) -> range:
        """The classes of this rank."""
        return range(self.classes) if self._ranks is None else self._ranks.share(self.classes)

    def get_extra_state(self) -> dict[str, Any]:
        """What ``state_dict()`` holds besides tensors: where the rows begin, and the state of `step`."""
        self.settle()
        state = None if self._optimizer is None else self._optimizer.state_dict()
        return {"classes": self.classes, "dim": self.dim, "logits": self.logits, "rows": [self.rows.start, self.rows.stop], "optimizer": state}

    def set_extra_state(self, state: Any) -> None:
        """Takes that; ``load_state_dict()`` brings it."""
        if not _is_of_head(state):
            raise StateError("this is not the state of a head over many classes")
        if (state["classes"], state["dim"]) != (self.classes, self.dim):
            raise StateError(
                f"the state has {state['classes']} classes and {state['dim']} features, "
                f"but this head has {self.classes} and {self.dim}"
            )
        if state["logits"] != self.logits:
            raise StateError(f"the state belongs to a head with logits {state['logits']!r}, and this one has {self.logits!r}")
        if state["rows"] not in ([0, self.classes], [self.rows.start, self.rows.stop]):
            raise StateError(
                f"the state has the classes {state['rows'][0]} to {state['rows'][1] - 1}, and this rank {self.rows.start} to "
                f"{self.rows.stop - 1}; put the states of all ranks together with pelton.heads.join_states"
            )
        self._optimizer = None
        if state["optimizer"] is not None:
            saved = {"param_groups": state["optimizer"]["param_groups"], "state": {}}
            for number, kept in state["optimizer"]["state"].items():
                saved["state"][number] = {name: self._own(value, state) if name in _BY_ROW else value for name, value in kept.items()}
            optimizer: Any = self.optimizer
            optimizer.load_state_dict(saved)

    def _own(self, value: Tensor, state: Mapping[str, Any]) -> Tensor:
        """This rank's rows of a tensor of all, or of its own."""
        first = state["rows"][0]
        return value[self.rows.start - first : self.rows.stop - first]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        extra = state_dict.get(prefix + "_extra_state")
        if extra is not None and _is_of_head(extra) and extra["classes"] == self.classes and extra["rows"] == [0, self.classes]:
            # Of all ranks.
            for name in ("weight", "class_weights", "chooser.graph"):
                value = state_dict.get(prefix + name)
                if value is not None and len(value) == self.classes:
                    state_dict[prefix + name] = self._own(value, extra)
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _compare(self, labels: Tensor) -> None:
        """Whether ranks have weights of their own: `DistributedDataParallel` gives all those of the first."""
        assert self._ranks is not None
        sums = torch.stack(self._ranks.gather(self.weight.detach().double().sum()[None]))
        if len(self.weight) > 0 and (sums == sums[0]).all() and sums[0] != 0:
            raise ConfigurationError(
                "all ranks have the same weights, as DistributedDataParallel makes them; wrap the net alone, and leave the head out"
            )
        self._is_compared = True

    def extra_repr(self) -> str:
        ranks = f", classes {self.rows.start} to {self.rows.stop - 1} here" if self._ranks is not None else ""
        return f"classes={self.classes}, dim={self.dim}, kind={self.kind}, logits={self.logits}{ranks}"


#: What an optimiser of `step` keeps of each row.
_BY_ROW = ("velocity", "seen", "taken", "mean", "square")


def join_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Joins the state dicts that all ranks saved into one that any number of ranks can load.

    Each rank then takes its rows. Anything that does not belong to a head is taken from the first. Where a row has waited for
    `step` is not joined: ``state_dict()`` has moved all rows as far as they come."""
    joined = dict(states[0])
    for name, value in states[0].items():
        if not _is_of_head(value):
            continue
        prefix, extras = name[: -len("_extra_state")], [state[name] for state in states]
        order = sorted(range(len(states)), key=lambda at: extras[at]["rows"][0])
        ends = [0, *(extras[at]["rows"][1] for at in order)]
        if [extras[at]["rows"][0] for at in order] != ends[:-1] or ends[-1] != value["classes"]:
            raise StateError(f"the states have the classes {[extras[at]['rows'] for at in order]}; give those of all ranks, each once")
        for part in ("weight", "class_weights", "chooser.graph"):
            if joined.get(prefix + part) is not None:
                joined[prefix + part] = torch.cat([states[at][prefix + part] for at in order])
        optimizer = value["optimizer"]
        if optimizer is not None:
            kept = {
                number: {
                    of: torch.cat([extras[at]["optimizer"]["state"][number][of] for at in order]) if of in _BY_ROW else old
                    for of, old in state.items()
                }
                for number, state in optimizer["state"].items()
            }
            optimizer = {**optimizer, "state": kept}
        joined[name] = {**value, "rows": [0, value["classes"]], "optimizer": optimizer}
    return joined


class _Centred(torch.autograd.Function):
    """Features without the mean of all ranks' features, and the gradient without its mean."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks | None) -> Tensor:
        ctx.ranks = ranks
        return x - _mean(x, ranks)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_x: Tensor) -> tuple[Tensor, None]:
        return by_x - _mean(by_x, ctx.ranks), None


def _mean(x: Tensor, ranks: Ranks | None) -> Tensor:
    if ranks is None:
        return x.mean(0)
    sums = ranks.sum(torch.cat([x.sum(0), x.new_tensor([len(x)])]))
    return sums[:-1] / sums[-1]


def _margin(logits: str, margin: float | tuple[float, float, float]) -> Number | tuple[Number, Number, Number] | None:
    """What `partial_cross_entropy` takes for these logits."""
    three = () if isinstance(margin, (int, float)) else tuple(map(float, margin))
    if logits in ("cosface", "arcface", "combined") and len(three) != (3 if logits == "combined" else 0):
        raise ConfigurationError(
            f"margin={margin} with logits={logits!r}: give one number to cosface and arcface, and (m1, m2, m3) to combined"
        )
    of_kind: dict[str, Any] = {"product": None, "cosine": None, "cosface": margin, "arcface": (1.0, margin, 0.0), "combined": three}
    if logits not in of_kind:
        raise ConfigurationError(f"`{logits}` is not one of {', '.join(of_kind)}")
    found: Number | tuple[Number, Number, Number] | None = of_kind[logits]
    return found


def _checked_weights(weights: Any, classes: int) -> Tensor:
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


def _agree(ranks: Ranks, settings: dict[str, Any]) -> None:
    """All ranks make the same head."""
    every: list[Any] = [None] * ranks.size
    torch.distributed.all_gather_object(every, settings, group=ranks.group)
    for name, value in settings.items():
        for rank, other in enumerate(every):
            if other[name] != value:
                raise ConfigurationError(f"{name} is {value!r} on rank {ranks.rank} and {other[name]!r} on rank {rank}; give all ranks the same")


def _is_of_head(state: Any) -> bool:
    return isinstance(state, Mapping) and {"classes", "dim", "logits", "rows", "optimizer"} <= state.keys()
