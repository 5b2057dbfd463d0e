"""The cross-entropy over some of very many classes, against PyTorch's over all of them and against f64."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import pelton

torch = pytest.importorskip("torch")
functional = torch.nn.functional
_partial = pytest.importorskip("pelton._partial")
choose = pelton.choose


class Fixed(torch.nn.Module):
    """Some rows and a correction."""

    def __init__(self, rows: Any, correction: Any) -> None:
        super().__init__()
        self.rows, self.correction = rows, correction

    def forward(self, features: Any, target: Any, weight: Any) -> Any:
        return self.rows, self.correction


def plain(x: Any, weight: Any, target: Any, rows: Any, correction: Any, o: dict[str, Any]) -> Any:
    """The same with logits as they stand, in the type of ``x``."""
    classes, ignored = len(weight), o.get("ignore_index", -100)
    several = target.ndim == x.ndim
    flat = target.reshape(-1, target.shape[-1]) if several else target.reshape(-1, 1)
    x = x.reshape(-1, x.shape[-1])
    rows = torch.arange(classes) if rows is None else rows
    w = weight[rows]
    if o.get("scale"):
        x, w = functional.normalize(x, dim=-1), functional.normalize(w, dim=-1)
    logits = x @ w.t() * o.get("scale", 1.0)
    if o.get("bias") is not None:
        logits = logits + o["bias"].to(x.dtype)[rows]
    if o.get("softcap"):
        logits = o["softcap"] * torch.tanh(logits / o["softcap"])
    losses, counts = [], []
    cw = None if o.get("class_weights") is None else o["class_weights"].to(x.dtype)[rows]
    spread = (torch.ones(len(rows), dtype=x.dtype) if cw is None else cw) * (1 if correction is None else correction.to(x.dtype).exp()) / classes
    for i, labels in enumerate(flat):
        places = [int((rows == label).nonzero()[0, 0]) for label in labels.tolist() if label != ignored]
        row = logits[i]
        if o.get("margin") is not None and places:
            m1, m2, m3 = o["margin"] if isinstance(o["margin"], tuple) else (1.0, 0.0, o["margin"])
            m1, m2, m3 = (float(m[i]) if isinstance(m, torch.Tensor) else m for m in (m1, m2, m3))
            cosine = row[places[0]] / o["scale"]
            theta = cosine.clamp(-1 + 1e-9, 1 - 1e-9).acos()
            turn = min((math.pi - m2) / m1, math.pi)
            new = cosine if (m1, m2) == (1, 0) else torch.cos(m1 * theta + m2) if m1 * float(theta) + m2 < math.pi else torch.cos(theta) - (math.pi - turn) * math.sin(turn)
            row = torch.cat([row[: places[0]], ((new - m3) * o["scale"])[None], row[places[0] + 1 :]])
        log_sum = torch.logsumexp(row if correction is None else row + correction.to(x.dtype), 0)
        nothing = 0.0 * log_sum
        own = torch.stack([log_sum - row[place] for place in places]).mean() if places else nothing
        count = (1.0 if cw is None else float(sum(cw[place] for place in places) / len(places))) if places else 0.0
        s = o.get("label_smoothing", 0.0)
        smooth = ((log_sum - row) * spread).sum() if places else nothing
        losses.append(count * ((1 - s) * own + o.get("z_loss", 0.0) * log_sum**2) + s * smooth)
        counts.append(count)
    all_losses, reduction = torch.stack(losses), o.get("reduction", "mean")
    if reduction == "none":
        return all_losses.reshape(target.shape[:-1] if several else target.shape)
    return all_losses.sum() / (sum(counts) if reduction == "mean" else 1)


def options(rng: np.random.Generator, n: int, classes: int, several: bool) -> dict[str, Any]:
    o: dict[str, Any] = {"reduction": str(rng.choice(["mean", "sum", "none"]))}
    if rng.random() < 0.3:
        o["label_smoothing"] = float(rng.uniform(0, 1))
    if rng.random() < 0.2:
        o["z_loss"] = float(rng.uniform(0, 0.1))
    if rng.random() < 0.3:
        o["class_weights"] = torch.as_tensor(rng.uniform(0.1, 2, classes))
    if rng.random() < 0.2:
        o["ignore_index"] = int(rng.integers(-5, 0))
    kind = rng.integers(4)
    if kind == 0:
        o["scale"] = float(rng.uniform(2, 40))
        if not several:
            margin: Any = [float(rng.uniform(0, 0.4)), (1.0, float(rng.uniform(0, 0.6)), 0.0), (1.1, 0.2, torch.as_tensor(rng.uniform(0, 0.3, n)))]
            o["margin"] = margin[rng.integers(3)]
    else:
        if kind == 1:
            o["softcap"] = float(rng.uniform(1, 20))
        if rng.random() < 0.5:
            o["bias"] = torch.as_tensor(rng.normal(size=classes))
    return o


@pytest.mark.parametrize("kind", ["float64", "float32", "bfloat16"])
def test_losses_and_gradients_are_those_of_plain_logits(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dtype = getattr(torch, kind)
    unit = torch.finfo(dtype).eps
    for case in range(300):
        rng = np.random.default_rng(case)
        classes, dim, n = int(rng.integers(2, 40)), int(rng.integers(2, 9)), int(rng.integers(1, 9))
        monkeypatch.setitem(_partial._LOGITS, "cpu", int(rng.integers(1, 200)))
        several = bool(rng.random() < 0.25)
        o = options(rng, n, classes, several)
        shape = (n,) if rng.random() < 0.6 else (1, n)
        x = torch.as_tensor(rng.normal(size=(*shape, dim)) * 2).to(dtype)
        weight = torch.as_tensor(rng.normal(size=(classes, dim))).to(dtype)
        target = torch.as_tensor(rng.integers(0, classes, (*shape, 3) if several else shape))
        if rng.random() < 0.4:
            target = torch.where(torch.as_tensor(rng.random(target.shape) < 0.3), o.get("ignore_index", -100), target)
        if not (target != o.get("ignore_index", -100)).any():
            continue
        cosines = functional.normalize(x.double(), dim=-1) @ functional.normalize(weight.double(), dim=-1).t()
        if isinstance(o.get("margin"), tuple) and cosines.abs().max() > 0.99:
            # Where its derivative is not defined.
            continue
        rows = correction = None
        if rng.random() < 0.6:
            wanted = {*target[target != o.get("ignore_index", -100)].tolist(), *rng.integers(0, classes, 5).tolist()}
            rows = torch.tensor(sorted(wanted))
            correction = torch.as_tensor(np.where(np.isin(rows, target), 0, rng.uniform(0, 3, len(rows)))).float()
        wide = {name: value.to(dtype) if name == "bias" else value for name, value in o.items()}
        tensors = [x, weight, *([wide["bias"]] if "bias" in wide else [])]
        exact = [of.double().clone().requires_grad_() for of in tensors]
        given = [of.clone().requires_grad_() for of in tensors]
        chooser = None if rows is None else Fixed(rows, correction)
        ours = {**wide, **({"bias": given[2]} if "bias" in wide else {})}
        theirs = {**wide, **({"bias": exact[2]} if "bias" in wide else {})}
        loss = pelton.partial_cross_entropy(given[0], given[1], target, chooser, **ours)
        expected = plain(exact[0], exact[1], target, rows, correction, theirs)
        # Logits reach 40, and their rounding is that of the loss; cosines are rounded to the type; a margin of angles makes more
        # of it near 0 and π.
        many = 40 * (32 if isinstance(o.get("margin"), tuple) else 1)
        scale = max(1.0, float(expected.detach().abs().max()))
        error = float((loss.double() - expected).detach().abs().max())
        assert error <= 4 * (unit if kind != "bfloat16" or "scale" in o else 1.2e-7) * many * scale, (case, error, o)
        upstream = torch.as_tensor(rng.normal(size=expected.shape))
        (loss.double() * upstream).sum().backward()
        (expected * upstream).sum().backward()
        for of, by in zip(given, exact):
            size = max(1.0, float(by.grad.abs().max()))
            error = float((of.grad.double() - by.grad).abs().max())
            assert error <= 4 * unit * (many if kind != "bfloat16" or "scale" in o else 4) * size, (case, error, size, o)


@pytest.mark.parametrize("kind", ["float64", "float32"])
def test_binary_losses_are_those_of_each_class(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dtype = getattr(torch, kind)
    for case in range(200):
        rng = np.random.default_rng(case)
        classes, n, several = int(rng.integers(2, 40)), int(rng.integers(1, 9)), bool(rng.random() < 0.7)
        monkeypatch.setitem(_partial._LOGITS, "cpu", int(rng.integers(1, 200)))
        o: dict[str, Any] = {"scale": 30.0} if rng.random() < 0.3 else {"bias": torch.as_tensor(rng.normal(size=classes)), "softcap": 9.0}
        target = torch.as_tensor(rng.integers(0, classes, (n, 3) if several else n))
        target = torch.where(torch.as_tensor(rng.random(target.shape) < 0.3), -100, target)
        target.view(-1)[0] = 1
        rows, correction = torch.arange(classes), torch.zeros(classes, dtype=torch.float64)
        if rng.random() < 0.6:
            rows = torch.tensor(sorted({*target[target >= 0].tolist(), *rng.integers(0, classes, 5).tolist()}))
            correction = torch.as_tensor(np.where(np.isin(rows, target), 0, rng.uniform(0, 3, len(rows))))
        class_weights = torch.as_tensor(rng.uniform(0.1, 2, classes)) if rng.random() < 0.5 else None
        reduction = str(rng.choice(["mean", "sum", "none"]))
        # Features far out too, with losses far smaller than a logit.
        values = [torch.as_tensor(rng.normal(size=(n, 5)) * rng.choice([1, 10])), torch.as_tensor(rng.normal(size=(classes, 5)))]
        exact = [of.to(dtype).double().requires_grad_() for of in values]
        given = [of.to(dtype).requires_grad_() for of in values]
        x, w = (functional.normalize(of, dim=-1) for of in exact) if "scale" in o else exact
        logits = x @ w.t() * o.get("scale", 1.0)
        if "bias" in o:
            logits = 9 * torch.tanh((logits + o["bias"].to(dtype).double()) / 9)
        truth = torch.zeros(n, classes + 1).scatter_(1, torch.where(target < 0, classes, target).reshape(n, -1), 1)[:, rows].double()
        weights = correction.exp() * (1 if class_weights is None else class_weights[rows])
        losses = functional.binary_cross_entropy_with_logits(logits[:, rows], truth, weights.expand_as(truth), reduction="none").sum(1)
        losses = losses if several else losses * (target >= 0)
        expected = losses if reduction == "none" else losses.sum() / (1 if reduction == "sum" else n if several else int((target >= 0).sum()))
        ours = {name: of.to(dtype) if name == "bias" else of for name, of in o.items()} | {"class_weights": class_weights}
        loss = pelton.partial_cross_entropy(*given, target, Fixed(rows, correction.float()), binary=True, reduction=reduction, **ours)
        upstream = torch.as_tensor(rng.normal(size=expected.shape))
        (loss.double() * upstream).sum().backward()
        (expected * upstream).sum().backward()
        unit = 400 * 1.2e-7
        for found, wanted in zip([loss.detach(), *(of.grad for of in given)], [expected.detach(), *(of.grad for of in exact)]):
            assert (found - wanted).abs().max() <= unit * (1 + wanted.abs().max()), (case, o, reduction)
    with pytest.raises(ValueError, match="`margin` is of a softmax"):
        pelton.partial_cross_entropy(*values, target, binary=True, scale=3.0, margin=0.1)


def test_without_a_chooser_it_is_cross_entropy_for_200_steps() -> None:
    torch.manual_seed(0)
    nets = [torch.nn.Linear(8, 16) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    weights = [torch.nn.Parameter(torch.randn(50, 16, generator=torch.Generator().manual_seed(1))) for _ in range(2)]
    optimisers = [torch.optim.AdamW([*net.parameters(), weight], 1e-2) for net, weight in zip(nets, weights)]
    for step in range(200):
        x, target = torch.randn(12, 8), torch.randint(0, 50, (12,))
        losses = [
            functional.cross_entropy(functional.linear(nets[0](x), weights[0]), target, label_smoothing=0.1),
            pelton.partial_cross_entropy(nets[1](x), weights[1], target, label_smoothing=0.1),
        ]
        for loss, optimiser in zip(losses, optimisers):
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_([group for group in optimiser.param_groups[0]["params"]], 1.0)
            optimiser.step()
        assert abs(losses[0] - losses[1]).item() <= 1e-4 * losses[0].item(), step


CHOOSERS = {
    "sampled": lambda classes, seed: choose.Sampled(classes, 0.3, seed=seed),
    "knn": lambda classes, seed: choose.Knn(classes, 4, 0.4, 0.5, seed=seed),
    "near": lambda classes, seed: choose.Near(classes, 0.3, seed=seed),
}


@pytest.mark.parametrize("name", CHOOSERS)
def test_choosers_estimate_the_sum_over_all_classes(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(60, 6, generator=generator), torch.randn(7, 6, generator=generator)
    target = torch.tensor([3, 3, 59, 0, 17, 18, 19])
    exponentials = (x @ weight.t()).exp()
    sums, rounds = torch.zeros(7, dtype=torch.float64), 3000
    squares = torch.zeros_like(sums)
    made = choose.Knn(60, 4)
    made.rebuild(weight)
    for seed in range(rounds):
        chooser = CHOOSERS[name](60, seed)
        if name == "knn":
            chooser.graph = made.graph
        rows, correction = chooser(x, target, weight)
        assert (rows[1:] > rows[:-1]).all() and set(target.tolist()) <= set(rows.tolist()) and len(rows) == len(correction)
        assert len(rows) == {"sampled": 18, "knn": 24, "near": 18}[name]
        found = (exponentials[:, rows] * correction.exp()).sum(1).double()
        sums, squares = sums + found, squares + found**2
        assert (correction[torch.searchsorted(rows, target)] == 0).all()
    mean = sums / rounds
    error = ((squares / rounds - mean**2).clamp(min=0) / rounds).sqrt()
    assert ((mean - exponentials.sum(1)).abs() <= 4.5 * error + 1e-3).all()


def test_near_takes_the_likely_ones_and_knn_the_neighbours() -> None:
    weight = 4 * functional.normalize(torch.randn(400, 16, generator=torch.Generator().manual_seed(2)), dim=1)
    x = 2 * weight[[5, 9]] + 2 * weight[[7, 11]]
    near = choose.Near(400, 0.05)
    rows, _ = near(x, torch.tensor([5, 9]), weight)
    assert {5, 7, 9, 11} <= set(rows.tolist()) and len(rows) == 20
    again, _ = near(x, torch.tensor([5, 9]), weight)
    assert set(again.tolist()) != set(rows.tolist())
    knn = choose.Knn(400, 6, 0.05, 0.4)
    with pytest.raises(pelton.ConfigurationError, match=r"no graph; call rebuild\(weight\)"):
        knn(x, torch.tensor([5, 9]), weight)
    knn.rebuild(weight)
    unit = functional.normalize(weight, dim=1)
    nearest = (unit[[5, 9]] @ unit.t()).topk(6).indices
    assert (knn.graph[[5, 9]].sort().values == nearest.sort().values.int()).all()
    rows, correction = knn(x, torch.tensor([5, 9]), weight)
    assert set(nearest.flatten().tolist()) <= set(rows.tolist())
    drawn = correction > 0
    assert drawn.sum() == 20 - len(set(nearest.flatten().tolist()))
    saved = choose.Knn(400, 6, 0.05, 0.4)
    saved.load_state_dict(knn.state_dict())
    for one, other in zip(knn(x, torch.tensor([5, 9]), weight), saved(x, torch.tensor([5, 9]), weight)):
        assert (one == other).all()


def test_few_classes_many_targets_and_nothing_to_learn_from() -> None:
    weight, x = torch.randn(6, 3, requires_grad=True), torch.randn(40, 3, requires_grad=True)
    target = torch.arange(40) % 6
    for budget, kind in ((0.1, choose.Sampled), (0.1, choose.Near), (1.0, choose.Near)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            loss = pelton.partial_cross_entropy(x, weight, target, kind(6, budget))
        assert any("nearly fill the budget" in str(one.message) for one in said) == (budget < 1)
        torch.testing.assert_close(loss, functional.cross_entropy(x @ weight.t(), target))
    assert pelton.partial_cross_entropy(x[:0], weight, target[:0]).isnan() and functional.cross_entropy(x[:0], target[:0]).isnan()
    nothing = torch.full((40,), -100)
    for reduction in ("mean", "sum"):
        ours = pelton.partial_cross_entropy(x, weight, nothing, choose.Sampled(6, 0.5), reduction=reduction)
        torch.testing.assert_close(ours, functional.cross_entropy(x @ weight.t(), nothing, reduction=reduction), equal_nan=True)


def test_tied_weights_sparse_gradients_and_autocast() -> None:
    embedding = torch.nn.Embedding(80, 8)
    tokens = torch.randint(0, 80, (4, 9))
    target = torch.where(torch.rand(4, 9) < 0.2, -100, torch.randint(0, 80, (4, 9)))
    for weight in (embedding.weight,):
        loss = pelton.partial_cross_entropy(embedding(tokens), weight, target, choose.Near(80, 0.5), z_loss=1e-3, softcap=30.0)
        loss.backward()
        assert embedding.weight.grad is not None and embedding.weight.grad.isfinite().all()
    table = torch.nn.Parameter(torch.randn(500, 8))
    optimiser = torch.optim.SparseAdam([table], 1e-2)
    x, wanted = torch.randn(20, 8), torch.randint(0, 500, (20,))
    before, chooser = table.detach().clone(), choose.Sampled(500, 0.1)
    loss = pelton.partial_cross_entropy(x, table, wanted, chooser, sparse=True)
    loss.backward()
    assert table.grad.is_sparse and table.grad._nnz() == 50
    optimiser.step()
    assert ((table - before).abs().sum(1) > 0).sum() == 50
    dense = before.clone().requires_grad_()
    chooser.step.zero_()
    pelton.partial_cross_entropy(x, dense, wanted, chooser).backward()
    torch.testing.assert_close(dense.grad, table.grad.to_dense())
    with torch.autocast("cpu", torch.bfloat16):
        half = pelton.partial_cross_entropy(x.bfloat16(), before, wanted, None)
    assert abs(half - functional.cross_entropy(x @ before.t(), wanted)) < 0.1


def test_a_loss_where_the_right_class_has_nearly_all() -> None:
    x = torch.tensor([[30.0, 0.0]], requires_grad=True)
    weight = torch.eye(2)
    loss = pelton.partial_cross_entropy(x, weight, torch.tensor([0]))
    loss.backward()
    np.testing.assert_allclose([loss.item(), *x.grad[0].tolist()], [np.log1p(np.exp(-30)), -np.exp(-30), np.exp(-30)], rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p, x, w, t: p(x, w, t + 5), "target 8 of example 3 is not one of the 8 classes"),
        (lambda p, x, w, t: p(x, w, t - 1), "target -1 of example 0 is not one of the 8 classes; ignore_index=-1 leaves such"),
        (lambda p, x, w, t: p(x, w.double(), t), "x is torch.float32 and weight torch.float64: give both one type"),
        (lambda p, x, w, t: p(x, w, t[:3]), r"\[..., d\], \[classes, d\] and \[...\]"),
        (lambda p, x, w, t: p(x, w, t.float()), "give indices of classes"),
        (lambda p, x, w, t: p(x, w, t, bias=torch.zeros(7)), "`bias` is .7., and weight has 8 rows"),
        (lambda p, x, w, t: p(x, w, t, choose.Sampled(9)), "weight has 8 rows, and the chooser was made for 9 classes"),
        (lambda p, x, w, t: p(x, w, t, reduction="all"), "use mean, sum or none"),
        (lambda p, x, w, t: p(x, w, t, margin=0.2), "give `scale` too"),
        (lambda p, x, w, t: p(x, w, t, sparse=True), "rows that a chooser chooses"),
        (lambda p, x, w, t: p(x, w, t, Fixed(torch.tensor([4, 3, 2, 1, 0]), None)), "rows that do not ascend"),
        (lambda p, x, w, t: p(x, w, t, Fixed(torch.tensor([0, 1, 2, 4]), None)), "left out the target 3"),
        (lambda p, x, w, t: p(x, w, t, Fixed(torch.arange(8), torch.zeros(3))), "a correction of the shape .3.; give one a row"),
        (lambda p, x, w, t: choose.Near(8, 0), "a share above 0 and up to 1"),
    ],
)
def test_wrong_arguments_are_named(call: Any, said: str) -> None:
    with pytest.raises(pelton.ConfigurationError, match=said):
        call(pelton.partial_cross_entropy, torch.randn(5, 4), torch.randn(8, 4), torch.arange(5))


def rank_of(rank: int, folder: str, uneven: bool) -> None:
    """One of two ranks: its part of every case, written to the folder."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for case in range(40):
        x, weight, target, o, cut, half = case_of(case, uneven)
        rows = slice(0, cut) if rank == 0 else slice(cut, None)
        mine = slice(0, half) if rank == 0 else slice(half, None)
        x, w = x[mine].clone().requires_grad_(), weight[rows].clone().requires_grad_()
        given = {name: value[rows] if name in ("bias", "class_weights") else value for name, value in o.items()}
        if isinstance(o.get("margin"), torch.Tensor):
            given["margin"] = o["margin"][mine]
        loss = pelton.partial_cross_entropy(x, w, target[mine], group=True, **given)
        loss.backward()
        torch.save((loss.detach(), x.grad / 2, w.grad), f"{folder}/{case}.{rank}")
    # Choosers of the own rows: the estimate of the whole.
    x, weight, target = many_classes()
    rows, mine = (slice(0, 70), slice(0, 4)) if rank == 0 else (slice(70, None), slice(4, None))
    for seed in range(400):
        chooser = choose.Sampled(len(weight[rows]), 0.5, seed=seed)
        loss = pelton.partial_cross_entropy(x[mine], weight[rows], target[mine], chooser, group=True)
        if rank == 0:
            with open(f"{folder}/losses", "a") as file:
                print(loss.item(), file=file)
    torch.distributed.destroy_process_group()


