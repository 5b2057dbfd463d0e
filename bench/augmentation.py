"""Augmentation of 224 x 224 pictures next to torchvision's on PIL's pictures, one thread each.

python bench/augmentation.py [ROUNDS] > bench/results/augmentation.csv

640 pictures of noise; sides take turns, a line a round with milliseconds a picture of wall time. Both give arrays.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pelton
import torch
from PIL import Image
from torchvision.transforms import v2

PICTURES = np.random.default_rng(0).integers(0, 256, (640, 224, 224, 3), dtype=np.uint8)
IMAGES = [Image.fromarray(picture) for picture in PICTURES]
STEPS: dict[str, Callable[[Any], Any]] = {
    "vflip:1": v2.RandomVerticalFlip(1),
    "posterise:4:1": v2.RandomPosterize(4, 1),
    "equalise:1": v2.RandomEqualize(1),
    "sharpen:2:1": v2.RandomAdjustSharpness(2, 1),
    "blur:23": v2.GaussianBlur(23),
    "randaugment,randaugment": v2.RandAugment(),
    "trivialaugment": v2.TrivialAugmentWide(),
}


def main() -> None:
    torch.set_num_threads(1)
    print("step,side,round,ms_per_picture")
    for steps, other in STEPS.items():
        for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
            pipeline = pelton.from_arrays(image=PICTURES).augment(steps).threads(1).batch(64)
            start = time.perf_counter()
            for _ in pipeline:
                pass
            ours = time.perf_counter() - start
            pipeline.close()
            start = time.perf_counter()
            for image in IMAGES:
                np.asarray(other(image))
            theirs = time.perf_counter() - start
            for side, seconds in (("pelton", ours), ("torchvision", theirs)):
                print(f"{steps.replace(',', ' ')},{side},{number},{1e3 * seconds / len(IMAGES):.3f}", flush=True)


main()
