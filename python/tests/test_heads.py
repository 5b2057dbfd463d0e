"""Heads next to what PyTorch makes of the same weights: losses, gradients, steps, training, states, and ranks."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pelton

torch = pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")
from torch.nn import functional as F  # noqa: E402

from pelton.heads import KnnSoftmax, join_states  # noqa: E402

CLASSES, DIM = 103, 24
KINDS = {
    "full": {},
    "near": {"budget": 0.4},
    "knn": {"k": 5, "budget": 0.4},
    "sampled": {"budget": 0.4},
    "selective": {"trees": 3, "budget": 0.5},
    "mach": {"buckets": 20, "repetitions": 3},
}


def examples(count: int, seed: int = 0, classes: int = CLASSES) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(count, DIM, generator=random), torch.randint(classes, (count,), generator=random)


#: Margins next to their logits.
MARGINS: dict[str, Any] = {"cosface": 0.1, "arcface": 0.1, "combined": (1.1, 0.3, 0.15)}


def logits_of(
    features: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, logits: str, scale: float = 16.0, margin: Any = None
) -> torch.Tensor:
    """The logits of the definitions."""
    if logits == "product":
        return features @ weight.T
    cosine = F.normalize(features) @ F.normalize(weight).T
    if logits in MARGINS:
        margin = MARGINS[logits] if margin is None else margin
        m1, m2, m3 = {"cosface": (1, 0, margin), "arcface": (1, margin, 0)}.get(logits, margin)
        angle = torch.arccos(cosine.clamp(-1 + 1e-7, 1 - 1e-7))
        right = F.one_hot(labels, len(weight)) > 0
        cosine = torch.where(right, torch.cos(m1 * angle + m2) - m3, cosine)
    return scale * cosine


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Equal but for roundings of single precision, relative to the largest number."""
    found, expected = torch.as_tensor(found).double(), torch.as_tensor(expected).double()
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= tolerance * (1e-3 + expected.abs().max())


@pytest.mark.parametrize("logits", ["cosine", "cosface", "arcface", "combined", "product"])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_the_full_head_is_cross_entropy_and_its_step_that_of_sgd(logits: str, device: str | None) -> None:
    margin = MARGINS.get(logits, 0.1)
    head = KnnSoftmax(CLASSES, DIM, "full", logits=logits, margin=margin, momentum=0.9, weight_decay=1e-3, device=device)
    weight = head.weight.double().requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=1.0, momentum=0.9, weight_decay=1e-3)
    for step, lr in enumerate([0.5, 0.5, 0.2]):
        features, labels = examples(33, step)
        expected_features = features.double().requires_grad_()
        features.requires_grad_()
        loss = head(features, labels)
        loss.backward()
        of_labels = logits_of(expected_features, weight, labels, logits)
        expected = F.cross_entropy(of_labels, labels)
        optimizer.zero_grad()
        expected.backward()
        close(loss.detach(), expected.detach())
        close(features.grad, expected_features.grad)
        best = logits_of(expected_features, weight, labels, "product" if logits == "product" else "cosine").argmax(1)
        assert head.correct == (best == labels).sum()
        assert head.active == CLASSES
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
        head.step(lr)
        close(head.weight, weight.detach())


def test_half_precision_is_near_and_measures_as_single() -> None:
    whole = KnnSoftmax(CLASSES, DIM, "full", seed=3)
    half = KnnSoftmax(CLASSES, DIM, "full", seed=3, precision="bfloat16")
    features, labels = examples(33, 1)
    found = []
    for head in (whole, half):
        own = features.clone().requires_grad_()
        loss = head(own, labels)
        loss.backward()
        found.append((loss.detach(), own.grad))
    assert found[0][0] != found[1][0]
    close(found[1][0], found[0][0], 1e-3)
    close(found[1][1], found[0][1], 2e-2)
    with torch.no_grad():
        assert whole(features, labels) == half(features, labels)
    for head in (whole, half):
        head.step(0.5)
    close(half.weight, whole.weight, 2e-2)
    assert half.weight.dtype == torch.float32


