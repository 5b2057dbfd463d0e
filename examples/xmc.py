"""Several labels for each example, of very many: a bag of embeddings with the softmax over the labels, from files of the extreme
classification repository (a head `rows features labels`, then `label,label feature:value …` a line).

    pip install torch
    python examples/xmc.py TRAIN.txt TEST.txt --budget 0.1

Prints precision, nDCG and propensity-scored precision at 1, 3 and 5 after each epoch (Jain, Prabhu and Varma, KDD 2016).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

import pelton


def batches(path: str, batch: int, shuffled: bool) -> Any:
    lines = pelton.load(path)
    return (lines.shuffle(seed=0) if shuffled else lines).batch(batch, collate="pad").torch()


def labels_of(batch: Any) -> torch.Tensor:
    """[examples, most labels], with -100 in the gaps."""
    labels = batch["labels"]
    return labels.masked_fill(torch.arange(labels.shape[1]) >= batch["labels_lengths"][:, None], -100)


class Net(torch.nn.Module):
    def __init__(self, features: int, classes: int, dim: int) -> None:
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(features, dim, mode="sum")
        self.weight = torch.nn.Parameter(torch.randn(classes, dim) / dim**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(classes))
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, batch: Any) -> torch.Tensor:
        there = torch.arange(batch["indices"].shape[1]) < batch["indices_lengths"][:, None]
        values = batch["values"] * there
        values = values / values.norm(dim=1, keepdim=True).clamp(min=1e-6)
        return self.drop(torch.relu(self.bag(batch["indices"], per_sample_weights=values)))


def scores(top: torch.Tensor, labels: torch.Tensor, inverse_propensity: torch.Tensor, k: int) -> tuple[float, float, float]:
    """Precision, nDCG and propensity-scored precision of the first k of the best classes ``[n, …]``."""
    found = (top[:, :k, None] == labels[:, None, :]).any(2).double()
    counts = (labels >= 0).sum(1)
    discount = 1 / torch.log2(torch.arange(k).double() + 2)
    ideal = torch.stack([discount[: min(k, int(count))].sum() for count in counts])
    some = counts > 0
    own = torch.where(labels >= 0, inverse_propensity[labels.clamp(min=0)], 0).sort(1, descending=True).values[:, :k].sum()
    weighted = (found * inverse_propensity[top[:, :k]]).sum()
    return float(found.mean()), float(((found * discount).sum(1) / ideal)[some].mean()), float(weighted / own)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--binary", action="store_true", help="a binary loss of each class in place of the softmax")
    parser.add_argument("--budget", type=float, default=1.0, help="the share of the classes that takes part in a step")
    options = parser.parse_args()
    with open(options.train) as file:
        rows, features, classes = map(int, file.readline().split())
    train, test = batches(options.train, options.batch, True), batches(options.test, 1000, False)
    torch.manual_seed(0)
    net = Net(features, classes, options.dim)
    chooser = None if options.budget >= 1 else pelton.choose.Near(classes, options.budget)
    if chooser:
        chooser.bias = net.bias
    optimiser = torch.optim.AdamW(net.parameters(), options.rate, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, options.rate, total_steps=options.epochs * len(train))
    counts = torch.zeros(classes)
    for epoch in range(options.epochs):
        net.train()
        for batch in train:
            labels = labels_of(batch)
            if epoch == 0:
                counts += torch.bincount(labels[labels >= 0], minlength=classes)
            loss = pelton.partial_cross_entropy(net(batch), net.weight, labels, chooser, bias=net.bias, binary=options.binary)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        # Propensities with the published A = 0.55 and B = 1.5.
        inverse = (1 + (np.log(rows) - 1) * 2.5**0.55 * (counts.double() + 1.5) ** -0.55)
        net.eval()
        with torch.no_grad():
            found = [((net(batch) @ net.weight.t() + net.bias).topk(5).indices, labels_of(batch)) for batch in test]
        most = max(labels.shape[1] for _, labels in found)
        top = torch.cat([best for best, _ in found])
        labels = torch.cat([torch.nn.functional.pad(labels, (0, most - labels.shape[1]), value=-100) for _, labels in found])
        said = [scores(top, labels, inverse, k) for k in (1, 3, 5)]
        shown = "  ".join(f"P@{k} {p:.4f} nDCG@{k} {n:.4f} PSP@{k} {s:.4f}" for k, (p, n, s) in zip((1, 3, 5), said))
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}  {shown}", flush=True)


if __name__ == "__main__":
    main()
