"""Augmentation gives what torchvision gives for the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pelton

torch = pytest.importorskip("torch")
transforms = pytest.importorskip("torchvision.transforms.v2")
functional = pytest.importorskip("torchvision.transforms.v2.functional")
policies = pytest.importorskip("torchvision.transforms.autoaugment")
Image = pytest.importorskip("PIL.Image")


def pictures(count: int = 6, size: tuple[int, int] = (41, 56)) -> np.ndarray:
    """Smooth pictures with noise, some of few levels."""
    rng = np.random.default_rng(3)
    rows, columns = np.mgrid[: size[0], : size[1]]
    waves = [np.sin(rows / rng.uniform(3, 20) + phase) * np.cos(columns / rng.uniform(3, 20)) for phase in range(count * 3)]
    values = np.stack(waves).reshape(count, 3, *size).transpose(0, 2, 3, 1) * 90 + 120 + rng.normal(0, 12, (count, *size, 3))
    values[-1] = values[-1] // 60 * 60
    return np.clip(values, 0, 255).astype(np.uint8)


def made(steps: str, of: np.ndarray, seed: int = 0) -> np.ndarray:
    (batch,) = pelton.from_arrays(image=of).augment(steps).shuffle(seed=seed).batch(len(of))
    return np.asarray(batch["image"])[np.argsort(batch.ids)]


@pytest.mark.parametrize(
    ("steps", "same", "most"),
    [
        ("vflip:1", functional.vertical_flip, 0),
        ("solarise:100:1", lambda image: functional.solarize(image, 100), 0),
        ("posterise:3:1", lambda image: functional.posterize(image, 3), 0),
        ("equalise:1", functional.equalize, 0),
        ("autocontrast:1", functional.autocontrast, 0),
        ("invert:1", functional.invert, 0),
        ("sharpen:1.7:1", lambda image: functional.adjust_sharpness(image, 1.7), 0),
        ("sharpen:0.2:1", lambda image: functional.adjust_sharpness(image, 0.2), 0),
        ("blur:7:1.3-1.3", lambda image: functional.gaussian_blur(image, [7, 7], [1.3, 1.3]), 1),
        ("blur:35:9-9", lambda image: functional.gaussian_blur(image, [35, 35], [9.0, 9.0]), 1),
        ("crop:30x44", lambda image: functional.center_crop(image, [30, 44]), 0),
        ("crop:50x20", lambda image: functional.center_crop(image, [50, 20]), 0),
    ],
)
def test_pixels_are_those_of_torchvision(steps: str, same: Any, most: int) -> None:
    of = pictures()
    for before, after in zip(of, made(steps, of), strict=True):
        expected = np.asarray(same(Image.fromarray(before)))
        assert np.abs(after.astype(int) - expected).max() <= most


@pytest.mark.parametrize("steps", ["randaugment:9", "randaugment:30", "trivialaugment"])
def test_a_policy_makes_one_of_torchvisions_changes(steps: str) -> None:
    of = pictures()
    policy: Any = policies.TrivialAugmentWide() if steps == "trivialaugment" else policies.RandAugment()
    nearest = functional.InterpolationMode.NEAREST
    seen = set()
    for number, before in enumerate(of):
        space = policy._augmentation_space(31) if steps == "trivialaugment" else policy._augmentation_space(31, of.shape[1:3])
        could: dict[tuple[str, int], np.ndarray] = {}
        for name, (strengths, signed) in space.items():
            chosen = range(31) if steps == "trivialaugment" else [int(steps.partition(":")[2])]
            for strength in chosen if strengths.ndim > 0 else [0]:
                for sign in (1, -1) if signed else (1,):
                    value = sign * float(strengths[strength] if strengths.ndim > 0 else 0.0)
                    could[name, sign * strength] = np.asarray(policies._apply_op(Image.fromarray(before), name, value, nearest, [0]))
        for seed in range(30):
            after = made(steps, of[number : number + 1], seed=30 * number + seed)[0].astype(int)
            # One level apart; where pixels move, the nearest may be another where two are equally near.
            off = {which: (np.abs(after - picture) > 1).mean() for which, picture in could.items()}
            which = min(off, key=lambda which: off[which])
            assert off[which] <= (0.02 if which[0].startswith(("Shear", "Translate", "Rotate")) else 0.0), (which, off[which])
            seen.add(which[0])
    assert len(seen) >= 12, seen


def test_the_names_of_torchvision_do_what_they_say() -> None:
    pipeline = pelton.from_arrays(image=pictures())
    rectangle = pipeline.random_resized_crop((20, 30), ratio=(0.5, 2)).vertical_flip().color_jitter(0.4, hue=0.1).rand_augment().trivial_augment()
    assert next(iter(rectangle.gaussian_blur(5).batch(6)))["image"].shape == (6, 20, 30, 3)
    assert next(iter(pipeline.random_crop((20, 30), padding=2).batch(6)))["image"].shape == (6, 20, 30, 3)
    assert (next(iter(pipeline.vertical_flip(1).batch(6)))["image"] == pictures()[:, ::-1]).all()
    with pytest.raises(pelton.ConfigurationError, match="odd side"):
        len(pipeline.gaussian_blur(4).batch(2))
    # The same draws of each record again, and others in the next epoch.
    first, again = (list(pipeline.rand_augment().shuffle(seed=1).batch(6)) for _ in range(2))
    assert (first[0]["image"] == again[0]["image"]).all()


def test_batches_are_mixed_by_torchvision() -> None:
    mixed = transforms.MixUp(num_classes=6)
    pipeline = pelton.from_arrays(image=pictures(), label=np.arange(6)).normalise().batch(6).torch().tuples("image", "label")
    images, labels = next(iter(pipeline.map_batches(lambda batch: mixed(*batch))))
    assert images.shape == (6, 3, 41, 56) and torch.allclose(labels.sum(1), torch.ones(6)) and (labels.max(1).values < 1).any()
