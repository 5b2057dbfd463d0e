"""Whole epochs of ResNet-20 from Fashion-MNIST's files, reading and augmentation included, next to PyTorch's DataLoader.

Usage: epoch_speed.py PELTON FOLDER
PELTON is the program; FOLDER holds train-images-idx3-ubyte.gz and its labels. IMAGES (12800) and RUNS (3) come from the
environment. Both crop at random with a border of 2, flip, normalise, take 128 images a step and 2 threads; PyTorch runs
channels last, with its loader in the same process and then in one worker. Output: CSV of side, run, seconds an epoch.
"""
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
import torchvision.transforms.v2 as transforms

from step_speed import resnet20

IMAGES = int(os.environ.get("IMAGES", 12800))
RUNS = int(os.environ.get("RUNS", 3))


def idx(path, name, head, bytes_each):
    with gzip.open(path) as f:
        data = f.read()
    count = IMAGES.to_bytes(4, "big")
    body = data[head : head + IMAGES * bytes_each]
    with open(name, "wb") as f:
        f.write(data[:4] + count + data[8:head] + body)
    return np.frombuffer(body, np.uint8)


class Pictures(torch.utils.data.Dataset):
    def __init__(self, pixels, labels):
        self.pixels, self.labels = torch.from_numpy(pixels.reshape(-1, 1, 28, 28).copy()), labels.copy()
        self.change = transforms.Compose([
            transforms.RandomCrop(28, 2),
            transforms.RandomHorizontalFlip(),
            transforms.ToDtype(torch.float32, scale=True),
            transforms.Normalize([0.286], [0.353]),
        ])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.change(self.pixels[i]), int(self.labels[i])


def torch_epoch(net, optimiser, loader):
    start = time.perf_counter()
    for x, y in loader:
        optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(net(x.to(memory_format=torch.channels_last)), y).backward()
        optimiser.step()
    return time.perf_counter() - start


def pelton_epoch(program, folder):
    out = os.path.join(folder, "run")
    subprocess.run([program, "train", "image", os.path.join(folder, "train-images-idx3-ubyte"), "--model", "resnet20",
                    "--epochs", "1", "--threads", "2", "--augment", "randomcrop:28:2,flip,normalise:0.286:0.353",
                    "--out", out, "--overwrite"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(os.path.join(out, "metrics.jsonl")) as f:
        return json.loads(f.readline())["wall_s"]


def main():
    program, source = sys.argv[1:]
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: (os.path.join(source, name + ".gz"), os.path.join(folder, name))
        pixels = idx(*path("train-images-idx3-ubyte"), 16, 784)
        labels = idx(*path("train-labels-idx1-ubyte"), 8, 1)
        data = Pictures(pixels, labels)
        net = resnet20(1).to(memory_format=torch.channels_last)
        optimiser = torch.optim.SGD(net.parameters(), 0.1, 0.9, weight_decay=5e-4)
        loaders = {
            f"torch, {workers} workers": torch.utils.data.DataLoader(data, 128, shuffle=True, num_workers=workers)
            for workers in (0, 1)
        }
        sides = {"pelton": lambda: pelton_epoch(program, folder)}
        sides |= {name: lambda loader=loader: torch_epoch(net, optimiser, loader) for name, loader in loaders.items()}
        print("side,run,seconds")
        seconds = {side: [] for side in sides}
        for run in range(RUNS):
            for side, epoch in sides.items():
                seconds[side].append(epoch())
                print(f"{side},{run},{seconds[side][-1]:.3f}", flush=True)
        for side, times in seconds.items():
            print(f"# {side}: median {statistics.median(times):.2f} s")


if __name__ == "__main__":
    main()
