"""A step of the cross-entropy over very many classes in PyTorch: loss and gradients, no update.

python bench/partial.py [ROUNDS] > bench/results/partial.csv

100 000 classes, 128 features, 256 examples, f32 on the CPU; sides take turns, a line a round with milliseconds of wall time.
`plain` is `linear` and `cross_entropy`, `chunked` PyTorch's `linear_cross_entropy` with chunks where it exists, `full` and the
choosers (a tenth of the classes) are `pelton.partial_cross_entropy`; `-sparse` gives the gradient of the weights by rows.
"""

import sys
import time
from collections.abc import Callable

import pelton
import torch
from torch.nn import functional

CLASSES, DIM, EXAMPLES = 100_000, 128, 256


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
    print("side,round,ms")
    for number in range(-1, int(sys.argv[1]) if len(sys.argv) > 1 else 7):
        for side, made in sides.items():
            weight.grad = x.grad = None
            start = time.perf_counter()
            made().backward()
            if number >= 0:
                print(f"{side},{number},{1e3 * (time.perf_counter() - start):.2f}", flush=True)


main()