def many_classes() -> Any:
    rng = np.random.default_rng(7)
    weight = torch.as_tensor(rng.normal(size=(150, 5)))
    return torch.as_tensor(rng.normal(size=(9, 5))), weight, torch.as_tensor(rng.integers(0, 150, 9))


def case_of(case: int, uneven: bool) -> Any:
    rng = np.random.default_rng(1000 + case)
    classes, n = int(rng.integers(4, 30)), int(rng.integers(2, 12))
    several = bool(rng.random() < 0.25)
    o: dict[str, Any] = {"reduction": str(rng.choice(["mean", "sum"]))}
    if rng.random() < 0.4:
        o["label_smoothing"] = 0.3
    if rng.random() < 0.3:
        o["class_weights"] = torch.as_tensor(rng.uniform(0.1, 2, classes))
    if rng.random() < 0.3:
        o["z_loss"] = 0.05
    if rng.random() < 0.4:
        o |= {"scale": 9.0} | ({} if several else {"margin": torch.as_tensor(rng.uniform(0, 0.3, n)) if rng.random() < 0.5 else 0.2})
    elif rng.random() < 0.5:
        o["bias"] = torch.as_tensor(rng.normal(size=classes))
    x, weight = torch.as_tensor(rng.normal(size=(n, 5))), torch.as_tensor(rng.normal(size=(classes, 5)))
    target = torch.as_tensor(rng.integers(0, classes, (n, 3) if several else n))
    target.view(-1)[1:] = torch.where(torch.as_tensor(rng.random(target.numel() - 1) < 0.2), -100, target.view(-1)[1:])
    if rng.random() < 0.25:
        o = {name: of for name, of in o.items() if name not in ("label_smoothing", "z_loss", "margin")} | {"binary": True}
    return x, weight, target, o, int(rng.integers(1, classes)) if uneven else classes // 2, int(rng.integers(0, n + 1)) if uneven else n // 2