@pytest.mark.parametrize("logits", ["cosine", "cosface", "arcface", "combined"])
@pytest.mark.parametrize("scale", [1.0, 64.0, 128.0, 1000.0])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_large_scales_are_cross_entropy_too(logits: str, scale: float, device: str | None) -> None:
    # With few classes no cosine is near 1, and e^(scale * (cosine - 1)) underflows in single precision.
    margin = MARGINS["combined"] if logits == "combined" else 0.3
    head = KnnSoftmax(5, DIM, "full", logits=logits, scale=scale, margin=margin, device=device)
    features, labels = examples(9, classes=5)
    expected_features, weight = features.double().requires_grad_(), head.weight.double()
    features.requires_grad_()
    loss = head(features, labels)
    loss.backward()
    expected = F.cross_entropy(logits_of(expected_features, weight, labels, logits, scale, margin), labels)
    expected.backward()
    assert expected > 0.5
    close(loss.detach(), expected.detach(), 1e-5 + 1e-6 * scale)
    close(features.grad, expected_features.grad, 1e-5 + 1e-6 * scale)
    head.eval()
    close(head(features, labels), expected.detach(), 1e-5 + 1e-6 * scale)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_the_full_head_with_adamw_is_that_of_torch(device: str | None) -> None:
    options: dict[str, Any] = {"betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.1}
    head = KnnSoftmax(CLASSES, DIM, "full", device=device, **options)
    weight = head.weight.clone().requires_grad_()
    optimizer = torch.optim.AdamW([weight], lr=1.0, **options)
    for step, lr in enumerate([0.01, 0.02, 0.02, 0.01, 0.03, 0.01, 0.01, 0.001]):
        features, labels = examples(33, step)
        loss = head(features.requires_grad_(), labels)
        (2 * loss).backward()
        optimizer.zero_grad()
        expected = F.cross_entropy(logits_of(features.detach(), weight, labels, "cosine"), labels)
        (2 * expected).backward()
        close(loss.detach(), expected.detach())
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
        head.step(lr)
        close(head.weight, weight.detach(), 2e-5)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_rows_that_take_no_part_stay_with_adamw(device: str | None) -> None:
    head = KnnSoftmax(CLASSES, DIM, "sampled", budget=0.4, device=device, betas=(0.9, 0.99), seed=3)
    weight, taken = head.weight.double(), torch.zeros(CLASSES, 1)
    mean, square = torch.zeros_like(weight), torch.zeros_like(weight)
    for step in range(9):
        head(examples(8, step)[0].requires_grad_(), examples(8, step)[1]).backward()
        # The mean of gradients shows which rows had a gradient.
        head.step(0.01)
        blocks = {name: torch.as_tensor(rows).clone() for name, _, _, rows in head.get_extra_state()["blocks"]}
        active = (blocks["steps"] != taken).flatten()
        assert torch.equal(blocks["steps"], taken + active[:, None]) and active.sum() == head.active < CLASSES
        taken = blocks["steps"]
        gradient = (blocks["velocity"].double() - 0.9 * mean) / 0.1
        mean = torch.where(active[:, None], blocks["velocity"].double(), mean)
        close(blocks["velocity"], mean)
        square = torch.where(active[:, None], 0.99 * square + 0.01 * gradient**2, square)
        close(blocks["squares"], square, 1e-4)
        unbiased = [x / (1 - beta**taken.double()).clamp(min=1e-9) for x, beta in ((mean, 0.9), (square, 0.99))]
        moved = weight - 0.01 * unbiased[0] / (unbiased[1].sqrt() + 1e-8)
        weight = torch.where(active[:, None], moved, weight)
        close(head.weight, weight, 1e-4)
        weight = head.weight.double()


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("kind", ["full", "knn"])
def test_class_weights_are_those_of_cross_entropy(kind: str, device: str | None) -> None:
    weights = torch.rand(CLASSES, generator=torch.Generator().manual_seed(1))
    weights[::3] = 0
    options: dict[str, Any] = {"momentum": 0.0, "device": device, "class_weights": weights}
    if kind == "knn":
        # All classes take part, in two batches of a step.
        options.update(budget=1.0, drawn=0)
    head = KnnSoftmax(CLASSES, DIM, kind, **options)
    features, labels = examples(40)
    before, of_double = head.weight.double().requires_grad_(), features.double().requires_grad_()
    features.requires_grad_()
    head.select(labels)
    for part in (slice(0, 15), slice(15, 40)):
        loss = head(features[part], labels[part])
        expected = F.cross_entropy(
            logits_of(of_double[part], before, labels[part], "cosine"), labels[part], weight=weights.double()
        )
        close(loss.detach(), expected.detach())
        loss.backward()
        expected.backward()
    head.step(1.0)
    close(features.grad, of_double.grad)
    close(head.weight, before.detach() - before.grad)
    # If no example counts, nothing moves.
    moved = head.weight.clone()
    loss = head(features.detach()[:4].requires_grad_(), torch.tensor([0, 3, 6, 9]))
    loss.backward()
    head.step(1.0)
    assert loss == 0 and torch.equal(head.weight, moved)
    # Nor are evaluations weighted.
    head.eval()
    close(head(features, labels), F.cross_entropy(logits_of(features, moved, labels, "cosine"), labels).detach())


def test_wrong_class_weights_and_betas() -> None:
    for device in (None, "cpu"):
        for weights, said in (
            (torch.ones(3), "one number to each of the 103 classes"),
            ([1.0] * 102 + [-1.0], r"class_weights\[102\] is -1"),
            ([1.0] * 102 + [float("inf")], r"class_weights\[102\] is inf"),
            (torch.zeros(CLASSES), "are all 0"),
        ):
            with pytest.raises(pelton.ConfigurationError, match=said):
                KnnSoftmax(CLASSES, DIM, class_weights=weights, device=device)
        for options, said in (({"betas": (0.9, 1.0)}, "below 1"), ({"betas": (0.9, 0.99), "trust": 0.1}, "one of them")):
            head = KnnSoftmax(CLASSES, DIM, device=device, **options)
            features, labels = examples(4)
            head(features.requires_grad_(), labels).backward()
            with pytest.raises(pelton.ConfigurationError, match=said):
                head.step(0.1)


@pytest.mark.parametrize("correct", [False, True])
def test_knn_is_the_softmax_of_its_active_classes(correct: bool) -> None:
    k, budget = 5, 0.4
    head = KnnSoftmax(CLASSES, DIM, "knn", k=k, budget=budget, drawn=0, correct=correct, momentum=0.0)
    # Random weights have no neighbours; given ones do.
    before = head.weight
    head.weight = before
    features, labels = examples(8)
    features.requires_grad_()
    loss = head(features, labels)
    loss.backward()
    head.step(1.0)
    active = (head.weight != before).any(1).nonzero().flatten()
    # The nearest classes of each label, itself first, as far as they fit; and drawn ones.
    unit = F.normalize(before)
    near = (unit @ unit.T)[labels].topk(k).indices.unique()
    assert len(near) < budget * CLASSES
    assert set(near.tolist()) <= set(active.tolist())
    assert len(near) < len(active) == head.active <= budget * CLASSES
    expected_features, weight = features.detach().double().requires_grad_(), before[active].double().requires_grad_()
    at = torch.searchsorted(active, labels)
    # Drawn classes represent all classes that are not near.
    drawn = ~torch.isin(active, near)
    others = (CLASSES - len(near)) / drawn.sum() if correct else torch.ones(1)
    expected = F.cross_entropy(logits_of(expected_features, weight, at, "cosine") + drawn * torch.log(others), at)
    expected.backward()
    close(loss.detach(), expected.detach())
    close(features.grad, expected_features.grad)
    close(before[active] - head.weight[active], weight.grad, 1e-4)


def test_centred_features_are_those_without_the_mean_of_their_batch() -> None:
    head = KnnSoftmax(CLASSES, DIM, "full", centre=True)
    features, labels = examples(33)
    features += torch.arange(DIM) / DIM
    expected_features = features.double().requires_grad_()
    features.requires_grad_()
    loss = head(features, labels)
    loss.backward()
    mean = expected_features.mean(0)
    expected = F.cross_entropy(logits_of(expected_features - mean, head.weight.double(), labels, "cosine"), labels)
    expected.backward()
    close(loss.detach(), expected.detach())
    close(features.grad, expected_features.grad)
    close(head.mean, mean.detach())
    best = logits_of(features.detach() - head.mean, head.weight, labels, "cosine").argmax(1)
    assert (head.predict(features.detach()).classes[:, 0] == best).all()
    # The mean is part of the state.
    other = KnnSoftmax(CLASSES, DIM, "full", centre=True, seed=1)
    other.load_state_dict(head.state_dict())
    close(other.mean, head.mean)
    with pytest.warns(UserWarning, match="belongs to a head with centre, and this one has centre=False"):
        KnnSoftmax(CLASSES, DIM, "full").load_state_dict(head.state_dict())
    assert KnnSoftmax(CLASSES, DIM, "full").mean is None


@pytest.mark.parametrize("centre", [False, True])
def test_rows_begin_at_the_means_of_their_classes(centre: bool) -> None:
    head = KnnSoftmax(CLASSES, DIM, "knn", centre=centre)
    before = head.weight
    features, labels = examples(400)
    labels[labels == 7] = 8
    batches = zip(features.split(64), labels.split(64), strict=True)
    missing = head.begin_at_means(batches)
    assert missing == CLASSES - len(labels.unique()) > 0
    unit = F.normalize(features - features.mean(0) if centre else features)
    for row in range(CLASSES):
        of_class = unit[labels == row]
        close(head.weight[row], of_class.mean(0) if len(of_class) else before[row])
    assert head(features[:8], labels[:8]) > 0


class Views:
    """Classes around points in space: noisy views to learn from, and others to be tested on."""

    def __init__(self, classes: int) -> None:
        random = torch.Generator().manual_seed(1)
        self.classes = classes
        self.points = torch.randn(classes, 16, generator=random)

    def draw(self, views: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        random = torch.Generator().manual_seed(seed)
        labels = torch.arange(self.classes).repeat(views)
        order = torch.randperm(len(labels), generator=random)
        noise = 0.45 * torch.randn(len(labels), 16, generator=random)
        return (self.points[labels] + noise)[order], labels[order]


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, DIM))


