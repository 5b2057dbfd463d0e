"""A step of the cross-entropy over very many classes in PyTorch: loss and gradients, and with `-step` also SGD with momentum.

python bench/partial.py [ROUNDS [chunked]] > bench/results/partial.csv

100 000 classes, 128 features, 256 examples, f32 on the CPU; sides take turns, a line a round with milliseconds of wall time.
`plain` is `linear` and `cross_entropy`, `chunked` PyTorch's `linear_cross_entropy` with chunks where it exists, `full` and the
choosers (a tenth of the classes) are `pelton.partial_cross_entropy`; `-sparse` gives the gradient of the weights by rows, and with
`-step` these are `pelton.heads.KnnSoftmax` and its `step`. `-torch` are the same in PyTorch's operators, as on devices; the argument
`chunked` adds PyTorch's function.
"""

import sys
import time
from collections.abc import Callable

import pelton
import torch
from pelton import _partial
from pelton.heads import KnnSoftmax
from torch.nn import functional

CLASSES, DIM, EXAMPLES = 100_000, 128, 256


def in_operators(made: Callable[[], torch.Tensor]) -> torch.Tensor:
    kept, _partial._is_native = _partial._is_native, lambda *_: False
    try:
        return made()
    finally:
        _partial._is_native = kept


def main() -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(CLASSES, DIM) * 0.1)
    x, target = torch.randn(EXAMPLES, DIM, requires_grad=True), torch.randint(0, CLASSES, (EXAMPLES,))
    knn = pelton.choose.Knn(CLASSES, 10, 0.1)
    knn.rebuild(weight)
    choosers = {"sampled": pelton.choose.Sampled(CLASSES, 0.1), "knn": knn, "near": pelton.choose.Near(CLASSES, 0.1)}
    loss = pelton.partial_cross_entropy
    sides: dict[str, Callable[[], torch.Tensor]] = {
        "plain": lambda: functional.cross_entropy(functional.linear(x, weight), target),
        "full": lambda: loss(x, weight, target),
    }
    if "chunked" in sys.argv and hasattr(functional, "linear_cross_entropy") and hasattr(torch.nn, "LinearCrossEntropyOptions"):
        chunks = torch.nn.LinearCrossEntropyOptions()
        sides["chunked"] = lambda: functional.linear_cross_entropy(x, weight, target, options=chunks)
    for name, chooser in choosers.items():
        sides[name] = lambda chooser=chooser: loss(x, weight, target, chooser)
        sides[f"{name}-sparse"] = lambda chooser=chooser: loss(x, weight, target, chooser, sparse=True)
    for name in ("full", "knn", "near"):
        sides[f"{name}-torch"] = lambda chooser=choosers.get(name): in_operators(lambda: loss(x, weight, target, chooser))
    layer = torch.nn.Parameter(weight.detach().clone())
    optimizer = torch.optim.SGD([layer], 0.1, momentum=0.9)
    sides["plain-step"] = lambda: functional.cross_entropy(functional.linear(x, layer), target)
    heads = {
        f"{kind}-step": KnnSoftmax(CLASSES, DIM, kind, logits="product", sparse=kind != "full") for kind in ("full", "sampled", "knn", "near")
    }
    heads["knn-step"].chooser.graph = knn.graph
    sides |= {name: lambda head=head: head(x, target) for name, head in heads.items()}
    print("side,round,ms")
    for number in range(-1, int(sys.argv[1]) if len(sys.argv) > 1 else 7):
        for side, made in sides.items():
            weight.grad = x.grad = None
            start = time.perf_counter()
            made().backward()
            if side == "plain-step":
                optimizer.step()
                optimizer.zero_grad()
            elif side in heads:
                heads[side].step(0.1)
            if number >= 0:
                print(f"{side},{number},{1e3 * (time.perf_counter() - start):.2f}", flush=True)


main()
