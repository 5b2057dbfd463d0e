"""Writes buckets.txt: digests of epochs of buckets and packed rows, from a second, plain implementation.

    python3 buckets.py > buckets.txt

The Rust test compares the crate with the file. Its lines never change, only new policies are
added: a run recorded years ago must still mean the same batches.
"""

import bisect
import itertools
from collections import Counter

from orders import GAMMA, M64, Rng, full, key, mix

PACKED_ROWS = 12


def length(record):
    """Lengths from 1 to 30, most of them small; one in 16 up to 90."""
    random = mix(record + 1)
    return 1 + random % 10 + (random >> 8) % 11 * ((random >> 16) % 2) + (random >> 24) % 70 * ((random >> 32) % 16 == 0)


def shuffled(things, key):
    things, rng = list(things), Rng(key)
    for last in range(len(things) - 1, 0, -1):
        chosen = rng.below(last + 1)
        things[last], things[chosen] = things[chosen], things[last]
    return things


def sizes(total, size, last="even"):
    """Of batches of `size`; the last two share what is left."""
    full, rest = divmod(total, size)
    if last == "drop" or not rest:
        return [size] * full
    if last == "short" or not full:
        return [size] * full + [rest]
    return [size] * (full - 1) + [-(-(size + rest) // 2), (size + rest) // 2]


def in_queues(things, bucket_of, capacities):
    """Batches of one bucket each, as they become complete."""
    totals = Counter(bucket_of(thing) for thing in things)
    left = [sizes(totals[bucket], capacity) for bucket, capacity in enumerate(capacities)]
    queues = [[] for _ in capacities]
    for thing in things:
        bucket = bucket_of(thing)
        queues[bucket].append(thing)
        if len(queues[bucket]) == left[bucket][0]:
            left[bucket].pop(0)
            yield queues[bucket]
            queues[bucket] = []


def optimal(counts, buckets):
    """The ends of the fewest padded cells; of equally good ones, the shortest lengths in the last bucket."""
    lengths, before = [length for length, _ in counts], [0]
    for _, count in counts:
        before.append(before[-1] + count)
    n = len(lengths)
    best = [(0, [])] + [None] * n
    for _ in range(min(buckets, n)):
        best = [None] + [
            min(
                (best[i][0] + lengths[j - 1] * (before[j] - before[i]), i, best[i][1] + [lengths[j - 1]])
                for i in range(j)
                if best[i]
            )[::2]
            if any(best[:j])
            else None
            for j in range(1, n + 1)
        ]
    return best[n][1]


def ends_and_capacities(policy, batch, lengths):
    """Where buckets end and how many sentences a batch of each has."""
    kind, _, rest = policy.partition(":")
    counts, longest = sorted(Counter(lengths).items()), max(lengths)
    capacity = lambda end: batch
    if kind == "none":
        ends = [longest]
    elif kind == "static":
        ends = [int(end) for end in rest.split(",")]
        ends[-1] = max(ends[-1], longest)
    elif kind == "optimal":
        ends = optimal(counts, int(rest))
    else:
        if kind == "tokens":
            capacity = lambda end: max(1, int(rest) // end)
        ends, held = [], 0
        alone = [length for length, _ in counts if kind == "tokens" and length > int(rest)]
        for length, count in counts[: len(counts) - len(alone)]:
            held += count
            if held >= capacity(length):
                ends.append(length)
                held = 0
        if held:
            ends[-1:] = [length]
        if alone:
            ends.append(longest)
    return ends, [capacity(end) for end in ends]


def buckets(policy, batch, n, seed, epoch):
    lengths = [length(record) for record in range(n)]
    ends, capacities = ends_and_capacities(policy, batch, lengths)
    yield from in_queues(list(full(n, seed, epoch)), lambda record: bisect.bisect_left(ends, lengths[record]), capacities)


def pieces_of(record, row_length):
    total, start = length(record), 0
    while total - start > row_length:
        yield record, start, row_length
        start += row_length
    yield record, start, total - start


def pack(lengths, row_length):
    """Best-fit decreasing: a list of lengths, falling, for each row. Of equally full rows, that which
    became so last."""
    rows = []
    for time, piece in enumerate(sorted(lengths, reverse=True)):
        fitting = [row for row in rows if row[0] >= piece]
        if fitting:
            row = min(fitting, key=lambda row: (row[0], -row[1]))
        else:
            row = [row_length, 0, []]
            rows.append(row)
        row[0] -= piece
        row[1] = time
        row[2].append(piece)
    return [row[2] for row in rows]


def as_runs(row):
    return [(piece, len(list(same))) for piece, same in itertools.groupby(row)]


def rows(row_length, look_ahead, n, seed, epoch):
    order = list(full(n, seed, epoch))
    for window in range(-(-n // look_ahead)):
        records = order[window * look_ahead : (window + 1) * look_ahead]
        pieces = [piece for record in records for piece in pieces_of(record, row_length)]
        patterns = sorted(pack([piece[2] for piece in pieces], row_length), key=as_runs, reverse=True)
        waiting = {}
        for piece in pieces:
            waiting.setdefault(piece[2], []).append(piece)
        for row in shuffled(patterns, key(seed, epoch, PACKED_ROWS, window)):
            yield [waiting[piece].pop(0) for piece in row]


def digest(batches):
    state = 0
    for batch in batches:
        for number in (len(batch), *batch):
            state = mix(state * GAMMA & M64 ^ number)
    return state


def flat(row):
    return [number for piece in row for number in piece]


CASES = [(1, 0, 0), (10, 0, 1), (100, 1, 0), (1000, 20240607, 29), (3000, M64, M64)]

if __name__ == "__main__":
    print("# policy batch records seed epoch batches digest ids of the first batch, or pieces of the first row…")
    for n, seed, epoch in CASES:
        for policy, batch in [
            ("none", 8), ("static:5,10,20", 4), ("static:5,10,20", 32), ("auto", 4), ("auto", 32), ("optimal:5", 8),
            ("tokens:40", 1), ("tokens:100", 1),
        ]:
            batches = list(buckets(policy, batch, n, seed, epoch))
            print(policy, batch, n, seed, epoch, len(batches), digest(batches), *batches[0])
        for row_length, look_ahead in [(40, 16), (100, 64), (25, 1000)]:
            packed = [flat(row) for row in rows(row_length, look_ahead, n, seed, epoch)]
            print(f"pack:{row_length}:{look_ahead}", 1, n, seed, epoch, len(packed), digest(packed), *packed[0])