def accuracy_of_linear(views: Views, epochs: int) -> float:
    trained = torch.nn.Sequential(net(), torch.nn.Linear(DIM, views.classes))
    # The best of several rates.
    optimizer = torch.optim.SGD(trained.parameters(), 0.05, momentum=0.9)
    for epoch in range(epochs):
        for features, labels in zip(*(part.split(64) for part in views.draw(10, epoch)), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(trained(features), labels).backward()
            optimizer.step()
    features, labels = views.draw(5, 1000)
    return (trained(features).argmax(1) == labels).double().mean().item()


def test_training_comes_as_far_as_with_a_linear_layer() -> None:
    views, epochs = Views(300), 8
    expected = accuracy_of_linear(views, epochs)
    reached = {}
    for kind in ["full", "knn"]:
        trained, head = net(), KnnSoftmax(views.classes, DIM, kind, k=10, budget=0.3)
        optimizer = torch.optim.SGD(trained.parameters(), 0.1, momentum=0.9)
        for epoch in range(epochs):
            head.rebuild_graph()
            for features, labels in zip(*(part.split(64) for part in views.draw(10, epoch)), strict=True):
                optimizer.zero_grad()
                head(trained(features), labels).backward()
                optimizer.step()
                head.step(1.0)
        features, labels = views.draw(5, 1000)
        best = head.predict(trained(features), 3)
        assert best.classes.shape == (len(labels), 3) and bool((best.scores[:, :-1] >= best.scores[:, 1:]).all())
        reached[kind] = (best.classes[:, 0] == labels).double().mean().item()
        head.eval()
        loss = head(trained(features), labels)
        assert head.correct == (best.classes[:, 0] == labels).sum()
        close(loss, F.cross_entropy(logits_of(trained(features), head.weight, labels, "cosine"), labels).detach())
    assert expected > 0.9
    assert min(reached.values()) > expected - 0.01, (expected, reached)


def train(head: KnnSoftmax, steps: range, lr: float = 0.5) -> list[float]:
    losses = []
    for step in steps:
        loss = head(*examples(32, step))
        loss.backward()
        head.step(lr)
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("trust", [None, 0.1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_goes_on_exactly(kind: str, trust: float | None) -> None:
    make = lambda seed: torch.nn.ModuleDict(  # noqa: E731
        {"net": torch.nn.Linear(2, 2), "head": KnnSoftmax(CLASSES, DIM, kind, trust=trust, seed=seed, **KINDS[kind])}
    )
    trained = make(3)
    train(trained["head"], range(5))
    file = io.BytesIO()
    torch.save(trained.state_dict(), file)
    file.seek(0)
    # A head in another state, and one that begins with other draws.
    other = make(3)
    train(other["head"], range(20, 22))
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other["net"].weight, trained["net"].weight)
    expected = train(trained["head"], range(5, 9))
    assert train(other["head"], range(5, 9)) == expected


def test_a_state_of_another_head_is_refused() -> None:
    state = KnnSoftmax(CLASSES, DIM).state_dict()
    with pytest.raises(pelton.StateError, match="has 103 classes and 24 features, but this head has 100 and 24"):
        KnnSoftmax(100, DIM).load_state_dict(state)
    with pytest.raises(pelton.StateError, match="weights of the head are missing"):
        KnnSoftmax(CLASSES, DIM, "mach").load_state_dict(state)
    with pytest.raises(pelton.StateError, match="not the state of a head"):
        KnnSoftmax(CLASSES, DIM).set_extra_state({"step": 3})
    with pytest.raises(pelton.StateError, match="create this one with seed=0"):
        KnnSoftmax(CLASSES, DIM, "mach", seed=1).load_state_dict(KnnSoftmax(CLASSES, DIM, "mach").state_dict())
    # A head of another kind accepts the weights.
    head = KnnSoftmax(CLASSES, DIM, "full", seed=5)
    head.load_state_dict(state)
    assert torch.equal(head.weight, KnnSoftmax(CLASSES, DIM).weight)


class Watched:
    """A native head, and the addresses of what goes into it and comes out of it."""

    def __init__(self, native: Any) -> None:
        self.native, self.addresses = native, []

    def score(self, features: np.ndarray, labels: np.ndarray) -> Any:
        found = self.native.score(features, labels)
        self.addresses += [features.ctypes.data, labels.ctypes.data, found[3].ctypes.data]
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)


def test_features_and_their_gradient_are_not_copied() -> None:
    head = KnnSoftmax(CLASSES, DIM, "full")
    head._native = Watched(head._native)
    features, labels = examples(32)
    features.requires_grad_()
    gradients = []
    features.register_hook(lambda gradient: gradients.append(gradient.data_ptr()))
    head(features, labels).backward()
    assert head._native.addresses == [features.data_ptr(), labels.data_ptr(), *gradients]
    assert head._native.native.read_at == features.data_ptr()
    # Features not stored row by row are copied into that order first.
    strided = torch.empty(DIM, 32).T.copy_(features.detach())
    head.step(0.0)
    loss = head(features, labels)
    assert not strided.is_contiguous() and head(strided, labels.to(torch.int32)) == loss


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "near"])
def test_several_batches_of_a_step_come_to_one(kind: str) -> None:
    whole, parts = (KnnSoftmax(CLASSES, DIM, kind, **KINDS[kind]) for _ in range(2))
    for step in range(3):
        features, labels = examples(32, step)
        (2 * whole(features, labels)).backward()
        whole.step(0.5)
        parts.select(labels)
        # One backward alone, one of a sum of two, and one loss without backward.
        (0.5 * parts(features[:8], labels[:8])).backward()
        parts(features[:4], labels[:4])
        ((parts(features[8:24], labels[8:24]) + 0.5 * parts(features[24:], labels[24:]))).backward()
        parts.step(0.5)
    saved = [dict((name, rows) for name, _, _, rows in head.get_extra_state()["blocks"]) for head in (whole, parts)]
    assert saved[0].keys() == saved[1].keys()
    for name, rows in saved[0].items():
        close(saved[1][name], rows, 1e-4)