@pytest.mark.parametrize("uneven", [False, True])
def test_rows_divided_over_two_ranks_are_those_of_one(uneven: bool, tmp_path: Any) -> None:
    torch.multiprocessing.spawn(rank_of, (str(tmp_path), uneven), nprocs=2)
    for case in range(40):
        x, weight, target, o, cut, half = case_of(case, uneven)
        x, weight = x.requires_grad_(), weight.requires_grad_()
        loss = pelton.partial_cross_entropy(x, weight, target, **o)
        loss.backward()
        (first, x1, w1), (second, x2, w2) = (torch.load(tmp_path / f"{case}.{rank}") for rank in range(2))
        close = {"rtol": 1e-9, "atol": 1e-11}
        torch.testing.assert_close(first, loss.detach(), **close)
        torch.testing.assert_close(second, loss.detach(), **close)
        torch.testing.assert_close(torch.cat([x1, x2]), x.grad, **close)
        torch.testing.assert_close(torch.cat([w1, w2]), weight.grad, **close)
    losses = np.loadtxt(tmp_path / "losses")
    # A logarithm of an estimate is a little too low.
    whole = pelton.partial_cross_entropy(*many_classes()).item()
    assert whole - 0.1 < losses.mean() < whole + 0.02 and 0 < losses.std() < 0.3


