"""Characters of alphabets with the distortions of handwriting, like Omniglot: 1 623 classes of 15 pictures, and 5 to test.

python bench/letters.py GLYPHS OUT

GLYPHS is the prefix of what `pelton-lab glyphs --out GLYPHS` wrote. The first 1 623 letters that are neither Chinese
characters nor Hangul syllables and have two pictures or more; each drawn picture is one of theirs, turned, slanted, scaled,
shifted and bent by smooth random fields. Writes OUT-{train,test}-{images,labels}.idx.
"""

import struct
import sys
import unicodedata

import numpy as np
from scipy.ndimage import gaussian_filter, map_coordinates

CLASSES, VIEWS, TEST = 1623, 15, 5


def read(path: str) -> np.ndarray:
    data = open(path, "rb").read()
    shape = struct.unpack(f">{data[3]}I", data[4 : 4 + 4 * data[3]])
    return np.frombuffer(data, {8: "u1", 12: ">i4"}[data[2]], offset=4 + 4 * data[3]).reshape(shape)


def write(path: str, array: np.ndarray) -> None:
    kind = {"uint8": 8, "int32": 12}[array.dtype.name]
    head = bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    open(path, "wb").write(head + array.astype(array.dtype.newbyteorder(">")).tobytes())


def drawn(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    height, width = picture.shape
    turn, wide, high, slant = rng.normal(0, [0.16, 0.1, 0.1, 0.15])
    cos, sin = np.cos(turn), np.sin(turn)
    matrix = np.array([[cos * (1 + wide), slant - sin], [sin + 0.3 * slant, cos * (1 + high)]])
    middle = np.array([[height / 2], [width / 2]])
    places = np.mgrid[0:height, 0:width].reshape(2, -1)
    moved = matrix @ (places - middle) + middle + rng.normal(0, 1.2, (2, 1))
    bent = [22.4 * gaussian_filter(rng.normal(size=(height, width)), 4) for _ in range(2)]
    values = map_coordinates(picture.astype(float), moved + np.reshape(bent, (2, -1)), order=1, cval=picture.flat[0])
    return values.clip(0, 255).astype(np.uint8).reshape(height, width)


def main(glyphs: str, out: str) -> None:
    pictures, labels = (np.concatenate([read(f"{glyphs}-{part}-{what}.idx") for part in ("train", "test")]) for what in ("images", "labels"))
    names = [chr(int(line[2:], 16)) for line in open(f"{glyphs}-train-names.txt").read().split()]
    of_class = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels, minlength=len(names)))[:-1])
    is_letter = [name.isalpha() and not unicodedata.name(name, "").startswith(("CJK", "HANGUL SYLL")) for name in names]
    chosen = [own for own, letter in zip(of_class, is_letter, strict=True) if letter and len(own) > 1][:CLASSES]
    rng = np.random.default_rng(5)
    for part, views in (("train", VIEWS), ("test", TEST)):
        made = [drawn(pictures[rng.choice(own)], rng) for own in chosen for _ in range(views)]
        write(f"{out}-{part}-images.idx", np.array(made))
        write(f"{out}-{part}-labels.idx", np.repeat(np.arange(len(chosen), dtype=np.int32), views))


if __name__ == "__main__":
    main(*sys.argv[1:])
