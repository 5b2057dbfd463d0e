"""Data of the drivers, made once in the work folder: records of one size; members of tar files; the photos."""

import csv
import os
import tarfile

import peers

CIFAR_BYTES = 3073
PICTURE = (192, 192, 3)


def made(name, write):
    """The path of a file of the work folder; `write` fills it where it is missing."""
    target = peers.WORK / name
    if not target.exists():
        part = target.with_suffix(".part")
        with open(part, "wb") as out:
            write(out)
        part.rename(target)
    return target


def header(name, size):
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.USTAR_FORMAT)


def member(name, data):
    return header(name, len(data)) + data + bytes(-len(data) % 512)


def clothing():
    """Path and class of each photo of the clothing data, in the order of its table."""
    folder = peers.DATA / "jpeg-clothing"
    with open(folder / "images.csv") as file:
        rows = [(folder / "images" / f"{row['image']}.jpg", row["label"]) for row in csv.DictReader(file)]
    rows = [(path, label) for path, label in rows if path.exists()]
    classes = sorted({label for _, label in rows})
    return [(path, classes.index(label)) for path, label in rows]


def cifar(records):
    """Records of 3073 bytes: a class and random pixels."""

    def write(out):
        for begin in range(0, records, 1000):
            block = bytearray(os.urandom(CIFAR_BYTES * min(1000, records - begin)))
            block[::CIFAR_BYTES] = bytes(value % 10 for value in block[::CIFAR_BYTES])
            out.write(block)

    return made(f"cifar-{records}.bin", write)


def pictures(records):
    """IDX pictures of 110 592 random bytes; returns the file, bytes before the first and bytes of one."""
    sizes = (records, *PICTURE)
    start = bytes([0, 0, 8, len(sizes)]) + b"".join(size.to_bytes(4, "big") for size in sizes)
    record = PICTURE[0] * PICTURE[1] * PICTURE[2]

    def write(out):
        out.write(start)
        for _ in range(records):
            out.write(os.urandom(record))

    labels = bytes([0, 0, 8, 1]) + records.to_bytes(4, "big") + bytes(number % 10 for number in range(records))
    made(f"{records}-labels-idx1-ubyte", lambda out: out.write(labels))
    return made(f"{records}-images-idx4-ubyte", write), len(start), record