def test_features_that_do_not_learn_train_the_classes() -> None:
    head = KnnSoftmax(CLASSES, DIM, "full")
    features, labels = examples(32)
    losses = []
    for _ in range(20):
        loss = head(features, labels)
        loss.backward()
        head.step(1.0)
        losses.append(loss.item())
    assert features.grad is None and losses[-1] < 0.5 * losses[0]
    with torch.no_grad():
        assert not head(features, labels).requires_grad
    head.eval()
    assert not head(features, labels).requires_grad


def test_what_is_wrong_is_said() -> None:
    head = KnnSoftmax(CLASSES, DIM, "full")
    features, labels = examples(4)
    said = lambda error, text: pytest.raises(error, match=text)  # noqa: E731
    with said(TypeError, r"features are torch.float64, .* give it features.float\(\)"):
        head(features.double(), labels)
    with said(TypeError, r"features are on meta, .* features.cpu\(\)"):
        head(features.to("meta"), labels)
    with said(ValueError, r"shape \[96\]; the head takes \[examples, 24\]"):
        head(features.flatten(), labels)
    with said(ValueError, "have 23 numbers, but the head takes 24"):
        head(features[:, 1:], labels)
    with said(ValueError, "4 rows of features and 3 labels"):
        head(features, labels[1:])
    with said(ValueError, "no examples"):
        head(features[:0], labels[:0])
    with said(TypeError, "labels are torch.float32"):
        head(features, labels.float())
    for wrong in (CLASSES, -100):
        labels[2] = wrong
        with said(IndexError, rf"labels\[2\] is {wrong}; there are 103 classes, 0 to 102"):
            head(features, labels)
    labels[2] = 0
    features[3, 5] = float("nan")
    for head_or_predict in (lambda: head(features, labels), lambda: head.predict(features)):
        with said(ValueError, r"features\[3\] or their logits are not finite"):
            head_or_predict()
    features[3, 5] = 0.0
    with said(RuntimeError, "was not called on a loss of this head since its last step"):
        head.step(0.1)
    first = head(features, labels)
    second = head(features, labels)
    with said(RuntimeError, "a batch that the head no longer has"):
        first.backward()
    second.backward(retain_graph=True)
    with said(RuntimeError, "was already called on this loss"):
        second.backward()
    with said(RuntimeError, r"call step\(\) first"):
        head(features, labels)
    for wrong in (-1.0, float("nan")):
        with said(pelton.ConfigurationError, "learning rate"):
            head.step(wrong)
    head.step(0.1)
    drawn = KnnSoftmax(CLASSES, DIM, "sampled", budget=0.1)
    drawn.select(torch.tensor([1, 2]))
    with said(ValueError, r"labels\[1\] is 102, which select\(\) was not given"):
        drawn(features[:2], torch.tensor([1, 102]))
    with said(pelton.ConfigurationError, "give a number from 1 to 103"):
        head.predict(features, 104)
    with said(pelton.ConfigurationError, "weights of buckets, not of classes"):
        KnnSoftmax(CLASSES, DIM, "mach").weight  # noqa: B018
    with said(pelton.ConfigurationError, "this rank has 103 classes, but there are 3 rows"):
        head.weight = torch.zeros(3, DIM)
    for settings, text in [
        ({"kind": "linear"}, "`linear` is not one of full, near, knn"),
        ({"kind": "knn", "k": 0}, "knn:0:0.1"),
        ({"logits": "cosine", "scale": -1.0}, "cosine:-1.0"),
        ({"threads": 0}, "0 threads"),
    ]:
        with said(pelton.ConfigurationError, text):
            KnnSoftmax(CLASSES, DIM, **settings)
    with said(pelton.ConfigurationError, "0 classes are none"):
        KnnSoftmax(0, DIM)