@pytest.mark.parametrize("name", ["all", *CHOOSERS])
def test_torch_compile_follows_it_as_a_whole(name: str) -> None:
    if not hasattr(torch, "_dynamo"):
        pytest.skip("SKIPPED: this PyTorch has no torch.compile")
    weight, target = torch.randn(200, 6, requires_grad=True), torch.randint(0, 200, (5,))
    x, chooser = torch.randn(5, 6), None if name == "all" else CHOOSERS[name](200, 3)
    if name == "knn":
        chooser.rebuild(weight)
    found = []
    for compiles in (False, True):
        if chooser is not None:
            chooser.step.zero_()
        torch._dynamo.reset()

        def loss(x: Any) -> Any:
            return pelton.partial_cross_entropy(x, weight, target, chooser, label_smoothing=0.1)

        made = (torch.compile(loss, backend="aot_eager", fullgraph=True) if compiles else loss)(x)
        weight.grad = None
        made.backward()
        found.append((made.detach(), weight.grad))
    torch.testing.assert_close(found[0], found[1])


def test_without_any_label_the_mean_is_that_of_nothing() -> None:
    x, weight = torch.randn(6, 4), torch.randn(20, 4, requires_grad=True)
    for shape in ((6,), (6, 2)):
        target = torch.full(shape, -100)
        assert pelton.partial_cross_entropy(x, weight, target).isnan()
        assert pelton.partial_cross_entropy(x, weight, target, reduction="sum") == 0


def test_labels_of_fewer_bits_are_the_same() -> None:
    x, weight, target = torch.randn(6, 4), torch.randn(20, 4, requires_grad=True), torch.arange(6)
    expected = pelton.partial_cross_entropy(x, weight, target)
    for kind in (torch.int32, torch.uint8):
        assert pelton.partial_cross_entropy(x, weight, target.to(kind)) == expected
