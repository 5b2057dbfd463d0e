"""Heads in PyTorch operators, on CPU tensors: next to the one in Rust, to the definitions, and between ranks."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import pelton

torch = pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")
from test_heads import CLASSES, DIM, MARGINS, close, examples, logits_of, results, run_ranks  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from pelton.heads import KnnSoftmax, join_states  # noqa: E402

KINDS: dict[str, dict[str, Any]] = {"full": {}, "knn": {"k": 5, "budget": 0.4}, "sampled": {"budget": 0.4}}


def device_head(kind: str = "full", **options: Any) -> KnnSoftmax:
    return KnnSoftmax(CLASSES, DIM, kind, device="cpu", **options)


def stepped(head: KnnSoftmax, step: int, lr: float = 0.5, count: int = 33) -> tuple[Any, ...]:
    features, labels = examples(count, step)
    features.requires_grad_()
    loss = head(features, labels)
    (1.5 * loss).backward()
    correct, active = head.correct, head.active
    head.step(lr)
    return loss.detach(), features.grad, correct, active


@pytest.mark.parametrize("momentum", [0.0, 0.9, None])
@pytest.mark.parametrize("logits", ["cosine", "cosface", "arcface", "combined", "product"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_takes_the_steps_of_the_head_in_rust(kind: str, logits: str, momentum: float | None) -> None:
    options: dict[str, Any] = {"logits": logits, "weight_decay": 1e-3, "seed": 7, **KINDS[kind]}
    options["margin"] = MARGINS.get(logits, 0.1)
    options["class_weights"] = torch.linspace(0, 2, CLASSES)
    # AdamW, with an epsilon that keeps the roundings of small gradients small.
    options.update({"betas": (0.9, 0.99), "eps": 1e-3} if momentum is None else {"momentum": momentum})
    lr = 0.02 if momentum is None else 0.5
    rust, other = KnnSoftmax(CLASSES, DIM, kind, **options), device_head(kind, **options)
    assert torch.equal(rust.weight, other.weight)
    for step in range(12):
        if step == 6:
            rust.rebuild_graph()
            other.rebuild_graph()
        (loss, gradient, *numbers), (of_other, other_gradient, *other_numbers) = (stepped(head, step, lr) for head in (rust, other))
        assert numbers == other_numbers
        close(of_other, loss)
        close(other_gradient, gradient)
        close(other.weight, rust.weight)
    features, labels = examples(9, 50)
    assert torch.equal(rust.predict(features, 4).classes, other.predict(features, 4).classes)
    for head in (rust, other):
        head.eval()
    close(other(features, labels), rust(features, labels))
    assert rust.correct == other.correct


@pytest.mark.parametrize("logits", MARGINS)
def test_a_margin_beyond_half_a_turn_is_that_of_the_head_in_rust(logits: str) -> None:
    margin = (1.3, 0.5, 0.2) if logits == "combined" else 0.5
    heads = [KnnSoftmax(CLASSES, DIM, "full", logits=logits, margin=margin, device=device) for device in (None, "cpu")]
    noise, labels = examples(40)
    # From the own class to its opposite.
    towards = torch.linspace(1, -1, 40)[:, None]
    found = []
    for head in heads:
        features = (towards * head.weight[labels] + 0.02 * noise).requires_grad_()
        loss = head(features, labels)
        loss.backward()
        found.append((loss.detach(), features.grad))
    for rust, device in zip(*found, strict=True):
        close(device, rust)


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("kind", ["knn", "sampled"])
def test_drawn_classes_stand_for_all_that_are_not_taken(kind: str, centre: bool) -> None:
    head = device_head(kind, centre=centre, momentum=0.0, **KINDS[kind])
    before = head.weight.clone()
    features, labels = examples(8)
    features.requires_grad_()
    loss = head(features, labels)
    active, weights = head._native.active_rows, head._native.row_weights
    drawn = weights != 1
    taken = int((~drawn).sum())
    close(weights[drawn], torch.full((int(drawn.sum()),), (CLASSES - taken) / int(drawn.sum())))
    assert drawn.any() and set(labels.tolist()) <= set(active[~drawn].tolist())
    loss.backward()
    head.step(1.0)
    of_double, rows = features.detach().double().requires_grad_(), before[active].double().requires_grad_()
    centred = of_double - of_double.mean(0) if centre else of_double
    at = torch.searchsorted(active, labels)
    expected = F.cross_entropy(logits_of(centred, rows, at, "cosine") + weights.double().log(), at)
    expected.backward()
    close(loss.detach(), expected.detach())
    close(features.grad, of_double.grad)
    close(before[active] - head.weight[active], rows.grad, 1e-4)
    others = torch.ones(CLASSES, dtype=torch.bool)
    others[active] = False
    assert torch.equal(head.weight[others], before[others])


def test_the_corrected_sum_is_that_of_all_classes_on_average() -> None:
    head = device_head("sampled", budget=0.4)
    features, labels = examples(8)
    losses = []
    for _ in range(300):
        head(features, labels)
        kept = head._native.scored[0]
        losses.append(kept.total.double().exp())
    unit, rows = F.normalize(features.double()), F.normalize(head.weight.double())
    expected = (16 * unit @ rows.T).exp().sum(1)
    found = torch.stack(losses)
    error = found.std(0) / len(found) ** 0.5
    # Draws in turn vary less than independent ones, so this bound is wide.
    assert ((found.mean(0) - expected).abs() < 4 * error).all(), (found.mean(0) / expected, error / expected)


def test_each_class_is_drawn_once_in_a_round() -> None:
    head = device_head("sampled", budget=0.4)
    found = [head._native._draw((1 << 53) // 7) for _ in range(7 * 4)]
    assert torch.equal(torch.bincount(torch.cat(found), minlength=CLASSES), torch.full((CLASSES,), 4))
    assert len({len(part) for part in found}) > 1


@pytest.mark.parametrize("betas", [None, (0.9, 0.99)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_goes_on_exactly_and_changes_between_the_two(kind: str, betas: Any) -> None:
    options: dict[str, Any] = {"seed": 3, "betas": betas, "eps": 1e-3, **KINDS[kind]}
    for precision in ("float32", "bfloat16"):
        trained, other = (device_head(kind, precision=precision, **options) for _ in range(2))
        for step in range(5):
            stepped(trained, step)
        stepped(other, 30)
        other.load_state_dict(trained.state_dict())
        twin = copy.deepcopy(trained)
        for step in range(5, 9):
            expected = stepped(trained, step)[0]
            assert stepped(other, step)[0] == expected and stepped(twin, step)[0] == expected
        assert torch.equal(other.weight, trained.weight)
    device, rust = device_head(kind, **options), KnnSoftmax(CLASSES, DIM, kind, **options)
    for step in range(5):
        stepped(device, step)
    rust.load_state_dict(device.state_dict())
    for step in range(5, 9):
        close(stepped(rust, step)[0], stepped(device, step)[0])
    device.load_state_dict(rust.state_dict())
    for step in range(9, 12):
        close(stepped(rust, step)[0], stepped(device, step)[0])
        close(rust.weight, device.weight)


def test_half_precision_is_near_and_rounds_without_bias() -> None:
    for options, lr in (({}, 0.5), ({"betas": (0.9, 0.99)}, 0.01)):
        whole, half = (device_head(seed=1, precision=precision, **options) for precision in ("float32", "bfloat16"))
        for step in range(5):
            expected, found = stepped(whole, step, lr), stepped(half, step, lr)
            close(found[0], expected[0], 3e-3)
            close(found[1], expected[1], 3e-2)
        assert half.weight.dtype == torch.bfloat16
    # A number between two bf16 values, many times: a step of 0 rounds it again.
    head = device_head(precision="bfloat16", momentum=0.0)
    before = head.weight.double()
    for step in range(200):
        loss = head(*examples(4, step))
        loss.backward()
        head.step(1e-5)
    moved = (head.weight.double() - before).abs().sum()
    exact = device_head(momentum=0.0)
    for step in range(200):
        exact(*examples(4, step)).backward()
        exact.step(1e-5)
    along = ((head.weight.double() - before) * (exact.weight.double() - device_head().weight.double())).sum()
    length = (exact.weight.double() - device_head().weight.double()).square().sum()
    assert moved > 0
    # The steps are far below the rounding of most rows, and are taken on average.
    assert 0.5 < along / length < 1.5


def test_the_graph_is_exact_in_half_precision() -> None:
    for precision in ("float32", "bfloat16"):
        head = KnnSoftmax(3000, 32, "knn", device="cpu", precision=precision, k=8)
        # Rows that are still random have no graph.
        head.rebuild_graph()
        assert torch.equal(head._native.graph.ids, torch.arange(3000).int()[:, None].expand(3000, 8))
        head.rebuild_graph()
        unit = F.normalize(head.weight.double())
        expected = unit @ unit.T
        found = expected.gather(1, head._native.graph.ids.long())
        best = expected.topk(8).values
        # Equal except for the order of neighbours at equal distance in f32.
        close(found, best, 1e-6)


def test_ranks_are_as_one(tmp_path: Path) -> None:
    program = """
