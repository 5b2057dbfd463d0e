"""``pelton.heads`` and what fills a device: accuracy, speed, and how long a GPU waits for pictures.

    python bench/device_heads.py accuracy --classes 5000 --views 27 --batch 256 --head full knn:10:0.1 sampled:0.1 near:0.1
    python bench/device_heads.py speed --device cuda --classes 1000000 --dim 512 --batch 1024 --precision bfloat16
    python bench/device_heads.py feed --device cuda

The last two take less than eight minutes on one GPU. ``speed`` is a step of loss and gradients, without an update, in turns:
``chunked`` is `linear` and `cross_entropy` for 64 examples at a time, ``linear_cross_entropy`` PyTorch's function where it exists.
``feed`` trains ResNet-18 on a tar of JPEG pictures, on one batch over and over, and from torchvision's folder. Accuracy is that of a net of two hidden layers of 256 on a mixture of classes (``demo:classes``), over views that were not
trained. Each line of output is a row of CSV; ``--head`` takes several, one after another.
"""

from __future__ import annotations

import argparse
import io
import math
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable
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
    names = {"full": [], "knn": ["k", "budget", "drawn"], "sampled": ["budget"], "near": ["budget"]}[kind]
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
        sparse=kind != "full",
        seed=seed,
        device=arguments.device,
        dtype=getattr(torch, arguments.precision),
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
                if spelled.startswith("knn") and (epoch or arguments.begin == "means"):
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


def finish(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def speed(arguments: argparse.Namespace) -> None:
    classes, dim, batch, device = arguments.classes, arguments.dim, arguments.batch, arguments.device
    dtype = getattr(torch, arguments.precision)
    torch.manual_seed(0)
    weight = nn.Parameter((torch.randn(classes, dim, device=device) * 0.05).to(dtype))
    x = torch.randn(batch, dim, device=device).to(dtype).requires_grad_()
    target = torch.randint(classes, (batch,), device=device)
    loss, budget = pelton.partial_cross_entropy, arguments.budget
    choosers = {
        "sampled": pelton.choose.Sampled(classes, budget).to(device),
        "knn": pelton.choose.Knn(classes, 10, budget).to(device),
        "near": pelton.choose.Near(classes, budget).to(device),
    }
    # As many as real ones.
    choosers["knn"].graph = torch.randint(classes, (classes, 10), device=device).int()

    def chunked() -> None:
        for part, of in zip(x.split(64), target.split(64), strict=True):
            (nn.functional.cross_entropy(part @ weight.t(), of, reduction="sum") / batch).backward()

    sides: dict[str, Callable[[], None]] = {"chunked": chunked, "full": lambda: loss(x, weight, target).backward()}
    if hasattr(nn.functional, "linear_cross_entropy") and hasattr(nn, "LinearCrossEntropyOptions"):
        options = nn.LinearCrossEntropyOptions()
        sides["linear_cross_entropy"] = lambda: nn.functional.linear_cross_entropy(x, weight, target, options=options).backward()
    for name, chooser in choosers.items():
        sides[name] = lambda chooser=chooser: loss(x, weight, target, chooser, sparse=True).backward()
    times: dict[str, list[float]] = {name: [] for name in sides}
    print("side,classes,dim,batch,precision,round,ms", flush=True)
    for turn in range(-2, arguments.times):
        for name, side in sides.items():
            weight.grad = x.grad = None
            finish(device)
            began = time.perf_counter()
            side()
            finish(device)
            if turn >= 0:
                times[name].append(1e3 * (time.perf_counter() - began))
                print(f"{name},{classes},{dim},{batch},{arguments.precision},{turn},{times[name][-1]:.3f}", flush=True)
    plain = statistics.median(times["chunked"])
    for name, of in times.items():
        print(f"# {name}: {statistics.median(of):.2f} ms, {statistics.median(of) / plain:.3f} of chunked", flush=True)


def feed(arguments: argparse.Namespace) -> None:
    """The share of time that a device waits for its next batch: seconds beyond those of one batch over and over."""
    import torchvision
    from PIL import Image

    device = arguments.device
    generator = torch.Generator().manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        tar = Path(folder) / "pictures.tar"
        with tarfile.open(tar, "w") as file:
            for number in range(arguments.pictures):
                # Smooth noise: about as many bytes as a photograph.
                small = torch.rand(3, 32, 32, generator=generator)[None]
                picture = nn.functional.interpolate(small, size=(300, 400), mode="bicubic")[0].clamp(0, 1)
                stored = io.BytesIO()
                Image.fromarray((255 * picture).byte().permute(1, 2, 0).numpy()).save(stored, "JPEG", quality=90)
                of_class = Path(folder) / "pictures" / f"{number % 10}"
                of_class.mkdir(parents=True, exist_ok=True)
                (of_class / f"{number:05}.jpg").write_bytes(stored.getvalue())
                for suffix, data in (("jpg", stored.getvalue()), ("cls", str(number % 10).encode())):
                    member = tarfile.TarInfo(f"{number:05}.{suffix}")
                    member.size = len(data)
                    file.addfile(member, io.BytesIO(data))
        decoded = pelton.load(str(tar)).shuffle().decode("jpg")
        pipeline = decoded.random_resized_crop(224).flip().normalise().batch(arguments.batch)
        transforms = torchvision.transforms
        steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
                 transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
        others = torchvision.datasets.ImageFolder(str(Path(folder) / "pictures"), transforms.Compose(steps))
        loader = torch.utils.data.DataLoader(
            others, arguments.batch, shuffle=True, num_workers=arguments.workers, drop_last=True, pin_memory=device != "cpu"
        )
        first = next(iter(pipeline.torch("cpu")))
        moved = next(iter(pipeline.torch(device)))
        assert all(torch.equal(first[name], moved[name].cpu()) for name in ("image", "label")), "bytes differ on the device"
        print("# batches on the device have equal bytes", flush=True)
        net = torchvision.models.resnet18(num_classes=10).to(device)
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        batches = arguments.pictures // arguments.batch
        fixed = [(moved["image"], moved["label"])] * batches
        sides: dict[str, Callable[[], Iterable[Any]]] = {
            "synthetic": lambda: fixed,
            "pelton": lambda: ((batch["image"], batch["label"]) for batch in pipeline.torch(device)),
            "torchvision": lambda: ((x.to(device, non_blocking=True), y.to(device, non_blocking=True)) for x, y in loader),
        }
        print("side,epoch,pictures,seconds", flush=True)
        for epoch in range(-1, arguments.times):
            for name, side in sides.items():
                finish(device)
                began, count = time.perf_counter(), 0
                for x, y in side():
                    if len(x) < arguments.batch:
                        continue
                    optimizer.zero_grad()
                    with torch.autocast(device, torch.bfloat16):
                        loss = nn.functional.cross_entropy(net(x), y.long())
                    loss.backward()
                    optimizer.step()
                    count += len(x)
                finish(device)
                if epoch >= 0:
                    print(f"{name},{epoch},{count},{time.perf_counter() - began:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["accuracy", "speed", "feed"])
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
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--budget", type=float, default=0.1)
    parser.add_argument("--pictures", type=int, default=6400)
    parser.add_argument("--workers", type=int, default=16, help="of torchvision's loader")
    arguments = parser.parse_args()
    {"accuracy": accuracy, "speed": speed, "feed": feed}[arguments.what](arguments)


if __name__ == "__main__":
    main()