def test_other_threads_of_python_go_on_and_ctrl_c_ends_a_graph(request: pytest.FixtureRequest) -> None:
    """Both while a graph is built that takes seconds."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    head = KnnSoftmax(120_000, DIM, threads=1)
    head.weight = head.weight  # Random weights have no neighbours; given ones do.
    ticks, done = [], threading.Event()

    def tick() -> None:
        while not done.wait(0.01):
            ticks.append(time.monotonic())
            if len(ticks) == 20:
                os.kill(os.getpid(), signal.SIGINT)

    ticking = threading.Thread(target=tick)
    ticking.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        head.rebuild_graph()
    took = time.monotonic() - began
    done.set()
    ticking.join()
    assert len(ticks) >= 20 and took < 20
    features, labels = examples(4, classes=120_000)
    head.eval()
    assert head(features, labels).isfinite()


# Several ranks, in separate processes.

RANK = """
import inspect, os, signal, sys, time
import torch, torch.distributed as dist
from pelton.heads import KnnSoftmax
from test_heads import CLASSES, DIM, KINDS, examples

rank, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
# Also where the one that started the tests ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
"""


def run_ranks(ranks: int, folder: Path, program: str) -> list[subprocess.Popen[str]]:
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}

    def start(rank: int) -> subprocess.Popen[str]:
        # PyTorch's own threads may otherwise end the interpreter that waits for them.
        whole = f"{RANK}{program}\nif torch.distributed.is_initialized():\n    torch.distributed.destroy_process_group()\n"
        command = [sys.executable, "-c", whole, str(rank), str(ranks), str(folder)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return [start(rank) for rank in range(ranks)]


def results(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Code, output and errors of each, which end by themselves."""
    ended = []
    for process in processes:
        try:
            output, errors = process.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            for other in processes:
                other.kill()
            raise
        ended.append((process.returncode, output, errors))
    return ended


