"""ResNet-20 on Fashion-MNIST in PyTorch, fed by Pelton or by torch's own DataLoader.

    apt-get install dataset-fashion-mnist        # or any folder with the four IDX files
    python examples/resnet20_fashion.py --loader pelton
    python examples/resnet20_fashion.py --loader torch

Both crop after padding by 2 and flip, both train the same net from the same numbers. What is printed: loss, accuracy on the
test part, seconds of the epoch, and the share of them that the loop waited for batches.
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

FOLDER = Path("/usr/share/datasets/fashion-mnist")
Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


def find(folder: Path, name: str) -> Path:
    """The file of this name, compressed or not."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            return path
    raise SystemExit(f"{folder} has no {name}; install dataset-fashion-mnist, or name a folder with --data")


def by_pelton(folder: Path, part: str, batch: int, seed: int, augment: bool) -> Batches:
    """Batches of a part, straight from its IDX file, whose labels lie next to it."""
    import pelton

    pipeline = pelton.load(find(folder, f"{part}-images-idx3-ubyte")).batch(batch).torch()
    if augment:
        pipeline = pipeline.shuffle(seed=seed).random_crop(28, padding=2).flip()
    return pipeline.tuples("image", "label")


class Fashion(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """The same as users of torch write it."""

    def __init__(self, folder: Path, part: str, augment: bool) -> None:
        def numbers(name: str, head: int) -> np.ndarray:
            path = find(folder, name)
            opened = gzip.open(path) if path.suffix == ".gz" else path.open("rb")
            with opened as file:
                return np.frombuffer(file.read(), np.uint8, offset=head).copy()

        self.pictures = torch.from_numpy(numbers(f"{part}-images-idx3-ubyte", 16).reshape(-1, 28, 28))
        self.labels = numbers(f"{part}-labels-idx1-ubyte", 8)
        self.augment = augment

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        picture = self.pictures[i]
        if self.augment:
            top, left = torch.randint(0, 5, (2,)).tolist()
            picture = functional.pad(picture, (2, 2, 2, 2))[top : top + 28, left : left + 28]
            if torch.rand(()) < 0.5:
                picture = picture.flip(1)
        return picture[None], int(self.labels[i])


def by_torch(folder: Path, part: str, batch: int, seed: int, augment: bool, workers: int) -> Batches:
    """Batches of a part by a DataLoader."""
    generator = torch.Generator().manual_seed(seed)
    dataset = Fashion(folder, part, augment)
    return torch.utils.data.DataLoader(
        dataset, batch, shuffle=augment, num_workers=workers, generator=generator, persistent_workers=workers > 0
    )


class Block(nn.Module):
    """Two convolutions with a way around them (He et al., 2015)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])
        self.stride, self.wider = stride, after - before

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = functional.relu(self.norms[0](self.first(x)))
        inner = self.norms[1](self.second(inner))
        around = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.wider))
        return functional.relu(inner + around)


def resnet20() -> nn.Module:
    """The net of 0.27 M parameters, for one channel."""
    blocks: list[nn.Module] = [nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    for before, after in ((16, 16), (16, 32), (32, 64)):
        blocks += [Block(before, after, after // before), Block(after, after, 1), Block(after, after, 1)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def prepared(pictures: torch.Tensor) -> torch.Tensor:
    return (pictures.float() - 73.0) / 90.0


def train(net: nn.Module, batches: Batches, optimiser: torch.optim.Optimizer, steps: int) -> tuple[float, float, float]:
    """One epoch, of some steps at most: mean loss, seconds, and seconds that it waited."""
    net.train()
    began, waited, losses = time.perf_counter(), 0.0, []
    asked = began
    for pictures, labels in batches:
        waited += time.perf_counter() - asked
        loss = functional.cross_entropy(net(prepared(pictures)), labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        if len(losses) == steps:
            break
        asked = time.perf_counter()
    return float(np.mean(losses)), time.perf_counter() - began, waited


@torch.no_grad()
def accuracy(net: nn.Module, batches: Batches) -> float:
    net.eval()
    right = [(net(prepared(pictures)).argmax(1) == labels).float() for pictures, labels in batches]
    return torch.cat(right).mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loader", choices=["pelton", "torch"], default="pelton")
    parser.add_argument("--data", type=Path, default=FOLDER)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=0, help="steps of an epoch at most; all where 0")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, default=2, help="of torch's loader")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    make = by_pelton if options.loader == "pelton" else lambda *rest: by_torch(*rest, options.workers)
    batches = make(options.data, "train", options.batch, options.seed, True)
    test = make(options.data, "t10k", 500, options.seed, False)
    net = resnet20()
    optimiser = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, options.epochs)
    for epoch in range(options.epochs):
        loss, seconds, waited = train(net, batches, optimiser, options.steps)
        schedule.step()
        print(
            f"epoch {epoch}: loss {loss:.4f}, test accuracy {accuracy(net, test):.4f}, {seconds:.1f} s, "
            f"waited {waited / seconds:.2%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
