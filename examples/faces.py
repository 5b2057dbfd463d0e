"""Recognition of faces: iResNet-18 and ArcFace over the persons of a folder, of whom a step uses a part.

    pip install torch
    python examples/faces.py FACES --budget 0.1         # FACES/PERSON/NAME.jpg, cropped and aligned, or a .tar of them

As insightface's arcface_torch with Partial FC: the weights of the persons are one parameter, whose rows with a gradient take a
step by momentum (`pelton.optim.SGD`); under torchrun each rank has a part of the persons. Pairs of pictures that are left out of
training tell how often the same person is nearer than another.
"""

from __future__ import annotations

import argparse
import os

import torch
from torch import Tensor, nn

import pelton
from pelton.heads import KnnSoftmax


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.PReLU(outputs),
            nn.Conv2d(outputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.short: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + self.short(x)


def iresnet18(dim: int, side: int, width: int = 64) -> nn.Sequential:
    """Embeddings [n, dim] of pictures [n, 3, side, side]."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.PReLU(width)]
    inputs = width
    for outputs in (width, 2 * width, 4 * width, 8 * width):
        layers += [Block(inputs, outputs, 2), Block(outputs, outputs, 1)]
        inputs, side = outputs, -(-side // 2)
    end = nn.BatchNorm1d(dim)
    nn.init.ones_(end.weight)
    end.weight.requires_grad_(False)
    return nn.Sequential(*layers, nn.BatchNorm2d(inputs), nn.Flatten(), nn.Linear(inputs * side * side, dim), end)


def head_of(persons: int, options: argparse.Namespace, ranks: int) -> KnnSoftmax:
    kind = "full" if options.budget >= 1 else "sampled"
    arcface = {"logits": "arcface", "scale": options.scale, "margin": options.margin}
    return KnnSoftmax(
        persons,
        options.dim,
        kind,
        budget=options.budget,
        sparse=kind != "full",
        weight_decay=5e-4,
        group=ranks > 1,
        **arcface,
    )


def told_apart(embedded: Tensor, persons: Tensor) -> float:
    """How often the nearest other picture is one of the same person, of those who have another."""
    unit = nn.functional.normalize(embedded, dim=1)
    cosines = (unit @ unit.t()).fill_diagonal_(-2)
    same = (persons[:, None] == persons).fill_diagonal_(False)
    some = same.any(1)
    return same[torch.arange(len(persons)), cosines.argmax(1)][some].double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faces")
    parser.add_argument("--side", type=int, default=112)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--budget", type=float, default=0.1, help="the share of the persons that takes part in a step")
    parser.add_argument("--scale", type=float, default=64.0)
    parser.add_argument("--margin", type=float, default=0.5)
    options = parser.parse_args()
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
    train, test = pelton.load(options.faces).split(0.9, seed=0)
    pictures = [of.decode("image").resize(options.side).crop(options.side) for of in (train, test)]
    train, test = pictures[0].shuffle(seed=0).flip().normalise(0.5, 0.5), pictures[1].normalise(0.5, 0.5)
    persons = len(train.classes)
    torch.manual_seed(0)
    net: nn.Module = iresnet18(options.dim, options.side, options.width)
    wrapped = nn.parallel.DistributedDataParallel(net) if ranks > 1 else net
    head = head_of(persons, options, ranks)
    optimiser = torch.optim.SGD((p for p in net.parameters() if p.requires_grad), options.rate, momentum=0.9, weight_decay=5e-4)
    batches = train.batch(options.batch).torch()
    steps = options.epochs * len(batches)
    for epoch in range(options.epochs):
        net.train()
        for step, batch in enumerate(batches, epoch * len(batches)):
            rate = options.rate * (1 - step / steps) ** 2
            optimiser.param_groups[0]["lr"] = rate
            loss = head(wrapped(batch["image"]), batch["label"])
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5)
            optimiser.step()
            head.step(rate)
        net.eval()
        with torch.no_grad():
            found = [(net(batch["image"]), batch["label"]) for batch in test.batch(256).shard(0, 1).torch()]
        apart = told_apart(torch.cat([of for of, _ in found]), torch.cat([of for _, of in found]))
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}  {head.active} of {persons} persons  told apart {apart:.4f}", flush=True)
    if rank == 0:
        torch.save(net.state_dict(), "faces.pt")
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
