"""Sources of the workloads of feeds.py, made once in the work folder, each sorted by class: record i of N is of class
i * 1000 // N, and begins with its number."""

import random

import peers
import samples

CLASSES = 1000
SHARDS = 16


def records(root, count, length):
    """Number (8 bytes), class (2), and bytes without a pattern."""
    pool = random.Random(1).randbytes(1 << 20)
    with open(root / "records.bin", "wb") as out:
        for begin in range(0, count, 4096):
            rows = []
            for number in range(begin, min(begin + 4096, count)):
                at = number * 7919 % ((1 << 20) - length)
                rows.append(number.to_bytes(8, "little") + (number * CLASSES // count).to_bytes(2, "little") + pool[at : at + length - 10])
            out.write(b"".join(rows))


def shards(root, extension, payloads):
    """`(payload, class)` as samples of tar files."""
    payloads = list(payloads)
    each = -(-len(payloads) // SHARDS)
    for begin in range(0, len(payloads), each):
        with open(root / f"shard-{begin // each:03}.tar", "wb") as out:
            for number, (payload, label) in enumerate(payloads[begin : begin + each], begin):
                payload = payload() if callable(payload) else payload
                out.write(samples.member(f"{number:07}.{extension}", payload) + samples.member(f"{number:07}.cls", b"%d" % label))
            out.write(bytes(1024))


def tar(root, count, length):
    """Payloads from half to one and a half of `length`, each beginning with its number."""
    pool = random.Random(2).randbytes(4 << 20)

    def payload(number):
        size = length // 2 + number * 7919 % length
        at = number * 104729 % (len(pool) - size)
        return number.to_bytes(8, "little") + pool[at : at + size - 8]

    shards(root, "bin", ((lambda number=number: payload(number), number * CLASSES // count) for number in range(count)))


def photos(root, count, _):
    """The clothing photos, each as often as it takes, sorted by class."""
    rows = sorted(samples.clothing(), key=lambda row: row[1])
    rows = [rows[number * len(rows) // count] for number in range(count)]
    shards(root, "jpg", ((path.read_bytes, label) for path, label in rows))


def text(root, count, _):
    lines = (peers.DATA / "ptb/ptb.train.txt").read_bytes().splitlines(keepends=True)
    with open(root / "lines.txt", "wb") as out:
        for begin in range(0, count, len(lines)):
            out.writelines(lines[: count - begin])


def source(kind, count, length):
    """The folder of a workload with so many examples."""
    root = peers.WORK / f"feeds/{kind}-{count}"
    if not (root / "made").exists():
        root.mkdir(parents=True, exist_ok=True)
        if kind in MAKERS:  # TFRecords are written by TensorFlow
            MAKERS[kind](root, count, length)
        (root / "made").touch()
    return root


MAKERS = {"records": records, "tiny": records, "tar": tar, "cloud": tar, "photos": photos, "text": text}
