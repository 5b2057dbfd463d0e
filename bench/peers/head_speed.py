"""A step of pelton.heads.KnnSoftmax next to torch.nn.Linear with cross_entropy and SGD: forward, backward, and the step of
the weights, in turns. Both have momentum, as training has. Needs PyTorch and the package pelton.

Usage: python bench/peers/head_speed.py OUT.csv [CLASSES] [DIM] [BATCH] [TURNS]

Rows are single steps: wall seconds, and seconds of all processors, which count where others use the machine too. The
cosine side of PyTorch normalises features and weights, which is what the head computes; the linear side is what most
programs have, with a bias. The head of products computes what the linear side does, but for the bias.
"""

import csv
import os
import statistics
import sys
import time

import torch
from torch.nn import functional as F

import pelton
from pelton.heads import KnnSoftmax


def timed(work):
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def main():
    out = sys.argv[1]
    classes, dim, batch, turns = (int(a) for a in [*sys.argv[2:], *"100000 128 256 7".split()[len(sys.argv) - 2 :]])
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    torch.manual_seed(0)

    class Linear:
        def __init__(self, is_cosine):
            self.is_cosine = is_cosine
            self.layer = torch.nn.Linear(dim, classes, bias=not is_cosine)
            self.optimizer = torch.optim.SGD(self.layer.parameters(), 0.1, momentum=0.9)

        def step(self, features, labels):
            self.optimizer.zero_grad()
            if self.is_cosine:
                logits = 16 * F.normalize(features) @ F.normalize(self.layer.weight).T
            else:
                logits = self.layer(features)
            F.cross_entropy(logits, labels).backward()
            self.optimizer.step()

    class Head:
        def __init__(self, kind, **options):
            self.head = KnnSoftmax(classes, dim, kind, **options)
            # Random weights have no neighbours; given ones do.
            self.head.weight = self.head.weight
            self.graph_s = timed(self.head.rebuild_graph)

        def step(self, features, labels):
            self.head(features, labels).backward()
            self.head.step(0.1)

    sides = {
        "torch linear": Linear(False),
        "pelton full product": Head("full", logits="product"),
        "torch cosine": Linear(True),
        "pelton full cosine": Head("full"),
        "pelton knn:10:0.1 cosine": Head("knn"),
    }
    rows = [["graph of knn:10", 0, *sides["pelton knn:10:0.1 cosine"].graph_s]]
    for turn in range(turns):
        for name, side in sides.items():
            features = torch.randn(batch, dim, requires_grad=True)
            labels = torch.randint(classes, (batch,))
            took = timed(lambda: side.step(features, labels))
            # The first warms up.
            if turn:
                rows.append([name, turn, *took])
    with open(out, "w", newline="") as file:
        file.write(f"# python {' '.join(sys.argv)}\n")
        file.write(f"# {threads} threads; load {os.getloadavg()[0]:.0f} after; PyTorch {torch.__version__}, ")
        file.write(f"pelton {pelton.__version__}; {classes} classes, {dim} features, batch {batch}\n")
        writer = csv.writer(file)
        writer.writerow(["side", "turn", "wall_s", "cpu_s"])
        writer.writerows([side, turn, f"{wall:.4f}", f"{cpu:.4f}"] for side, turn, wall, cpu in rows)
    for name in dict.fromkeys(row[0] for row in rows):
        wall, cpu = (statistics.median(row[at] for row in rows if row[0] == name) for at in (2, 3))
        print(f"{name:<26} {1e3 * wall:9.1f} ms wall {1e3 * cpu:9.1f} ms cpu")


main()
