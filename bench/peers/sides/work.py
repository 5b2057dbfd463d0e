"""What a side is asked to do, and what it hands to the harness: `Work` in, `(examples, arrays, labels)` a batch out."""

import dataclasses
import math
import pathlib

CLASSES = 1000
SIDE = 224


@dataclasses.dataclass
class Work:
    kind: str  # a function of each side
    root: pathlib.Path  # the source lies here
    count: int
    length: int  # bytes of a record or of an average sample
    batch: int
    threads: int
    option: str = ""  # what follows the name of a side, as in torch-0
    url: str = ""  # where the source is served
    seed: int = 7
    randomness: float = 1.0  # exact level of the order; a side that cannot shuffle globally sets it
    notes: dict = dataclasses.field(default_factory=dict)

    @property
    def records(self):
        return self.root / "records.bin"

    def named(self, pattern):
        return sorted(str(path) for path in self.root.glob(pattern))

    @property
    def shards(self):
        return self.named("shard-*.tar")

    def folder(self, name):
        """Where the copy of a side lies that converts the source."""
        return self.root / name


def record_samples(work, start=0):
    """Bytes of each record of the source, in the order of the file."""
    with open(work.records, "rb") as file:
        while block := file.read(work.length * 4096):
            for begin in range(0, len(block), work.length):
                yield block[begin : begin + work.length]


def tar_samples(work):
    """Payload and class of each sample of the source's shards."""
    import tarfile

    for shard in work.shards:
        with tarfile.open(shard) as tar:
            payload = None
            for member in tar:
                data = tar.extractfile(member).read()
                if member.name.endswith(".cls"):
                    yield payload, int(data)
                else:
                    payload = data


def lines(work):
    """Words of each line of the source, and the number of each word: 0 stands for padding."""
    text = [line.split() for line in (work.root / "lines.txt").read_text().splitlines()]
    return text, {word: number for number, word in enumerate(sorted({word for line in text for word in line}), 1)}


# Randomness: ln(orders that an epoch can have) / ln(orders there are), as in crates/plan/src/randomness.rs.


def _ln_factorial(n):
    return math.lgamma(n + 1)


def queue(records, held):
    """A buffer of `held` records in file order, from which one comes out at random."""
    held = min(records, held)
    return ((records - held) * math.log(held) + _ln_factorial(held)) / _ln_factorial(records)


def chunks(records, chunk, held=1):
    """Chunks in random order, then a buffer of `held` records. Where one order comes about in several ways it is counted
    as often, so that this is an upper bound."""
    return min(1.0, _ln_factorial(records / chunk) / _ln_factorial(records) + queue(records, held))


def nested(records, *sizes):
    """Chunks of these sizes within each other, each in random order within the next, the last of them of records."""
    total, outer = 0.0, records
    for size in sizes:
        total += records / outer * _ln_factorial(outer / size)
        outer = size
    return min(1.0, total / _ln_factorial(records))
