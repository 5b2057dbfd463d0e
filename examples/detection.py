"""Faster R-CNN on a Parquet file of pictures with boxes, as data sets of Hugging Face have them.

    pip install pelton torch torchvision
    python examples/detection.py train.parquet --classes 80
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_fpn

import pelton


def corners(sample: dict[str, Any]) -> dict[str, Any]:
    """COCO has left, top, width and height."""
    left, top, width, height = sample["boxes"].reshape(-1, 4).T
    return {**sample, "boxes": np.stack([left, top, left + width, top + height], axis=1)}


def with_area(sample: dict[str, Any]) -> dict[str, Any]:
    """Without what was cropped away."""
    left, top, right, bottom = sample["boxes"].T
    seen = (right > left) & (bottom > top)
    return {**sample, "boxes": sample["boxes"][seen], "labels": sample["labels"][seen]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--classes", type=int, default=80)
    parser.add_argument("--epochs", type=int, default=26)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--side", type=int, default=320)
    parser.add_argument("--show", action="store_true", help="print the records of every batch")
    options = parser.parse_args()

    net = fasterrcnn_mobilenet_v3_large_fpn(weights=None, weights_backbone=None, num_classes=options.classes + 1, min_size=options.side)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    data = pelton.load(options.data).decode("image=image.bytes:image,boxes=objects.bbox,labels=objects.category")
    data = data.map(corners, before_augmentation=True).random_resized_crop(options.side, scale=(0.3, 1.0)).flip().map(with_area)
    # The net normalises by itself.
    batches = data.shuffle(seed=0).batch(options.batch, collate={"boxes": "ragged", "labels": "ragged"}).torch()
    for epoch in range(options.epochs):
        for batch in batches:
            pictures = list(batch["image"].float() / 255)
            # Class 0 is the background.
            targets = [{"boxes": boxes, "labels": labels + 1} for boxes, labels in zip(batch["boxes"], batch["labels"])]
            loss = sum(net(pictures, targets).values())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if options.show:
                print(f"epoch {epoch} rank 0 records {batch.ids.tolist()}")
        print(f"epoch {epoch}: loss {loss.item():.3f}; {batches.verdict()}", flush=True)


if __name__ == "__main__":
    main()
