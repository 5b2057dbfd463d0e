"""The largest 0.1 % of ResNet-50's gradients: `pelton-lab reproduce topk` next to torch.topk layer by layer, in turns.

Usage: python bench/peers/topk.py PELTON OUT.txt
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time

import torch


def layers():
    """Lengths of the parameters of torchvision's resnet50."""
    sizes = [64 * 3 * 49, 64, 64]
    width = 64
    for middle, blocks in [(64, 3), (128, 4), (256, 6), (512, 3)]:
        for block in range(blocks):
            out = 4 * middle
            sizes += [width * middle, middle, middle, 9 * middle * middle, middle, middle]
            sizes += [middle * out, out, out]
            if block == 0:
                sizes += [width * out, out, out]
            width = out
    return sizes + [2048 * 1000, 1000]


def torch_ms(gradients):
    began = time.perf_counter()
    for g in gradients:
        torch.topk(g.abs(), max(1, round(g.numel() / 1000)))
    return 1e3 * (time.perf_counter() - began)


def main():
    pelton, out = sys.argv[1:]
    torch.set_num_threads(2)
    torch.manual_seed(0)
    gradients = [torch.randn(n) for n in layers()]
    torch_ms(gradients)
    lines = [f"torch {torch.__version__}, {torch.get_num_threads()} threads; {' '.join(sys.argv)}"]
    ratios = []
    for turn in range(5):
        theirs = statistics.median(torch_ms(gradients) for _ in range(5))
        with tempfile.TemporaryDirectory() as folder:
            run = [pelton, "reproduce", "topk", "--out", folder, "--json"]
            rows = json.loads(subprocess.run(run, capture_output=True, check=True).stdout)["rows"]
        ours = {row["method"]: row["ms"] for row in rows}
        assert all(row["exact"] for row in rows if "exact" in row)
        ratios.append(theirs / ours["sampled"])
        lines.append(f"turn {turn}: torch.topk {theirs:.1f} ms; " + ", ".join(f"{m} {t:.1f}" for m, t in ours.items()))
    lines.append(f"torch.topk over sampled, the middle: {statistics.median(ratios):.1f}")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    with open(out, "w") as file:
        file.write(text)


main()
