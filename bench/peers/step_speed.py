"""Training steps (forward, backward, SGD with momentum) on a batch in memory, next to PyTorch, taking turns step by step.

Usage: step_speed.py EXAMPLE [CASE ...]
EXAMPLE is the built example `step_speed` of the crate pelton-nn. STEPS (20) and THREADS (2) come from the environment.
`lstm-N` is an LSTM on 32 sentences of N words, for any N, such as the lengths of `pelton buckets`.
Output: CSV of case, side, step, seconds; a line with the medians and their ratio after each case. PyTorch runs images
channels last. For AVX2: PELTON_CPU=avx2 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2
MKL_ENABLE_INSTRUCTIONS=AVX2.
"""
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision

THREADS = int(os.environ.get("THREADS", 2))
STEPS = int(os.environ.get("STEPS", 20))

CASES = {
    "resnet20-32": "resnet20 32 32 3 128",
    "resnet20-28": "resnet20 28 28 1 128",
    "alexnet-32": "alexnet 32 32 3 128",
    "vgg16-32": "vgg16 32 32 3 128",
    "resnet50-224": "resnet50 224 224 3 16",
    "lstm-20": "lstm 10000 200 2 32 20",
    "lstm-35": "lstm 10000 200 2 32 35",
    "lstm-tied-35": "lstm-tied 10000 200 2 32 35",
    "transformer": "transformer 10000 256 6 8 256",
}


class Block(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b)
        self.conv2, self.bn2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
        self.short = None
        if stride != 1 or a != b:
            self.short = nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + (x if self.short is None else self.short(x)))


def resnet20(channels):
    blocks, a = [nn.Conv2d(channels, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()], 16
    for b, stride in [(16, 1)] + [(16, 1)] * 2 + [(32, 2)] + [(32, 1)] * 2 + [(64, 2)] + [(64, 1)] * 2:
        blocks.append(Block(a, b, stride))
        a = b
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def alexnet():
    """As ours: torchvision's, for small images with 5x5 windows one apart first."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 5, 1, 2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, 1, 2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, 1, 1), nn.ReLU(), nn.Conv2d(384, 256, 3, 1, 1), nn.ReLU(),
        nn.Conv2d(256, 256, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten(),
        nn.Dropout(), nn.Linear(2304, 1024), nn.ReLU(), nn.Dropout(), nn.Linear(1024, 1024), nn.ReLU(),
        nn.Linear(1024, 10))


def vgg16():
    features = torchvision.models.vgg16_bn(weights=None).features
    return nn.Sequential(features, nn.Flatten(), nn.Linear(512, 10))


class Lstm(nn.Module):
    def __init__(self, words, width, layers, tied):
        super().__init__()
        self.encoder, self.rnn = nn.Embedding(words, width), nn.LSTM(width, width, layers)
        self.decoder = nn.Linear(width, words)
        if tied:
            self.decoder.weight = self.encoder.weight

    def forward(self, ids):
        return self.decoder(self.rnn(self.encoder(ids.t()))[0].transpose(0, 1)).flatten(0, 1)


class Transformer(nn.Module):
    def __init__(self, words, width, layers, steps):
        super().__init__()
        self.encoder, self.at = nn.Embedding(words, width), nn.Embedding(steps, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.decoder = nn.Linear(width, words)
        self.steps = steps

    def forward(self, ids):
        x = self.encoder(ids) + self.at.weight
        mask = nn.Transformer.generate_square_subsequent_mask(self.steps)
        return self.decoder(self.layers(x, mask=mask, is_causal=True)).flatten(0, 1)


def torch_step(case):
    name, *sizes = case.split()
    sizes = [int(n) for n in sizes]
    if name.startswith("lstm") or name == "transformer":
        words, width, layers, batch, steps = sizes
        ids = (torch.arange(batch * steps) * 7919 % words).reshape(batch, steps)
        labels = (torch.arange(1, batch * steps + 1) * 7919 % words)
        net = Transformer(words, width, layers, steps) if name == "transformer" else Lstm(words, width, layers, "tied" in name)
        x = ids
    else:
        height, width, channels, batch = sizes
        nets = {"resnet20": lambda: resnet20(channels), "alexnet": alexnet, "vgg16": vgg16,
                "resnet50": lambda: torchvision.models.resnet50(weights=None)}
        net = nets[name]().to(memory_format=torch.channels_last)
        classes = 10 if height < 64 else 1000
        x = torch.randn(batch, channels, height, width).to(memory_format=torch.channels_last)
        labels = torch.arange(batch) * 7 % classes
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    print(f"# {case}: {sum(p.numel() for p in net.parameters())} parameters in PyTorch")

    def step():
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(net(x), labels).backward()
        optimizer.step()
        return time.perf_counter() - start

    return step


def main():
    torch.set_num_threads(THREADS)
    print("case,side,step,seconds")
    for name in sys.argv[2:] or CASES:
        case = CASES[name] if name in CASES else f"lstm 10000 200 2 32 {int(name.removeprefix('lstm-'))}"
        environment = {**os.environ, "PELTON_THREADS": str(THREADS)}
        ours = subprocess.Popen([sys.argv[1], *case.split()], env=environment, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)

        def ask():
            print(file=ours.stdin, flush=True)
            return float(ours.stdout.readline())

        sides = {"Pelton": ask, "PyTorch": torch_step(case)}
        times = {side: [] for side in sides}
        for step in range(STEPS + 3):
            for side, run in sides.items():
                seconds = run()
                if step >= 3:  # the first steps fill pools and caches
                    times[side].append(seconds)
                    print(f"{name},{side},{step - 3},{seconds:.5f}")
        a, b = (statistics.median(t) for t in times.values())
        print(f"# {name}: Pelton {a * 1e3:.1f} ms, PyTorch {b * 1e3:.1f} ms, ratio {a / b:.2f}", flush=True)
        ours.stdin.close()
        ours.wait()


if __name__ == "__main__":
    main()