TRAIN = """
def train(head, share):
    figures = []
    torch.manual_seed(1)
    net = torch.nn.Linear(DIM, DIM)
    if share:
        net = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for epoch in range(2):
        head.rebuild_graph()
        for step in range(3):
            features, labels = examples(33, 10 * epoch + step)
            if share:
                # Unequal parts of a batch; the mean over all is still that of the whole.
                cut = 20
                part = slice(0, cut) if rank == 0 else slice(cut, None)
                features, labels = features[part], labels[part]
            loss = head(net(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            head.step(0.5)
            figures.append([loss.item(), head.correct, head.active])
    features, labels = examples(8, 99)
    best = head.predict(net(features), 4)
    head.eval()
    loss = head(net(features), labels)
    weight = list(net.parameters())[0].detach()
    return {"figures": torch.tensor(figures), "scores": best.scores, "classes": best.classes, "loss": loss, "net": weight}
"""

DIVIDED = """
found = {}
for kind, options in KINDS.items():
    head = KnnSoftmax(CLASSES, DIM, kind, **options)
    found[kind] = {**train(head, share=True), "state": head.state_dict(), "rows": list(head.rows)}
torch.save(found, f"{folder}/found-{rank}.pt")
"""


def test_two_ranks_are_as_one(tmp_path: Path) -> None:
    ended = results(run_ranks(2, tmp_path, TRAIN + DIVIDED))
    assert [code for code, _, _ in ended] == [0, 0], ended
    found = [torch.load(tmp_path / f"found-{rank}.pt", weights_only=True) for rank in range(2)]
    names: dict[str, Any] = {"torch": torch, "DIM": DIM, "examples": examples}
    exec(TRAIN, names)
    for kind, options in KINDS.items():
        head = KnnSoftmax(CLASSES, DIM, kind, **options)
        expected = names["train"](head, share=False)
        for of_rank in (found[0][kind], found[1][kind]):
            for name in ("figures", "scores", "loss", "net"):
                close(of_rank[name], expected[name], 2e-4)
            assert torch.equal(of_rank["classes"], expected["classes"])
        assert found[0][kind]["rows"] + found[1][kind]["rows"] == list(range(CLASSES))
        # The state of two ranks in one.
        joined = join_states([of_rank[kind]["state"] for of_rank in found])
        other = KnnSoftmax(CLASSES, DIM, kind, **options)
        train(other, range(70, 72))
        with pytest.raises(pelton.StateError, match="lacks rows .* to .* of the .*weights; .*join_states"):
            other.load_state_dict(found[0][kind]["state"])
        other.load_state_dict(joined)
        if kind != "mach":
            close(other.weight, head.weight, 2e-4)
        head.eval(), other.eval()
        close(other(*examples(8, 5)), head(*examples(8, 5)), 2e-4)
    torch.save({kind: join_states([of_rank[kind]["state"] for of_rank in found]) for kind in KINDS}, tmp_path / "joined.pt")
    # Three ranks resume from it as one does.
    program = """
# Older versions read all of it at once.
lazily = {"mmap": True} if "mmap" in inspect.signature(torch.load).parameters else {}
joined = torch.load(f"{folder}/../joined.pt", weights_only=True, **lazily)
for kind, options in KINDS.items():
    head = KnnSoftmax(CLASSES, DIM, kind, **options)
    head.load_state_dict(joined[kind])
    features, labels = examples(30, 50)
    for _ in range(2):
        loss = head(features[rank::3], labels[rank::3])
        loss.backward()
        head.step(0.5)
        print(loss.item(), head.active)
"""
    ended = results(run_ranks(3, tmp_path / "three", program))
    assert [code for code, _, _ in ended] == [0, 0, 0], ended
    expected_lines = []
    for kind, options in KINDS.items():
        head = KnnSoftmax(CLASSES, DIM, kind, **options)
        head.load_state_dict(torch.load(tmp_path / "joined.pt", weights_only=True)[kind])
        features, labels = examples(30, 50)
        # All ranks' examples by rank, which the draws do not depend on.
        for _ in range(2):
            loss = head(features, labels)
            loss.backward()
            head.step(0.5)
            expected_lines.append([loss.item(), head.active])
    for _, output, _ in ended:
        close([[float(number) for number in line.split()] for line in output.splitlines()], expected_lines, 2e-4)


