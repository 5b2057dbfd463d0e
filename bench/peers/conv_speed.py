"""Convolutions of four nets next to PyTorch's (channels last), shape by shape, taking turns.

Usage: conv_speed.py EXAMPLE [MODEL …]      models: resnet20 vgg16 alexnet resnet50
EXAMPLE is the built example `conv_speed` of the crate pelton-kernels. THREADS (2) and ROUNDS (3) come from the
environment. For AVX2: PELTON_CPU=avx2 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2.
"""
import os
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

THREADS = int(os.environ.get("THREADS", 2))
ROUNDS = int(os.environ.get("ROUNDS", 3))

# (count, (batch, height, width, in, out, kernel, stride, padding))
MODELS = {
    "resnet20": [
        (1, (128, 32, 32, 3, 16, 3, 1, 1)),
        (6, (128, 32, 32, 16, 16, 3, 1, 1)),
        (1, (128, 32, 32, 16, 32, 3, 2, 1)),
        (5, (128, 16, 16, 32, 32, 3, 1, 1)),
        (1, (128, 16, 16, 32, 64, 3, 2, 1)),
        (5, (128, 8, 8, 64, 64, 3, 1, 1)),
    ],
    "vgg16": [
        (1, (128, 32, 32, 3, 64, 3, 1, 1)),
        (1, (128, 32, 32, 64, 64, 3, 1, 1)),
        (1, (128, 16, 16, 64, 128, 3, 1, 1)),
        (1, (128, 16, 16, 128, 128, 3, 1, 1)),
        (1, (128, 8, 8, 128, 256, 3, 1, 1)),
        (2, (128, 8, 8, 256, 256, 3, 1, 1)),
        (1, (128, 4, 4, 256, 512, 3, 1, 1)),
        (2, (128, 4, 4, 512, 512, 3, 1, 1)),
        (3, (128, 2, 2, 512, 512, 3, 1, 1)),
    ],
    "alexnet": [
        (1, (128, 32, 32, 3, 64, 5, 1, 2)),
        (1, (128, 16, 16, 64, 192, 5, 1, 2)),
        (1, (128, 8, 8, 192, 384, 3, 1, 1)),
        (1, (128, 8, 8, 384, 256, 3, 1, 1)),
        (1, (128, 8, 8, 256, 256, 3, 1, 1)),
        (1, (16, 224, 224, 3, 64, 11, 4, 2)),
    ],
    "resnet50": [
        (1, (16, 224, 224, 3, 64, 7, 2, 3)),
        (1, (16, 56, 56, 64, 64, 1, 1, 0)),
        (3, (16, 56, 56, 64, 64, 3, 1, 1)),
        (4, (16, 56, 56, 64, 256, 1, 1, 0)),
        (2, (16, 56, 56, 256, 64, 1, 1, 0)),
        (1, (16, 56, 56, 256, 128, 1, 1, 0)),
        (1, (16, 56, 56, 128, 128, 3, 2, 1)),
        (1, (16, 56, 56, 256, 512, 1, 2, 0)),
        (3, (16, 28, 28, 128, 128, 3, 1, 1)),
        (4, (16, 28, 28, 128, 512, 1, 1, 0)),
        (3, (16, 28, 28, 512, 128, 1, 1, 0)),
        (1, (16, 28, 28, 512, 256, 1, 1, 0)),
        (1, (16, 28, 28, 256, 256, 3, 2, 1)),
        (1, (16, 28, 28, 512, 1024, 1, 2, 0)),
        (5, (16, 14, 14, 256, 256, 3, 1, 1)),
        (6, (16, 14, 14, 256, 1024, 1, 1, 0)),
        (5, (16, 14, 14, 1024, 256, 1, 1, 0)),
        (1, (16, 14, 14, 1024, 512, 1, 1, 0)),
        (1, (16, 14, 14, 512, 512, 3, 2, 1)),
        (1, (16, 14, 14, 1024, 2048, 1, 2, 0)),
        (2, (16, 7, 7, 512, 512, 3, 1, 1)),
        (3, (16, 7, 7, 512, 2048, 1, 1, 0)),
        (2, (16, 7, 7, 2048, 512, 1, 1, 0)),
    ],
}


def best(body):
    start, least, runs = time.perf_counter(), 1e9, 0
    while runs < 3 or (runs < 20 and time.perf_counter() - start < 0.1):
        one = time.perf_counter()
        body()
        least = min(least, time.perf_counter() - one)
        runs += 1
    return least


def torch_side(shape):
    n, h, w, c, o, k, s, p = shape
    x = torch.randn(n, c, h, w).to(memory_format=torch.channels_last)
    weight = torch.randn(o, c, k, k).to(memory_format=torch.channels_last)
    y = F.conv2d(x, weight, None, s, p)
    dy = torch.randn_like(y)

    def backward(mask):
        torch.ops.aten.convolution_backward(dy, x, weight, None, [s, s], [p, p], [1, 1], False, [0, 0], 1, mask)

    with torch.no_grad():
        return [
            best(lambda: F.conv2d(x, weight, None, s, p)),
            best(lambda: backward([True, False, False])),
            best(lambda: backward([False, True, False])),
        ]


def main():
    torch.set_num_threads(THREADS)
    ours = subprocess.Popen([sys.argv[1], str(THREADS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(shape):
        print(*shape, file=ours.stdin, flush=True)
        return [float(x) for x in ours.stdout.readline().split()]

    for model in sys.argv[2:] or MODELS:
        sums = [[0.0] * 3, [0.0] * 3]
        print(f"{model}: ms (GFLOP/s) ours | PyTorch | ratio; forward, input gradient, weight gradient")
        for count, shape in MODELS[model]:
            n, h, w, c, o, k, s, p = shape
            out = ((h + 2 * p - k) // s + 1) * ((w + 2 * p - k) // s + 1)
            flop = 2 * n * out * o * c * k * k
            times = [[1e9] * 3, [1e9] * 3]
            for _ in range(ROUNDS):
                for side, run in enumerate((ask, torch_side)):
                    times[side] = [min(a, b) for a, b in zip(times[side], run(shape))]
            cells = []
            for i in range(3):
                a, b = times[0][i], times[1][i]
                cells.append(f"{a*1e3:7.2f} ({flop/a/1e9:4.0f}) {b*1e3:7.2f} ({flop/b/1e9:4.0f}) {a/b:5.2f}")
                if c > 3 or i != 1:
                    sums[0][i] += count * a
                    sums[1][i] += count * b
            print(f"{count}x {' '.join(map(str, shape)):28} {' | '.join(cells)}", flush=True)
        a, b = (sum(side) for side in sums)
        parts = " ".join(f"{x/y:.2f}" for x, y in zip(*sums))
        print(f"{model} total {a*1e3:.1f} ms, PyTorch {b*1e3:.1f} ms, ratio {a/b:.2f} ({parts})\n", flush=True)


main()
