"""Heads next to what PyTorch makes of the same weights: losses, gradients, steps, training, states, and ranks."""

from __future__ import annotations

import copy
import io
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pelton

torch = pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")
from torch.nn import functional as F  # noqa: E402

from pelton import ConfigurationError, _partial, choose, optim  # noqa: E402
from pelton.heads import ClassIndex, KnnSoftmax, join_states, load_head, load_index  # noqa: E402

CLASSES, DIM = 103, 24
KINDS: dict[str, dict[str, Any]] = {"full": {}, "near": {"budget": 0.6}, "knn": {"k": 5, "budget": 0.6}, "sampled": {"budget": 0.6}}


@pytest.fixture(params=["rust", "torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The pass in Rust, and that in PyTorch's operators, which is for devices and all else."""
    if request.param == "torch":
        monkeypatch.setattr(_partial, "_is_native", lambda *_: False)
    else:
        native, calls = _partial._native, []
        monkeypatch.setattr(_partial, "_native", lambda *given: calls.append(native(*given)) or calls[-1])
        request.addfinalizer(lambda: calls or pytest.fail("the pass in Rust was not used"))
    return str(request.param)


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
def test_the_full_head_is_cross_entropy_and_its_step_that_of_sgd(logits: str, way: str) -> None:
    head = KnnSoftmax(CLASSES, DIM, "full", logits=logits, margin=MARGINS.get(logits, 0.1), momentum=0.9, weight_decay=1e-3)
    weight = head.weight.detach().double().requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=1.0, momentum=0.9, weight_decay=1e-3)
    for step, lr in enumerate([0.5, 0.5, 0.2]):
        features, labels = examples(33, step)
        expected_features = features.double().requires_grad_()
        features.requires_grad_()
        loss = head(features, labels)
        (1.5 * loss).backward()
        expected = F.cross_entropy(logits_of(expected_features, weight, labels, logits), labels)
        optimizer.zero_grad()
        (1.5 * expected).backward()
        close(loss.detach(), expected.detach())
        close(features.grad, expected_features.grad)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
        head.step(lr)
        close(head.weight.detach(), weight.detach())


@pytest.mark.parametrize("logits", MARGINS)
def test_a_margin_beyond_half_a_turn_is_the_same_both_ways(logits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    head = KnnSoftmax(CLASSES, DIM, "full", logits=logits, margin=(1.3, 0.5, 0.2) if logits == "combined" else 0.5)
    noise, labels = examples(40)
    # From the own class to its opposite.
    towards, found = torch.linspace(1, -1, 40)[:, None], []
    for _ in range(2):
        features = (towards * head.weight.detach()[labels] + 0.02 * noise).requires_grad_()
        loss = head(features, labels)
        loss.backward()
        found.append((loss.detach(), features.grad, head.weight.grad))
        head.weight.grad = None
        monkeypatch.setattr(_partial, "_is_native", lambda *_: False)
    for one, other in zip(*found, strict=True):
        close(one, other)


@pytest.mark.parametrize(("logits", "scale"), [("cosine", 64.0), ("cosine", 1000.0), ("combined", 64.0)])
def test_large_scales_are_cross_entropy_too(logits: str, scale: float, way: str) -> None:
    # With few classes no cosine is near 1, and e^(scale * (cosine - 1)) underflows in single precision.
    margin = MARGINS["combined"] if logits == "combined" else 0.3
    head = KnnSoftmax(5, DIM, "full", logits=logits, scale=scale, margin=margin)
    features, labels = examples(9, classes=5)
    expected_features, weight = features.double().requires_grad_(), head.weight.detach().double()
    features.requires_grad_()
    loss = head(features, labels)
    loss.backward()
    expected = F.cross_entropy(logits_of(expected_features, weight, labels, logits, scale, margin), labels)
    expected.backward()
    assert expected > 0.5
    close(loss.detach(), expected.detach(), 1e-5 + 1e-6 * scale)
    close(features.grad, expected_features.grad, 1e-5 + 1e-6 * scale)
    head.eval()
    close(head(features, labels).detach(), expected.detach(), 1e-5 + 1e-6 * scale)


# `near` chooses by rows that wait as they are, so that its choice may be another one.
@pytest.mark.parametrize(("kind", "momentum"), [("knn", 0.0), ("knn", 0.9), ("near", 0.0), ("sampled", 0.0), ("sampled", 0.9)])
def test_gradients_by_rows_make_the_same_steps(kind: str, momentum: float, way: str) -> None:
    """Momentum that waits is that of rows with a gradient of 0."""
    dense, sparse = (KnnSoftmax(CLASSES, DIM, kind, momentum=momentum, seed=3, sparse=sparse, **KINDS[kind]) for sparse in (False, True))
    for step, lr in enumerate([0.5, 0.5, 0.2, 0.1, 0.5, 0.3, 0.3, 0.5]):
        features, labels = examples(9, step)
        losses = []
        for head in (dense, sparse):
            loss = head(features, labels)
            loss.backward()
            assert head.weight.grad.is_sparse == (head is sparse)
            head.step(lr)
            losses.append(loss.detach())
        close(losses[0], losses[1])
        assert sparse.active == dense.active < CLASSES
        if momentum and step == 3:
            # Some wait.
            assert (sparse.optimizer.state[sparse.weight]["seen"] < step + 1).any()
    sparse.settle()
    close(sparse.weight.detach(), dense.weight.detach())


@pytest.mark.parametrize("make", [lambda p: optim.SGD(p, 0.1, 0.9, 0.01), lambda p: optim.AdamW(p, 0.01), lambda p: optim.LARS(p, 1.0, 0.9, 0.01, 0.02)])
def test_optimisers_are_those_of_pytorch_on_dense_gradients_and_resume(make: Any) -> None:
    one, other = (torch.nn.Parameter(torch.linspace(-1, 1, 60).reshape(12, 5).clone()) for _ in range(2))
    own = make([one])
    name = type(own).__name__
    theirs = torch.optim.AdamW([other], 0.01) if name == "AdamW" else torch.optim.SGD([other], 0.1 if name == "SGD" else 1.0, 0.9, weight_decay=0.01)
    for step in range(6):
        gradient = torch.randn(12, 5, generator=torch.Generator().manual_seed(step))
        one.grad, other.grad = gradient.clone(), gradient.clone()
        if name == "LARS":
            g, w = gradient.norm(), other.detach().norm()
            # The rate is part of the velocity, which PyTorch's is not.
            rate = 0.02 * w / (g + 0.01 * w)
            other.grad = rate * gradient + 0.01 * (rate - 1) * other.detach()
        own.step()
        theirs.step()
        close(one.detach(), other.detach())
    # Of some rows, before and after a state is saved.
    twin = torch.nn.Parameter(one.detach().clone())
    again = make([twin])
    for step in range(8):
        if step == 4:
            twin.data.copy_(one.data)
            again.load_state_dict(copy.deepcopy(own.state_dict()))
            assert own.state[one].get("seen", torch.zeros(0, dtype=torch.int64)).dtype == torch.int64
        rows = torch.randperm(12, generator=torch.Generator().manual_seed(step))[:4]
        for p, optimizer in ((one, own), (twin, again)):
            p.grad = torch.sparse_coo_tensor(rows[None], torch.ones(4, 5) * step, (12, 5))
            if step >= 4 or optimizer is own:
                optimizer.step()
    assert torch.equal(one, twin)


def test_lars_is_its_definition() -> None:
    p = torch.nn.Parameter(torch.randn(7, 3, generator=torch.Generator().manual_seed(1)))
    w, v = p.detach().double(), torch.zeros(7, 3).double()
    optimizer = optim.LARS([p], lr=0.5, momentum=0.8, weight_decay=0.1, trust=0.3)
    for step in range(5):
        p.grad = torch.randn(7, 3, generator=torch.Generator().manual_seed(step + 9))
        g = p.grad.double()
        rate = 0.3 * w.norm() / (g.norm() + 0.1 * w.norm())
        v = 0.8 * v + 0.5 * rate * (g + 0.1 * w)
        w = w - v
        optimizer.step()
        close(p.detach(), w)


def test_rows_that_take_no_part_stay_with_adamw(way: str) -> None:
    head = KnnSoftmax(CLASSES, DIM, "sampled", budget=0.4, betas=(0.9, 0.99), seed=3, sparse=True)
    weight, taken = head.weight.detach().double(), torch.zeros(CLASSES, 1)
    mean, square = torch.zeros_like(weight), torch.zeros_like(weight)
    for step in range(9):
        head(examples(8, step)[0].requires_grad_(), examples(8, step)[1]).backward()
        gradient = head.weight.grad.to_dense().double()
        rows = head.weight.grad.coalesce().indices()[0]
        head.step(0.01)
        active = torch.zeros(CLASSES, 1, dtype=torch.bool)
        active[rows] = True
        assert active.sum() == head.active < CLASSES
        taken = taken + active
        mean = torch.where(active, 0.9 * mean + 0.1 * gradient, mean)
        square = torch.where(active, 0.99 * square + 0.01 * gradient**2, square)
        unbiased = [x / (1 - beta**taken.double()).clamp(min=1e-9) for x, beta in ((mean, 0.9), (square, 0.99))]
        moved = weight - 0.01 * unbiased[0] / (unbiased[1].sqrt() + 1e-8)
        weight = torch.where(active, moved, weight)
        close(head.weight.detach(), weight, 1e-4)


def test_class_weights_are_those_of_cross_entropy(way: str) -> None:
    weights = torch.rand(CLASSES, generator=torch.Generator().manual_seed(1))
    weights[::3] = 0
    head = KnnSoftmax(CLASSES, DIM, "full", momentum=0.0, class_weights=weights)
    features, labels = examples(40)
    before, of_double = head.weight.detach().double().requires_grad_(), features.double().requires_grad_()
    features.requires_grad_()
    loss = head(features, labels)
    expected = F.cross_entropy(logits_of(of_double, before, labels, "cosine"), labels, weight=weights.double())
    close(loss.detach(), expected.detach())
    loss.backward()
    expected.backward()
    head.step(1.0)
    close(features.grad, of_double.grad)
    close(head.weight.detach(), before.detach() - before.grad)
    # Evaluations are not weighted.
    head.eval()
    close(head(features, labels).detach(), F.cross_entropy(logits_of(features, head.weight, labels, "cosine"), labels).detach())
    with pytest.raises(pelton.ConfigurationError, match="one number to each of the 103 classes"):
        KnnSoftmax(CLASSES, DIM, class_weights=torch.ones(3))
    with pytest.raises(pelton.ConfigurationError, match=r"class_weights\[102\] is -1"):
        KnnSoftmax(CLASSES, DIM, class_weights=[1.0] * 102 + [-1.0])


def test_labels_without_a_loss_are_those_of_cross_entropy(way: str) -> None:
    head = KnnSoftmax(CLASSES, DIM, "full")
    features, labels = examples(24)
    shaped, of_shaped = features.reshape(4, 6, DIM), labels.reshape(4, 6).clone()
    of_shaped[1, 2], of_shaped[3, 0] = -1, -100
    here = of_shaped.flatten() >= 0
    shaped.requires_grad_()
    loss = head(shaped, of_shaped)
    loss.backward()
    expected = F.cross_entropy(logits_of(features[here], head.weight, labels[here], "cosine"), labels[here])
    close(loss.detach(), expected.detach())
    assert (shaped.grad.reshape(24, DIM)[~here] == 0).all()


@pytest.mark.parametrize("correct", [False, True])
def test_knn_is_the_softmax_of_its_active_classes(correct: bool, way: str) -> None:
    k, budget = 5, 0.4
    head = KnnSoftmax(CLASSES, DIM, "knn", k=k, budget=budget, drawn=0, correct=correct, momentum=0.0)
    head.rebuild_graph()
    before = head.weight.detach().clone()
    features, labels = examples(8)
    features.requires_grad_()
    loss = head(features, labels)
    loss.backward()
    head.step(1.0)
    active = (head.weight.detach() != before).any(1).nonzero().flatten()
    # The nearest classes of each label, itself first, as far as they fit; and drawn ones.
    unit = F.normalize(before)
    near = (unit @ unit.T)[labels].topk(k).indices.unique()
    assert len(near) < budget * CLASSES
    assert set(near.tolist()) <= set(active.tolist())
    assert len(near) < len(active) == head.active <= budget * CLASSES + 1
    expected_features, weight = features.detach().double().requires_grad_(), before[active].double().requires_grad_()
    at = torch.searchsorted(active, labels)
    # Drawn classes represent all classes that are not near.
    drawn = ~torch.isin(active, near)
    others = (CLASSES - len(near)) / drawn.sum() if correct else torch.ones(1)
    expected = F.cross_entropy(logits_of(expected_features, weight, at, "cosine") + drawn * torch.log(others), at)
    expected.backward()
    close(loss.detach(), expected.detach())
    close(features.grad, expected_features.grad)
    close(before[active] - head.weight.detach()[active], weight.grad, 1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_graph_is_exact(dtype: torch.dtype) -> None:
    weight = torch.randn(3000, 32, generator=torch.Generator().manual_seed(2)).to(dtype)
    chooser = choose.Knn(3000, 8)
    chooser.rebuild(weight)
    unit = F.normalize(weight.double())
    expected = unit @ unit.T
    assert torch.equal(chooser.graph[:, 0], torch.arange(3000).int())
    close(expected.gather(1, chooser.graph.long()), expected.topk(8).values, 1e-6)


def test_centred_features_are_those_without_the_mean_of_their_batch(way: str) -> None:
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
    other = KnnSoftmax(CLASSES, DIM, "full", centre=True, seed=1)
    other.load_state_dict(head.state_dict())
    close(other.mean, head.mean)
    # An overflowed batch leaves it alone.
    before = head.mean.clone()
    head(torch.full((4, DIM), math.inf), labels[:4])
    assert torch.equal(head.mean, before)
    assert KnnSoftmax(CLASSES, DIM, "full").mean is None


@pytest.mark.parametrize("centre", [False, True])
def test_rows_begin_at_the_means_of_their_classes(centre: bool) -> None:
    head = KnnSoftmax(CLASSES, DIM, "knn", centre=centre)
    before = head.weight.detach().clone()
    features, labels = examples(400)
    labels[labels == 7] = 8
    batches = zip(features.split(64), labels.split(64), strict=True)
    missing = head.begin_at_means(batches)
    assert missing == CLASSES - len(labels.unique()) > 0
    unit = F.normalize(features - features.mean(0) if centre else features)
    for row in range(CLASSES):
        of_class = unit[labels == row]
        close(head.weight[row].detach(), of_class.mean(0) if len(of_class) else before[row])
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


@pytest.mark.parametrize("own", [False, True])
def test_training_comes_as_far_as_with_a_linear_layer(own: bool) -> None:
    """By `step`, and with an optimiser of one's own for net and head."""
    views, epochs = Views(300), 8
    expected = accuracy_of_linear(views, epochs)
    reached = {}
    for kind in ["full", "knn"]:
        trained, head = net(), KnnSoftmax(views.classes, DIM, kind, k=10, budget=0.3)
        parameters = [{"params": trained.parameters(), "lr": 0.1}]
        if own:
            parameters.append({"params": head.parameters(), "lr": 1.0})
        optimizer = torch.optim.SGD(parameters, 0.1, momentum=0.9)
        for epoch in range(epochs):
            if epoch:
                head.rebuild_graph()
            for features, labels in zip(*(part.split(64) for part in views.draw(10, epoch)), strict=True):
                optimizer.zero_grad()
                head(trained(features), labels).backward()
                optimizer.step()
                if not own:
                    head.step(1.0)
        features, labels = views.draw(5, 1000)
        best = head.predict(trained(features), 3)
        assert best.classes.shape == (len(labels), 3) and bool((best.scores[:, :-1] >= best.scores[:, 1:]).all())
        reached[kind] = (best.classes[:, 0] == labels).double().mean().item()
        head.eval()
        loss = head(trained(features), labels)
        close(loss.detach(), F.cross_entropy(logits_of(trained(features), head.weight, labels, "cosine"), labels).detach())
    assert expected > 0.9
    assert min(reached.values()) > expected - 0.01, (expected, reached)


def train(head: KnnSoftmax, steps: range, lr: float = 0.5, dtype: torch.dtype = torch.float32) -> list[float]:
    losses = []
    for step in steps:
        features, labels = examples(32, step)
        loss = head(features.to(dtype), labels)
        loss.backward()
        head.step(lr)
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("options", [{}, {"trust": 0.1}, {"betas": (0.9, 0.99)}, {"dtype": torch.bfloat16}])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_goes_on_exactly(kind: str, sparse: bool, options: dict[str, Any]) -> None:
    make = lambda seed: torch.nn.ModuleDict(  # noqa: E731
        {"net": torch.nn.Linear(2, 2), "head": KnnSoftmax(CLASSES, DIM, kind, seed=seed, sparse=sparse, **KINDS[kind], **options)}
    )
    trained = make(3)
    lr = 0.01 if "betas" in options else 0.5
    dtype = options.get("dtype", torch.float32)
    given = lambda of, steps: train(of["head"], steps, lr, dtype)  # noqa: E731
    given(trained, range(5))
    file = io.BytesIO()
    torch.save(trained.state_dict(), file)
    file.seek(0)
    # A head in another state.
    other = make(3)
    given(other, range(20, 22))
    other.load_state_dict(torch.load(file, weights_only=True))
    twin = copy.deepcopy(trained)
    assert torch.equal(other["net"].weight, trained["net"].weight)
    expected = given(trained, range(5, 9))
    assert given(other, range(5, 9)) == expected
    assert given(twin, range(5, 9)) == expected


def test_half_precision_rounds_without_bias() -> None:
    half, exact = KnnSoftmax(CLASSES, DIM, "full", momentum=0.0, dtype=torch.bfloat16), KnnSoftmax(CLASSES, DIM, "full", momentum=0.0)
    before, exact_before = half.weight.detach().double().clone(), exact.weight.detach().double().clone()
    for step in range(200):
        features, labels = examples(4, step)
        for head, given in ((half, features.bfloat16()), (exact, features)):
            head(given, labels).backward()
            head.step(1e-5)
    along = (half.weight.detach().double() - before) * (exact.weight.detach().double() - exact_before)
    length = (exact.weight.detach().double() - exact_before).square().sum()
    # The steps are far below the rounding of most rows, and are taken on average.
    assert 0.5 < along.sum() / length < 1.5


def test_autocast_rounds_products_alone(way: str) -> None:
    head = KnnSoftmax(CLASSES, DIM, "full", seed=3)
    features, labels = examples(33, 1)
    layer = torch.nn.Linear(DIM, DIM)
    found = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = head(layer(features), labels)
        loss.backward()
        found.append((loss.detach(), head.weight.grad, layer.weight.grad))
        head.weight.grad = layer.weight.grad = None
    assert found[0][0] != found[1][0] and found[1][1].dtype == torch.float32
    close(found[1][0], found[0][0], 3e-3)
    close(found[1][1], found[0][1], 3e-2)


def test_a_state_of_another_head_is_refused() -> None:
    state = KnnSoftmax(CLASSES, DIM).state_dict()
    with pytest.raises((pelton.StateError, RuntimeError), match="103"):
        KnnSoftmax(100, DIM).load_state_dict(state)
    with pytest.raises(pelton.StateError, match="not the state of a head"):
        KnnSoftmax(CLASSES, DIM).set_extra_state({"step": 3})
    with pytest.raises(pelton.StateError, match="logits 'cosine', and this one has 'product'"):
        KnnSoftmax(CLASSES, DIM, logits="product").load_state_dict(state)


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


def test_the_weight_is_a_parameter_like_any_other() -> None:
    """Tied, clipped, and moved by any optimiser."""
    embedding = torch.nn.Embedding(CLASSES, DIM)
    head = KnnSoftmax(CLASSES, DIM, "sampled", logits="product", **KINDS["sampled"])
    head.weight = embedding.weight
    optimizer = torch.optim.AdamW(embedding.parameters(), 0.01)
    _, labels = examples(32)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = head(embedding(labels), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and head.weight is embedding.weight
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    plain = torch.optim.SGD(head.parameters(), 0.1)
    before = head.weight.detach().clone()
    overflow = embedding(labels).detach()
    overflow[0] = math.inf
    for features, moves in ((overflow, False), (embedding(labels).detach(), True)):
        plain.zero_grad()
        scaler.scale(head(features, labels)).backward()
        scaler.step(plain)
        scaler.update()
        assert torch.equal(head.weight, before) != moves


def test_a_step_with_an_overflow_is_left_out() -> None:
    head, plain = KnnSoftmax(CLASSES, DIM, "full"), KnnSoftmax(CLASSES, DIM, "full")
    features, labels = examples(8)
    (1024 * head(features, labels)).backward()
    assert head.step(0.5, scale=1024.0)
    plain(features, labels).backward()
    plain.step(0.5)
    close(head.weight.detach(), plain.weight.detach())
    features[0] = math.inf
    before = head.weight.detach().clone()
    head(features, labels).backward()
    assert not head.step(0.5, scale=1024.0)
    head(features, labels).backward()
    with pytest.raises(ValueError, match="not finite, and no step was taken"):
        head.step(0.5)
    assert torch.equal(head.weight, before)


def test_classes_come_and_go_and_an_index_finds_them() -> None:
    head = KnnSoftmax(CLASSES, DIM, "knn", **KINDS["knn"], class_weights=torch.ones(CLASSES))
    train(head, range(3))
    head.rebuild_graph()
    before = head.weight.detach().clone()
    assert head.add(2) == range(103, 105)
    assert head.add(torch.ones(1, DIM)) == range(105, 106)
    close(head.weight.detach()[:103], before)
    close(head.weight.detach()[105], torch.ones(DIM))
    new = head.remove([0, 104])
    assert new[0] == new[104] == -1 and new[1] == 0 and new[105] == 103 and head.classes == 104
    close(head.weight.detach()[new[5]], before[5])
    train(head, range(2))
    head.rebuild_graph()
    train(head, range(2))
    index = head.index()
    assert isinstance(index, ClassIndex)
    features, _ = examples(20, 7)
    found, expected = index.search(features, 3), head.predict(features, 3)
    assert torch.equal(found.classes, expected.classes)
    close(found.scores, expected.scores)
    many = KnnSoftmax(20_000, DIM, "full", centre=True)
    many(features, torch.arange(20))
    index = many.index(features)
    assert index.recall > 0.9
    hits = index.search(many.weight.detach()[:500] + many.mean).classes[:, 0] == torch.arange(500)
    assert hits.double().mean() > 0.95
    assert (head.index().search(features[:1], 200).classes[0, 104:] == -1).all()
    for made in (index, head.index()):
        file = io.BytesIO()
        torch.save(made.state_dict(), file)
        file.seek(0)
        state = torch.load(file, weights_only=True)
        same = load_index(state)
        assert same.recall == made.recall
        for found, expected in zip(same.search(features, 5), made.search(features, 5)):
            assert torch.equal(found, expected)
        for wrong, said in (({"numbers": [1]}, "not the state of an index"), ({**state, "classes": state["classes"] + 1}, "missing or occurs twice"),
                            ({**state, "rows": state["rows"][:, 1:]}, "not the state of an index"), ({**state, "starts": state["starts"][:-1]}, "do not divide")):
            with pytest.raises((pelton.ConfigurationError, pelton.StateError), match=said):
                load_index(wrong)
    for wrong, said in ((lambda: head.remove([200]), "not all among the 104"), (lambda: head.remove(range(104)), "no class"),
                        (lambda: head.add(torch.ones(2, 3)), r"give \[classes, 24\]"), (lambda: index.search(torch.ones(2, 3)), "give")):
        with pytest.raises(pelton.ConfigurationError, match=said):
            wrong()


def test_what_is_wrong_is_said() -> None:
    head = KnnSoftmax(CLASSES, DIM, "full")
    features, labels = examples(4)
    said = lambda error, text: pytest.raises(error, match=text)  # noqa: E731
    with said(pelton.ConfigurationError, "x is torch.float64 and weight torch.float32"):
        head(features.double(), labels)
    with said(pelton.ConfigurationError, "they are"):
        head(features[:, 1:], labels)
    with said(pelton.ConfigurationError, "they are"):
        head(features, labels[1:])
    with said(pelton.ConfigurationError, "target is torch.float32"):
        head(features, labels.float())
    with said(pelton.ConfigurationError, "labels are a list"):
        head(features, [1, 2, 3, 4])
    with said(pelton.ConfigurationError, "x is a ndarray"):
        head(features.numpy(), labels)
    assert KnnSoftmax(CLASSES, DIM, "near")(features[:0], labels[:0]).isnan()
    for wrong in (CLASSES, -3):
        labels[2] = wrong
        with said(pelton.ConfigurationError, f"target {wrong} of example 2 is not one of the 103 classes"):
            head(features, labels)
    with said(RuntimeError, "was not called on a loss of this head since its last step"):
        head.step(0.1)
    labels[2] = 0
    head(features, labels).backward()
    for wrong in (-1.0, float("nan")):
        with said(pelton.ConfigurationError, "`lr` is"):
            optim.SGD([head.weight], wrong)
    with said(pelton.ConfigurationError, "give a number from 1 to 103"):
        head.predict(features, 104)
    for settings, text in [
        ({"kind": "linear"}, "`linear` is not one of full, knn"),
        ({"kind": "mach"}, "pelton train classify --head mach"),
        ({"kind": "knn", "k": 0}, "k=0"),
        ({"kind": "knn", "budget": -1.0}, "the budget -1.0"),
        ({"kind": "knn", "drawn": 2.0}, "drawn=2.0"),
        ({"logits": "combined"}, r"\(m1, m2, m3\) to combined"),
        ({"logits": "arcface", "margin": (1, 0.5, 0)}, "give one number to cosface and arcface"),
        ({"logits": "cos"}, "is not one of product, cosine"),
        ({"group": True}, "init_process_group"),
        ({"classes": 0}, "0 classes"),
    ]:
        with said(pelton.ConfigurationError, text):
            KnnSoftmax(**{"classes": CLASSES, "dim": DIM, **settings})
    for settings, text in [
        ({"scale": -1.0}, "`scale` is -1.0"),
        ({"logits": "combined", "margin": (4, 0, 0)}, "at most 2"),
        ({"logits": "arcface", "margin": 28.6}, "an angle in radians"),
    ]:
        with said(pelton.ConfigurationError, text):
            KnnSoftmax(CLASSES, DIM, **settings)(features, labels)
    head = KnnSoftmax(CLASSES, DIM, betas=(0.9, 0.99), trust=0.1)
    head(features, labels).backward()
    with said(pelton.ConfigurationError, "one of them"):
        head.step(0.1)


# Several ranks, in separate processes.

RANK = """
import os, sys
import torch, torch.distributed as dist
from pelton.heads import KnnSoftmax
from test_heads import CLASSES, DIM, KINDS, examples

rank, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
"""


def run_ranks(ranks: int, folder: Path, program: str) -> list[subprocess.Popen[str]]:
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}

    def start(rank: int) -> subprocess.Popen[str]:
        # PyTorch's own threads may otherwise end the interpreter that waits for them.
        whole = f"{RANK}{program}\nif dist.is_initialized():\n    dist.destroy_process_group()\nsys.stdout.flush()\nos._exit(0)\n"
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
def train(head, share, rank=0, ranks=1, steps=6):
    torch.manual_seed(1)
    net = torch.nn.Linear(DIM, DIM)
    if share:
        net = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        features, labels = examples(33, step)
        # Unequal parts of a batch; the mean over all is still that of the whole.
        part = slice(33 * rank * rank // (ranks * ranks), 33 * (rank + 1) ** 2 // (ranks * ranks))
        loss = head(net(features[part]), labels[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        head.step(0.05 if head.betas else 0.5)
        losses.append(loss.item())
    features, labels = examples(8, 99)
    best = head.predict(net(features), 4)
    head.eval()
    loss = head(net(features), labels).detach()
    head.train()
    return {"losses": torch.tensor(losses), "scores": best.scores.detach(), "classes": best.classes, "loss": loss, "net": list(net.parameters())[0].detach()}


WAYS = {"sgd": {}, "lars": {"trust": 0.1}, "adamw": {"betas": (0.9, 0.99), "eps": 1e-3}, "centre": {"centre": True, "logits": "arcface"},
        "weights": {"class_weights": torch.linspace(0.5, 2, CLASSES)}}
"""

DIVIDED = """
found = {}
for name, options in WAYS.items():
    head = KnnSoftmax(CLASSES, DIM, "full", group=True, **options)
    found[name] = {**train(head, True, rank, ranks), "state": head.state_dict(), "rows": list(head.rows)}
for kind, options in KINDS.items():
    head = KnnSoftmax(CLASSES, DIM, kind, group=True, sparse=kind != "full", **options)
    if kind == "knn":
        head.rebuild_graph()
    found[kind] = {**train(head, True, rank, ranks), "active": head.active}
torch.save(found, f"{folder}/found-{rank}.pt")
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_with_rows_are_as_one(ranks: int, tmp_path: Path) -> None:
    ended = results(run_ranks(ranks, tmp_path, TRAIN + DIVIDED))
    assert [code for code, _, _ in ended] == [0] * ranks, ended
    found = [torch.load(tmp_path / f"found-{rank}.pt", weights_only=True) for rank in range(ranks)]
    names: dict[str, Any] = {"torch": torch, "DIM": DIM, "CLASSES": CLASSES, "examples": examples}
    exec(TRAIN, names)
    for way, options in names["WAYS"].items():
        head = KnnSoftmax(CLASSES, DIM, "full", **options)
        expected = names["train"](head, False)
        for of_rank in (part[way] for part in found):
            for name in ("losses", "scores", "loss", "net"):
                close(of_rank[name], expected[name], 2e-4)
            assert torch.equal(of_rank["classes"], expected["classes"])
        assert sum((part[way]["rows"] for part in found), []) == list(range(CLASSES))
        # The state of all in one, which goes on there and on other numbers of ranks.
        other = KnnSoftmax(CLASSES, DIM, "full", **options)
        with pytest.raises((pelton.StateError, RuntimeError), match="join_states|size mismatch"):
            other.load_state_dict(found[0][way]["state"])
        joined = join_states([part[way]["state"] for part in reversed(found)])
        other.load_state_dict(joined)
        close(other.weight.detach(), head.weight.detach(), 2e-4)
        again = [names["train"](each, False, steps=2)["losses"] for each in (head, other)]
        close(again[1], again[0], 2e-3)
        with pytest.raises(pelton.StateError, match="give those of all ranks"):
            join_states([found[0][way]["state"]] * 2)
    for kind in KINDS:
        losses = found[0][kind]["losses"]
        assert torch.equal(losses, found[1][kind]["losses"]) and losses.isfinite().all()
        if kind != "full":
            assert sum(part[kind]["active"] for part in found) < CLASSES
    state = join_states([part["adamw"]["state"] for part in found])
    torch.save(state, tmp_path / "joined.pt")
    program = """
head = KnnSoftmax(CLASSES, DIM, "full", group=True, betas=(0.9, 0.99), eps=1e-3)
head.load_state_dict(torch.load(f"{folder}/../joined.pt", weights_only=True))
for step in range(3):
    features, labels = examples(30, 50 + step)
    head(features[rank::ranks], labels[rank::ranks]).backward()
    head.step(0.05)
torch.save(head.weight.detach(), f"{folder}/weight-{rank}.pt")
"""
    ended = results(run_ranks(5 - ranks, tmp_path / "others", program))
    assert [code for code, _, _ in ended] == [0] * (5 - ranks), ended
    head = KnnSoftmax(CLASSES, DIM, "full", betas=(0.9, 0.99), eps=1e-3)
    head.load_state_dict(state)
    for step in range(3):
        features, labels = examples(30, 50 + step)
        head(features, labels).backward()
        head.step(0.05)
    parts = [torch.load(tmp_path / "others" / f"weight-{rank}.pt", weights_only=True) for rank in range(5 - ranks)]
    close(torch.cat(parts), head.weight.detach(), 2e-4)


def test_neighbours_on_other_ranks_take_part(tmp_path: Path) -> None:
    program = """
head = KnnSoftmax(CLASSES, DIM, "knn", k=5, budget=0.5, drawn=0, correct=False, group=True)
head.rebuild_graph()
features, labels = examples(4, rank)
head(features, labels).backward()
rows = head.weight.grad.abs().sum(1).nonzero().flatten() + head.rows.start
torch.save((labels, rows, head.chooser.graph), f"{folder}/{rank}.pt")
"""
    ended = results(run_ranks(2, tmp_path, program))
    assert [code for code, _, _ in ended] == [0, 0], ended
    found = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    unit = F.normalize(KnnSoftmax(CLASSES, DIM).weight.detach())
    graph = (unit @ unit.T).topk(5).indices
    assert torch.equal(torch.cat([part[2] for part in found]).long().sort(1).values, graph.sort(1).values)
    near = graph[torch.cat([part[0] for part in found])].unique()
    assert set(near.tolist()) <= set(torch.cat([part[1] for part in found]).tolist())


def test_what_ranks_do_wrong_is_said(tmp_path: Path) -> None:
    program = """
from pelton import ConfigurationError
def said(make):
    try:
        make()
    except ConfigurationError as error:
        print(error)
    else:
        print("nothing")
said(lambda: KnnSoftmax(CLASSES, DIM, "full", scale=16.0 + rank, group=True))
features, labels = examples(4)
head = KnnSoftmax(CLASSES + 1, DIM, "full", group=True)
whole = torch.nn.parallel.DistributedDataParallel(torch.nn.ModuleDict({"net": torch.nn.Linear(DIM, DIM), "head": head}))
said(lambda: head(features, labels))
said(lambda: KnnSoftmax(1, DIM, "full", group=True))
head = KnnSoftmax(CLASSES, DIM, "full", group=True)
said(lambda: head.add(1))
said(lambda: head.index())
"""
    for code, output, errors in results(run_ranks(2, tmp_path, program)):
        assert code == 0, errors
        lines = output.splitlines()
        assert "scale is" in lines[0] and "give all ranks the same" in lines[0]
        assert "wrap the net alone" in lines[1]
        assert "1 classes cannot be divided over 2 ranks" in lines[2]
        assert "needs all classes" in lines[3] and "needs all classes" in lines[4]


def test_ddp_and_fsdp_wrap_the_whole(tmp_path: Path) -> None:
    """As one process with the batches of both."""
    program = """
class Whole(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.net, self.head = torch.nn.Linear(DIM, DIM), KnnSoftmax(CLASSES, DIM, kind, budget=0.6)

    def forward(self, features, labels):
        return self.head(self.net(features), labels)

for kind in ("full", "sampled"):
    found = {}
    for way in ("alone", "ddp", "fsdp"):
        whole = Whole(kind)
        if way == "ddp":
            whole = torch.nn.parallel.DistributedDataParallel(whole)
        elif way == "fsdp":
            from torch.distributed.fsdp import fully_shard
            for part in (whole.net, whole.head, whole):
                fully_shard(part)
        optimizer = torch.optim.AdamW(whole.parameters(), 0.01)
        for step in range(6):
            features, labels = examples(16, step)
            if way != "alone":
                features, labels = features[rank::2], labels[rank::2]
            loss = whole(features, labels)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(whole.parameters(), 1.0)
            optimizer.step()
            loss = loss.detach().clone()
            if way != "alone":
                dist.all_reduce(loss)
                loss /= 2
        found[way] = loss.item()
    print(found["alone"], found["ddp"], found["fsdp"])
"""
    if not hasattr(pytest.importorskip("torch.distributed.fsdp"), "fully_shard"):
        pytest.skip(f"SKIPPED: PyTorch {torch.__version__} has no fully_shard")
    for code, output, errors in results(run_ranks(2, tmp_path, program)):
        assert code == 0, errors
        full, sampled = ([float(word) for word in line.split()] for line in output.splitlines())
        assert max(full) - min(full) < 1e-4 * full[0], full
        # Ranks have other targets among those that take part.
        assert max(sampled) - min(sampled) < 0.1 * sampled[0] and sampled[1] == pytest.approx(sampled[2], rel=1e-4), sampled


@pytest.mark.parametrize("logits", ["arcface:16:0.2", "product"])
def test_a_run_of_the_command_goes_on_here(logits: str, tmp_path: Any) -> None:
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(30, 10))
    for name, views in (("train", 12), ("test", 3)):
        labels = rng.permutation(np.repeat(np.arange(30), views))
        rows = [[*map(repr, map(float, row)), f"c{label:02}"] for row, label in zip(centres[labels] + 0.3 * rng.normal(size=(len(labels), 10)), labels)]
        (tmp_path / f"{name}.csv").write_text("\n".join([",".join([*"abcdefghij", "label"]), *map(",".join, rows)]) + "\n")

    def command(*words: str) -> None:
        done = subprocess.run([sys.executable, "-m", "pelton", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    command("train", "classify", "train.csv", "--epochs", "4", "--head", "full", "--logits", logits, "--out", "run")
    command("predict", "run", "test.csv", "--out", "predictions")
    head = load_head(tmp_path / "run", kind="near", budget=0.5)
    data = (tmp_path / "run" / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, of in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + at for at in of["data_offsets"])
            tensors[name] = torch.tensor(np.frombuffer(data[begin:end], "<f4").reshape(of["shape"]))
    wide, d = tensors["fc1.weight"].shape[0], head.dim
    parts = {"fc1": torch.nn.Linear(10, wide), "ln1": torch.nn.LayerNorm(wide), "r1": torch.nn.ReLU(), "fc2": torch.nn.Linear(wide, wide)}
    parts |= {"ln2": torch.nn.LayerNorm(wide), "r2": torch.nn.ReLU(), "fc3": torch.nn.Linear(wide, d)}
    net = torch.nn.Sequential()
    for name, part in parts.items():
        net.add_module(name, part)
    net.load_state_dict(tensors)
    x = np.loadtxt(tmp_path / "test.csv", delimiter=",", skiprows=1, usecols=range(10), dtype=np.float32)
    best = head.predict(net(torch.from_numpy(x)), k=1)
    names = json.loads((tmp_path / "run" / "classes.json").read_text())["names"]
    said = [line.split() for line in (tmp_path / "predictions").read_text().splitlines()]
    assert [names[i] for i in best.classes[:, 0].tolist()] == [of[0] for of in said]
    np.testing.assert_allclose(best.scores[:, 0].detach(), [float(of[1]) for of in said], atol=2e-5 * float(best.scores.max()))
    assert head.mean is not None and head.mean.abs().sum() > 0
    # It goes on as any head.
    before = head.weight.detach().clone()
    head(net(torch.from_numpy(x[:5])), best.classes[:5, 0]).backward()
    head.step(lr=0.1)
    assert (head.weight != before).any(1).sum() == head.active == 15
    command("train", "image", "train.csv", "--model", "mlp", "--epochs", "1", "--out", "plain")
    with pytest.raises(ConfigurationError, match="plain: has no class vectors; give a run of `pelton train classify`"):
        load_head(tmp_path / "plain")
    with pytest.raises(ConfigurationError, match="nowhere: there is no run folder"):
        load_head(tmp_path / "nowhere")
