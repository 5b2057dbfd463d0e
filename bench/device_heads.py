"""Heads of ``pelton.heads`` in PyTorch operators: accuracy, speed and graph time, on a device or on CPU tensors.

    python bench/device_heads.py accuracy --classes 20000 --views 27 --head full knn:10:0.1 sampled:0.1 --seeds 5
    python bench/device_heads.py speed --classes 1000000 --dim 512 --batch 1024 --precision bfloat16
    python bench/device_heads.py graph --classes 1000000 --dim 512

Accuracy is that of a net of two hidden layers of 256 on a mixture of classes (``demo:classes``), over views that were not
trained. Each line of output is a row of CSV; ``--head`` takes several, one after another.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import pelton
from pelton.heads import KnnSoftmax


def mixture(classes: int, views: int, first: int, seed: int, device: str) -> tuple[Tensor, Tensor]:
    """Views ``first`` to ``first`` + ``views`` of each class."""
    line = (
        f'{{"pelton_mixture":1,"classes":{classes},"first_view":{first},"views":{views},"features":64,'
        f'"noise":1.1,"seed":{seed}}}\n'
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "classes.mixture"
        path.write_text(line)
        parts = [
            (torch.from_numpy(batch["features"].copy()).to(device), torch.from_numpy(batch["label"].copy()).to(device))
            for batch in pelton.load(str(path)).batch(65_536)
        ]
    features, labels = (torch.cat(part) for part in zip(*parts, strict=True))
    return features, labels


def net(embedding: int) -> nn.Module:
    layers: list[nn.Module] = []
    for width in (64, 256):
        layers += [nn.Linear(width, 256), nn.LayerNorm(256), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(256, embedding))


def head_of(text: str, classes: int, dim: int, arguments: argparse.Namespace, seed: int) -> KnnSoftmax:
    kind, *numbers = text.split(":")
    names = {"full": [], "knn": ["k", "budget", "drawn"], "sampled": ["budget"]}[kind]
    setting: dict[str, Any] = dict(zip(names, map(float, numbers), strict=False))
    if "k" in setting:
        setting["k"] = int(setting["k"])
    return KnnSoftmax(
        classes,
        dim,
        kind,
        **setting,
        scale=arguments.scale,
        correct=arguments.correct,
        centre=arguments.centre,
        momentum=arguments.momentum,
        seed=seed,
        device=arguments.device,
        precision=arguments.precision,
        compile=arguments.compile,
    )


def accuracy(arguments: argparse.Namespace) -> None:
    print("classes,views,epochs,batch,head,begin,centre,correct,rate,head_rate,seed,test_accuracy,test_views,active,"
          "train_loss,seconds,examples_per_s,graph_s", flush=True)
    device = arguments.device
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        features, labels = mixture(arguments.classes, arguments.views, 0, seed, device)
        test = mixture(arguments.classes, arguments.test_views, arguments.views, seed, device)
        for spelled in arguments.head:
            torch.manual_seed(seed)
            trained = net(arguments.dim).to(device)
            head = head_of(spelled, arguments.classes, arguments.dim, arguments, seed)
            if arguments.begin == "means":
                with torch.no_grad():
                    embedded = [trained(part) for part in features.split(65_536)]
                head.begin_at_means(list(zip(embedded, labels.split(65_536), strict=True)))
                del embedded
            optimizer = torch.optim.SGD(trained.parameters(), arguments.rate, momentum=0.9)
            steps = math.ceil(len(labels) / arguments.batch)
            began, graph_s = time.perf_counter(), 0.0
            step = 0
            for epoch in range(arguments.epochs):
                # As `step:5,8:0.1` of ten epochs; the first steps warm up.
                factor = 0.1 ** sum(epoch >= part * arguments.epochs for part in (0.5, 0.8)) if arguments.epochs > 1 else 1.0
                at = time.perf_counter()
                if spelled.startswith("knn"):
                    head.rebuild_graph()
                    if device != "cpu":
                        torch.cuda.synchronize()
                graph_s += time.perf_counter() - at
                total = torch.zeros((), device=device)
                for chosen in torch.randperm(len(labels), device=device).split(arguments.batch):
                    step += 1
                    now = factor * min(1.0, step / (arguments.warm_up * steps)) if arguments.warm_up else factor
                    if arguments.epochs == 1:
                        now *= 0.5 + 0.5 * math.cos(math.pi * step / steps)
                    optimizer.param_groups[0]["lr"] = arguments.rate * now
                    optimizer.zero_grad(set_to_none=True)
                    loss = head(trained(features[chosen]), labels[chosen])
                    loss.backward()
                    optimizer.step()
                    head.step(arguments.head_rate * now)
                    total += loss.detach()
            train_loss = total.item() / steps
            seconds = time.perf_counter() - began
            active = head.active
            trained.eval()
            head.eval()
            right = 0
            with torch.no_grad():
                for x, y in zip(test[0].split(8192), test[1].split(8192), strict=True):
                    best = head.predict(trained(x)).classes[:, 0]
                    right += int((best == y).sum())
            rate = len(labels) * arguments.epochs / seconds
            print(f"{arguments.classes},{arguments.views},{arguments.epochs},{arguments.batch},{spelled},{arguments.begin},"
                  f"{arguments.centre},{arguments.correct},{arguments.rate},{arguments.head_rate},{seed},"
                  f"{100 * right / len(test[1]):.3f},{len(test[1])},{active},{train_loss:.4f},{seconds:.1f},{rate:.0f},{graph_s:.2f}",
                  flush=True)


def timed(arguments: argparse.Namespace, work: Any, times: int) -> list[float]:
    found = []
    for _ in range(times):
        if arguments.device != "cpu":
            torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        if arguments.device != "cpu":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return sorted(found)


def speed(arguments: argparse.Namespace) -> None:
    """Milliseconds of a step of the head alone (forward, backward, update), and what its products make of the peak."""
    print("head,classes,dim,batch,precision,active,ms_median,ms_least,tflops,share_of_product,gib", flush=True)
    device = arguments.device
    dtype = getattr(torch, arguments.precision)
    size = 8192 if device != "cpu" else 1024
    a = torch.randn(size, size, device=device).to(dtype)
    seconds = timed(arguments, lambda: a @ a, 12)[6]
    peak = 2 * size**3 / seconds
    print(f"# product of {size} x {size}: {peak / 1e12:.1f} TFLOP/s", flush=True)
    random = torch.Generator(device).manual_seed(0)
    for spelled in arguments.head:
        head = head_of(spelled, arguments.classes, arguments.dim, arguments, 0)
        if spelled.startswith("knn"):
            # Random neighbours are as many as real ones.
            k = head._native.setting["k"]
            ids = torch.randint(arguments.classes, (arguments.classes, k), device=device, generator=random).int()
            ids[:, 0] = torch.arange(arguments.classes, device=device)
            from pelton._device_rows import Graph

            head._native.graph = Graph.divide(ids, range(arguments.classes), head._native.ranks)
        features = torch.randn(arguments.batch, arguments.dim, device=device, generator=random).requires_grad_()

        def step() -> None:
            labels = torch.randint(arguments.classes, (arguments.batch,), device=device, generator=random)
            head(features, labels).backward()
            head.step(0.1)

        timed(arguments, step, 5)
        if device != "cpu":
            torch.cuda.reset_peak_memory_stats()
        times = timed(arguments, step, arguments.times)
        middle = times[len(times) // 2]
        floats = 8 * arguments.batch * head.active * arguments.dim / middle
        memory = torch.cuda.max_memory_allocated() / 2**30 if device != "cpu" else 0.0
        print(f"{spelled},{arguments.classes},{arguments.dim},{arguments.batch},{arguments.precision},{head.active},"
              f"{1e3 * middle:.3f},{1e3 * times[0]:.3f},{floats / 1e12:.2f},{floats / peak:.3f},{memory:.2f}", flush=True)
        del head
        if device != "cpu":
            torch.cuda.empty_cache()


def plain(arguments: argparse.Namespace) -> None:
    """The same of ``Linear`` and ``cross_entropy``, with SGD on all rows."""
    device, dtype = arguments.device, getattr(torch, arguments.precision)
    layer = nn.Linear(arguments.dim, arguments.classes, bias=False, device=device, dtype=dtype)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
    features = torch.randn(arguments.batch, arguments.dim, device=device, dtype=dtype).requires_grad_()

    def step() -> None:
        labels = torch.randint(arguments.classes, (arguments.batch,), device=device)
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(layer(features), labels).backward()
        optimizer.step()

    timed(arguments, step, 3)
    times = timed(arguments, step, arguments.times)
    print(f"linear,{arguments.classes},{arguments.dim},{arguments.batch},{arguments.precision},{arguments.classes},"
          f"{1e3 * times[len(times) // 2]:.3f},{1e3 * times[0]:.3f}", flush=True)


def graph(arguments: argparse.Namespace) -> None:
    """Seconds of the exact graph, and how many of its neighbours are those of products in f32."""
    head = head_of(f"knn:{arguments.k}:0.1", arguments.classes, arguments.dim, arguments, 0)
    seconds = timed(arguments, head.rebuild_graph, 1)[0]
    ids = head._native.graph.ids
    asked = torch.randperm(arguments.classes, device=arguments.device)[:2000]
    unit = nn.functional.normalize(head.weight.float())
    expected = (unit[asked] @ unit.t()).topk(arguments.k).indices
    found = (expected[:, :, None] == ids[asked].long()[:, None, :]).any(2).double().mean()
    floats = 2 * arguments.classes**2 * arguments.dim / seconds
    print(f"graph,{arguments.classes},{arguments.dim},{arguments.k},{arguments.precision},{seconds:.3f} s,"
          f"{floats / 1e12:.1f} TFLOP/s,recall {found:.6f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["accuracy", "speed", "plain", "graph"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--classes", type=int, default=5000)
    parser.add_argument("--views", type=int, default=27)
    parser.add_argument("--test-views", type=int, default=10)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--head-rate", type=float, default=0.3)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--warm-up", type=float, default=0.1, help="epochs of linear warm-up")
    parser.add_argument("--scale", type=float, default=16.0)
    parser.add_argument("--head", nargs="+", default=["full", "knn:10:0.1:0.5", "sampled:0.1"])
    parser.add_argument("--begin", choices=["means", "random"], default="means")
    parser.add_argument("--centre", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--correct", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--compile", action="store_true", help="fuse passes over logits with torch.compile")
    arguments = parser.parse_args()
    {"accuracy": accuracy, "speed": speed, "plain": plain, "graph": graph}[arguments.what](arguments)


if __name__ == "__main__":
    main()
