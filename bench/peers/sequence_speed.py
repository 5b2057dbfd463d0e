"""Milliseconds of a training step of sequence models: PyTorch, and the models that
crates/kernels/examples/sequence_speed.rs builds of Pelton's operators, in turns, 2 threads each.
Needs a Python with PyTorch.

    cargo build --release -p pelton-kernels --example sequence_speed
    python3 bench/peers/sequence_speed.py [ROUNDS [avx2|best [MODEL…]]]
"""

import os
import pathlib
import statistics
import subprocess
import sys
import time

import peers

MODELS = ["lstm-20", "lstm-35", "lstm-20-tied", "lstm-35-tied", "transformer"]
WORDS, THREADS, SECONDS = 10_000, 2, 4
AVX2 = {
    "PELTON_CPU": "avx2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}


def side(model):
    """The median of PyTorch's steps, in this process."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)

    class Lstm(nn.Module):
        def __init__(self, tied):
            super().__init__()
            self.embedding = nn.Embedding(WORDS, 200)
            self.lstm = nn.LSTM(200, 200, 2)
            self.projection = nn.Linear(200, WORDS)
            if tied:
                self.projection.weight = self.embedding.weight

        def forward(self, x):
            return self.projection(self.lstm(self.embedding(x))[0])

    class Layer(nn.Module):
        def __init__(self, d, heads):
            super().__init__()
            self.heads = heads
            self.norms = nn.ModuleList([nn.LayerNorm(d), nn.LayerNorm(d)])
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            b, t, d = x.shape
            qkv = self.qkv(self.norms[0](x)).view(b, t, 3, self.heads, d // self.heads)
            q, k, v = (p.transpose(1, 2) for p in qkv.unbind(2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
            return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))

    class Transformer(nn.Module):
        def __init__(self, d=256, steps=256, layers=6, heads=4):
            super().__init__()
            self.embedding, self.places = nn.Embedding(WORDS, d), nn.Parameter(torch.zeros(steps, d))
            self.layers = nn.ModuleList(Layer(d, heads) for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, WORDS, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, x):
            x = self.embedding(x) + self.places
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x))

    if model == "transformer":
        net, shape = Transformer(), (8, 256)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    else:
        net, shape = Lstm(model.endswith("tied")), (int(model.split("-")[1]), 32)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, fused=True)
    x, y = torch.randint(0, WORDS, shape), torch.randint(0, WORDS, shape)
    times, start = [], time.perf_counter()
    while time.perf_counter() - start < SECONDS or len(times) < 5:
        one = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(net(x).view(-1, WORDS), y.view(-1)).backward()
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - one))
    print(statistics.median(times[1:]))


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    level = sys.argv[2] if len(sys.argv) > 2 else "best"
    models = sys.argv[3:] or MODELS
    import torch

    threads = {"RAYON_NUM_THREADS": str(THREADS), "OMP_NUM_THREADS": str(THREADS)}
    environment = {**os.environ, **threads, **(AVX2 if level == "avx2" else {})}
    name = "sequence_speed" + ("" if level == "best" else "_" + level)
    results = peers.Results(name, ["model", "system", "round", "step_ms"], f"torch=={torch.__version__}")
    for model in models:
        sides = {
            "PyTorch": [sys.executable, __file__, "side", model],
            "Pelton": [peers.EXAMPLES / "sequence_speed", model, str(SECONDS)],
        }
        times = {system: [] for system in sides}
        for number in range(rounds):
            for system, command in sides.items():
                output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
                times[system].append(float(output))
                results.add(model=model, system=system, round=number, step_ms=times[system][-1])
        ours, theirs = (peers.median(times[system]) for system in ["Pelton", "PyTorch"])
        print(f"{model}: Pelton {ours:.1f} ms, PyTorch {theirs:.1f} ms, ratio {ours / theirs:.3f}", flush=True)


if __name__ == "__main__":
    side(sys.argv[2]) if sys.argv[1:2] == ["side"] else main()
