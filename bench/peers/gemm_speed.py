"""GFLOP/s of PyTorch's dense products, shapes of crates/kernels/examples/gemm_speed.rs.

Usage: gemm_speed.py [THREADS]
"""
import sys
import time

import torch

torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
for m, k, n in [(1024, 1024, 1024), (2048, 2048, 2048), (32, 200, 800), (8, 200, 800), (1, 1024, 4096),
                (128, 4096, 4096), (1120, 200, 10000)]:
    a, b = torch.randn(m, k), torch.randn(k, n)
    out = torch.empty(m, n)
    start, best = time.perf_counter(), 1e9
    while time.perf_counter() - start < 0.5:
        one = time.perf_counter()
        torch.mm(a, b, out=out)
        best = min(best, time.perf_counter() - one)
    print(f"{m}x{k}x{n}: {2e-9 * m * k * n / best:.1f} GFLOP/s")