import torch
head = None
weights = torch.linspace(0.5, 2, CLASSES)
for kind, options in {"full": {}, "knn": {"k": 5, "budget": 0.4}, "sampled": {"budget": 0.4}}.items():
    for precision in ("float32", "bfloat16"):
        head = KnnSoftmax(CLASSES, DIM, kind, device="cpu", precision=precision, centre=True, seed=5, class_weights=weights, **options)
        for step in range(6):
            if step == 3:
                head.rebuild_graph()
            features, labels = examples(31, step)
            # Ranks give different numbers of examples.
            own = slice(31 * rank // ranks, 31 * (rank + 1) // ranks)
            features = features[own].requires_grad_()
            loss = head(features, labels[own])
            loss.backward()
            active, correct = head.active, head.correct
            head.step(0.5)
        gathered = [None] * ranks
        torch.distributed.all_gather_object(gathered, features.grad / ranks)
        parts = [None] * ranks
        torch.distributed.all_gather_object(parts, head.weight.float())
        best = head.predict(features, 3).classes
        every = [None] * ranks
        torch.distributed.all_gather_object(every, best)
        if rank == 0:
            torch.save((loss.item(), active, correct, torch.cat(gathered), torch.cat(parts), torch.cat(every)), f"{folder}/{kind}_{precision}.pt")
"""
    alone = {}
    for kind, options in KINDS.items():
        for precision in ("float32", "bfloat16"):
            weights = torch.linspace(0.5, 2, CLASSES)
            head = device_head(kind, precision=precision, centre=True, seed=5, class_weights=weights, **options)
            for step in range(6):
                if step == 3:
                    head.rebuild_graph()
                features, labels = examples(31, step)
                features.requires_grad_()
                loss = head(features, labels)
                loss.backward()
                numbers = (head.active, head.correct)
                head.step(0.5)
            best = head.predict(features, 3).classes
            alone[kind, precision] = (loss.item(), *numbers, features.grad, head.weight.float(), best)
    for ranks in (2, 3):
        folder = tmp_path / str(ranks)
        ended = results(run_ranks(ranks, folder, program))
        assert [code for code, _, _ in ended] == [0] * ranks, ended
        for (kind, precision), expected in alone.items():
            found = torch.load(folder / f"{kind}_{precision}.pt")
            assert found[1:3] == expected[1:3], (kind, precision, ranks)
            tolerance = 1e-5 if precision == "float32" else 2e-2
            for a, b in ((found[0], expected[0]), (found[3], expected[3]), (found[4], expected[4])):
                close(a, b, tolerance)
            assert (found[5] == expected[5]).double().mean() > (0.999 if precision == "float32" else 0.9)


def test_a_loss_that_overflowed_is_dropped_where_it_was_scaled() -> None:
    head, plain = device_head(), device_head()
    features, labels = examples(8)
    scaled = features.clone().requires_grad_()
    (1024 * head(scaled, labels)).backward()
    assert head.step(0.5, scale=1024.0)
    plain(features, labels).backward()
    plain.step(0.5)
    close(head.weight, plain.weight)
    features[0] = float("inf")
    head(features, labels).backward()
    assert not head.step(0.5, scale=1024.0)
    close(head.weight, plain.weight)
    head(features, labels).backward()
    with pytest.raises(ValueError, match="not finite"):
        head.step(0.5)
    close(head.weight, plain.weight)
    # A batch that was scored without `backward` does not skip the step.
    head.select(labels)
    head(features, labels)
    head(features[1:], labels[1:]).backward()
    assert head.step(0.0)
    # The mean of features does not keep overflowed values either.
    centred = device_head(centre=True)
    stepped(centred, 1)
    before = centred.mean
    centred(features, labels).backward()
    assert not centred.step(0.5, scale=2.0)
    assert torch.equal(centred.mean, before) and stepped(centred, 2)[0].isfinite()


def test_half_features_and_what_is_wrong() -> None:
    head = device_head()
    features, labels = examples(8)
    half = features.bfloat16().requires_grad_()
    loss = head(half, labels)
    loss.backward()
    assert loss.dtype == torch.float32 and half.grad.dtype == torch.bfloat16
    head.step(0.1)
    with pytest.raises(IndexError, match=r"labels\[2\] is -100; there are 103 classes, 0 to 102"):
        head(features, torch.tensor([0, 1, -100, 3, 4, 5, 6, 7]))
    with pytest.raises(RuntimeError, match="was not called on a loss of this head"):
        head.step(0.1)
    with pytest.raises(ValueError, match="no examples"):
        head(features[:0], labels[:0])
    for call in (lambda x: head(x, labels), lambda x: head.predict(x)):
        with pytest.raises(ValueError, match="have 23 numbers, but the head takes 24"):
            call(features[:, 1:])
    with pytest.raises(ValueError, match="8 rows of features and 3 labels"):
        head(features, labels[:3])
    with pytest.raises(TypeError, match="features are on meta, but the head is on cpu"):
        head(features.to("meta"), labels)
    with pytest.raises(pelton.ConfigurationError, match="'mach' is only on the CPU"):
        device_head("mach")
    with pytest.raises(pelton.ConfigurationError, match="'near' is only on the CPU"):
        device_head("near")
    for wrong, said in (
        ({"budget": -1.0}, "such as knn:10:0.1"),
        ({"drawn": 2.0}, "such as knn:10:0.1"),
        ({"scale": 1e6}, "give at most 10000"),
        ({"logits": "combined"}, r"\(m1, m2, m3\) to combined"),
        ({"logits": "arcface", "margin": (1, 0.5, 0)}, "give one number to cosface and arcface"),
        ({"logits": "combined", "margin": (4, 0, 0)}, "at most 2, such as 1"),
    ):
        with pytest.raises(pelton.ConfigurationError, match=said):
            device_head("knn", **wrong)
    for device in (None, "cpu"):
        with pytest.raises(pelton.ConfigurationError, match="precision 'int8' is neither"):
            KnnSoftmax(CLASSES, DIM, device=device, precision="int8")
    with pytest.raises(pelton.ConfigurationError, match="give it device="):
        KnnSoftmax(CLASSES, DIM, compile=True)
    for device in (None, "cpu"):
        with pytest.raises(pelton.ConfigurationError, match="of 9 classes leaves few of the 10 that take part"):
            KnnSoftmax(CLASSES, DIM, "sampled", budget=0.1, device=device)(features[:8].repeat(2, 1)[:9], torch.arange(9))
    with pytest.raises(pelton.ConfigurationError, match="LARS"):
        head(features, labels).backward()
        head.trust = 0.1
        head.step(0.1)
    head.trust = None
    head.forget()
    head.select(labels[:4])
    sampled = device_head("sampled", budget=0.2)
    sampled.select(labels[:4])
    with pytest.raises(ValueError, match=r"select\(\) was not given"):
        sampled(features, torch.arange(60, 68))


def test_states_of_ranks_join(tmp_path: Path) -> None:
    head = device_head("knn", **KINDS["knn"])
    stepped(head, 0)
    state = head.state_dict()
    extra = state["_extra_state"]
    halves = []
    for part in (slice(0, 51), slice(51, CLASSES)):
        blocks = [(name, part.start if len(rows) == CLASSES else first, total, rows[part] if len(rows) == CLASSES else rows)
                  for name, first, total, rows in extra["blocks"]]
        halves.append({"_extra_state": {**extra, "blocks": blocks}})
    other = device_head("knn", **KINDS["knn"])
    with pytest.raises(pelton.StateError, match="lacks rows 51 to 102 of the .*; put the states"):
        other.load_state_dict(halves[0])
    other.load_state_dict(join_states(halves))
    assert torch.equal(other.weight, head.weight)
    # Pieces may be repeated, in any order.
    other.load_state_dict(join_states([halves[1], halves[0], halves[1]]))
    assert torch.equal(other.weight, head.weight)
    with pytest.raises(pelton.StateError, match="has 5 neighbours a class, and this head k=7"):
        device_head("knn", k=7, budget=0.4).load_state_dict(state)
    with pytest.raises(pelton.StateError, match="weights of the head are missing"):
        device_head().load_state_dict(KnnSoftmax(CLASSES, DIM, "mach").state_dict())
