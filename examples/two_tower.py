"""Recommendation by two towers: a net of users, one of items, and the softmax over all items, of which a step uses a part.

    pip install torch
    python examples/two_tower.py TRAIN.csv TEST.csv --negatives popular      # columns `user` and `item`, whole numbers from 0

`in-batch` compares with the items of the batch, `popular` draws more by how often they occur, `near` by how likely they are now,
`all` takes all. What is drawn counts for one over its chance of being drawn (the correction by log Q of Yi et al., RecSys 2019, for
draws that are each there once), so that every loss estimates that over all items. Under torchrun each rank has its own pairs, and
the items of all ranks' batches are the negatives of each. Prints recall at 10 and 100.
"""

from __future__ import annotations

import argparse
import os

import numpy as np
import torch
from torch import Tensor

import pelton


class Popular(torch.nn.Module):
    """Items of the batch, and with a budget others drawn by how often they occur, up to that share of all."""

    def __init__(self, counts: Tensor, budget: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("share", (counts.double() + 1) / (counts.double() + 1).sum())
        self.budget = budget

    def forward(self, features: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        seen = target.flatten()
        if self.budget:
            seen = torch.cat([seen, torch.multinomial(self.share, round(self.budget * len(weight)), replacement=True)])
        rows, draws = seen.unique(), len(seen)
        # The chance to be among so many draws, of which a batch's items are some; of an example its own item counts once.
        chance = -torch.expm1(draws * torch.log1p(-self.share[rows]))
        return rows, -chance.log().float()


class Towers(torch.nn.Module):
    def __init__(self, users: int, items: int, dim: int = 64) -> None:
        super().__init__()
        self.user, self.item = torch.nn.Embedding(users, dim), torch.nn.Embedding(items, dim)
        self.of_user = torch.nn.Sequential(torch.nn.Linear(dim, 2 * dim), torch.nn.ReLU(), torch.nn.Linear(2 * dim, dim))

    def forward(self, user: Tensor) -> tuple[Tensor, Tensor]:
        """Of these users, and of all items."""
        users = torch.nn.functional.normalize(self.of_user(self.user(user)), dim=1)
        return 16 * users, torch.nn.functional.normalize(self.item.weight, dim=1)


def chooser_of(kind: str, counts: Tensor, budget: float) -> torch.nn.Module | None:
    kinds = {
        "all": lambda: None,
        "in-batch": lambda: Popular(counts),
        "popular": lambda: Popular(counts, budget),
        "near": lambda: pelton.choose.Near(len(counts), budget),
    }
    return kinds[kind]()


def everyone(of: Tensor) -> Tensor:
    """Those of all ranks, with equally many on each."""
    if not torch.distributed.is_initialized():
        return of
    parts = [torch.empty_like(of) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(parts, of)
    return torch.cat(parts)


def loss_of(towers: torch.nn.Module, user: Tensor, item: Tensor, chooser: torch.nn.Module | None) -> Tensor:
    users, items = towers(user)
    if chooser is None:
        return pelton.partial_cross_entropy(users, items, item)
    # The items of all ranks' batches take part.
    rows = everyone(item)
    return pelton.partial_cross_entropy(users, items, item, lambda features, _, weight: chooser(features, rows, weight))


def numbers(pair: dict[str, str]) -> dict[str, np.int64]:
    return {name: np.int64(pair[name]) for name in ("user", "item")}


def recall(towers: Towers, test: pelton.Pipeline, k: int) -> float:
    found = []
    with torch.no_grad():
        for batch in test.batch(1000).shard(0, 1).torch():
            users, items = towers(batch["user"])
            found.append((users @ items.t()).topk(min(k, len(items))).indices.eq(batch["item"][:, None]).any(1))
    return torch.cat(found).double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--negatives", choices=["in-batch", "popular", "near", "all"], default="popular")
    parser.add_argument("--budget", type=float, default=0.1, help="the share of the items that takes part in a step")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=1e-2)
    options = parser.parse_args()
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
    train, test = (pelton.load(path, format="csv:user,item").map(numbers) for path in (options.train, options.test))
    # All of them, on every rank.
    users, items = set(), []
    for batch in train.batch(4096).shard(0, 1):
        users.update(batch["user"].tolist())
        items += batch["item"].tolist()
    counts = torch.bincount(torch.tensor(items))
    torch.manual_seed(0)
    towers = Towers(max(users) + 1, len(counts))
    wrapped = torch.nn.parallel.DistributedDataParallel(towers) if ranks > 1 else towers
    chooser = chooser_of(options.negatives, counts, options.budget)
    optimiser = torch.optim.Adam(towers.parameters(), options.rate)
    batches = train.shuffle(seed=0).batch(options.batch, last="drop").torch()
    for epoch in range(options.epochs):
        for batch in batches:
            loss = loss_of(wrapped, batch["user"], batch["item"], chooser)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}  recall@10 {recall(towers, test, 10):.4f}  @100 {recall(towers, test, 100):.4f}", flush=True)
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
