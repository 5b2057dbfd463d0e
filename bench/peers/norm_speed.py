"""Batch norm + residual + ReLU next to PyTorch's (channels last, three operators), taking turns.

Usage: norm_speed.py EXAMPLE      THREADS (2) and ROUNDS (3) come from the environment.
EXAMPLE is the built example `norm_speed` of the crate pelton-kernels.
"""
import os
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

THREADS = int(os.environ.get("THREADS", 2))
ROUNDS = int(os.environ.get("ROUNDS", 3))
SHAPES = [(128, 32, 16), (128, 16, 32), (128, 8, 64), (128, 32, 64), (128, 8, 256), (16, 56, 256), (16, 7, 2048)]


def torch_side(n, side, channels):
    x, residual = (torch.randn(n, channels, side, side).to(memory_format=torch.channels_last).requires_grad_()
                   for _ in range(2))
    gamma, beta = torch.randn(channels, requires_grad=True), torch.randn(channels, requires_grad=True)
    mean, variance = torch.zeros(channels), torch.ones(channels)
    dy = torch.randn_like(x)
    forward = backward = 1e9
    for _ in range(10):
        start = time.perf_counter()
        y = F.relu_(F.batch_norm(x, mean, variance, gamma, beta, True, 0.1, 1e-5).add_(residual))
        middle = time.perf_counter()
        torch.autograd.grad(y, (x, residual, gamma, beta), dy)
        forward = min(forward, middle - start)
        backward = min(backward, time.perf_counter() - middle)
    return forward, backward


torch.set_num_threads(THREADS)
ours = subprocess.Popen([sys.argv[1], str(THREADS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print("ms ours | PyTorch | ratio; forward, backward")
for n, side, channels in SHAPES:
    times = [[1e9] * 2, [1e9] * 2]
    for _ in range(ROUNDS):
        print(n * side * side, channels, file=ours.stdin, flush=True)
        answers = ([float(x) for x in ours.stdout.readline().split()], torch_side(n, side, channels))
        times = [[min(a, b) for a, b in zip(*pair)] for pair in zip(times, answers)]
    cells = [f"{a*1e3:7.2f} {b*1e3:7.2f} {a/b:5.2f}" for a, b in zip(*times)]
    print(f"{n} {side} {channels}: {' | '.join(cells)}", flush=True)