def test_a_label_that_is_no_class_is_an_error_of_all_ranks(tmp_path: Path) -> None:
    program = """
head = KnnSoftmax(CLASSES, DIM, "full")
features, labels = examples(4)
if rank == 1:
    labels[3] = 1000
try:
    head(features, labels)
except IndexError as error:
    print(error)
# Nothing happened, and all go on.
loss = head(*examples(4))
loss.backward()
head.step(0.1)
"""
    for code, output, errors in results(run_ranks(2, tmp_path, program)):
        assert (code, output) == (0, "labels[3] of rank 1 is 1000; there are 103 classes, 0 to 102\n"), errors


def test_ranks_with_other_settings_are_refused_on_all(tmp_path: Path) -> None:
    program = """
try:
    KnnSoftmax(CLASSES, DIM, "full", seed=rank)
except ValueError as error:
    print(error)
"""
    for code, output, errors in results(run_ranks(2, tmp_path, program)):
        assert code == 0 and output.startswith("rank 1 has the seed 1, but rank 0 has 0; "), (output, errors)


def test_a_rank_that_is_stopped_ends_the_wait_of_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELTON_HEARTBEAT_SECONDS", "3")
    program = """
head = KnnSoftmax(CLASSES, DIM, "full")
print("ready", flush=True)
if rank == 1:
    # Busy for longer than the limit, which is not silence.
    until = time.monotonic() + 6
    while time.monotonic() < until:
        pass
features, labels = examples(4)
head(features, labels)
print("scored", flush=True)
if rank == 1:
    time.sleep(600)
try:
    head(features, labels)
except RuntimeError as error:
    print(error, flush=True)
    os._exit(3)
"""
    processes = run_ranks(2, tmp_path, program)
    for process in processes:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "scored\n"]
    processes[1].send_signal(signal.SIGSTOP)
    output, _ = processes[0].communicate(timeout=60)
    processes[1].kill()
    processes[1].communicate()
    assert processes[0].returncode == 3 and output.startswith("rank 1 failed: no heartbeat for 3 s; "), output


