"""A photo to a random-resized crop of 224 pixels, flipped by chance, for sides that bring no decoder of their own."""

import io
import math
import random

import work as works


def box(width, height):
    """The crop of torchvision's RandomResizedCrop: a share of 0.08..1 of the area, sides at 3/4..4/3."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


def by_pillow(data):
    """As an array of height, width and channels."""
    import numpy as np
    import PIL.Image

    image = PIL.Image.open(io.BytesIO(data)).convert("RGB")
    x, y, w, h = box(*image.size)
    image = image.resize((works.SIDE, works.SIDE), PIL.Image.Resampling.BILINEAR, box=(x, y, x + w, y + h))
    if random.random() < 0.5:
        image = image.transpose(PIL.Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(image)


class ByTorchvision:
    """As a tensor of channels, height and width."""

    def __init__(self):
        from torchvision.transforms import v2

        self.augment = v2.Compose([v2.RandomResizedCrop(works.SIDE, antialias=True), v2.RandomHorizontalFlip()])

    def __call__(self, data):
        import torch
        from torchvision.io import ImageReadMode, decode_jpeg

        encoded = data if isinstance(data, torch.Tensor) else torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return self.augment(decode_jpeg(encoded, mode=ImageReadMode.RGB))