def test_a_rank_that_dies_or_is_interrupted_ends_the_waits_of_others(tmp_path: Path) -> None:
    program = """
head = KnnSoftmax(CLASSES, DIM, "full")
features, labels = examples(4)
for step in range(3):
    head(features, labels).backward()
    head.step(0.1)
print("ready", flush=True)
if rank == 1:
    time.sleep(600)
try:
    head(features, labels)
except RuntimeError as error:
    print(error, flush=True)
    os._exit(3)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(4)
"""
    for signals, folder in [((signal.SIGKILL, 1), "killed"), ((signal.SIGINT, 0), "interrupted")]:
        processes = run_ranks(2, tmp_path / folder, program)
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        number, victim = signals
        began = time.monotonic()
        processes[victim].send_signal(number)
        output, _ = processes[0].communicate(timeout=60)
        assert time.monotonic() - began < 15
        processes[1].kill()
        processes[1].communicate()
        if victim == 1:
            assert processes[0].returncode == 3 and output.startswith("rank 1 failed: its connection was lost"), output
        else:
            assert processes[0].returncode == 4 and output == "interrupted\n", output


def test_a_state_of_other_logits_is_warned_of() -> None:
    head = KnnSoftmax(20, 4, "full", logits="cosine", scale=8.0)
    state = head.state_dict()
    KnnSoftmax(20, 4, "full", logits="cosine", scale=8.0).load_state_dict(state)
    with pytest.warns(UserWarning, match="head with logits cosine:8.*and this one has product"):
        KnnSoftmax(20, 4, "full", logits="product").load_state_dict(state)
