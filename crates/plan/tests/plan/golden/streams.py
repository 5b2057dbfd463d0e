"""Writes streams.txt: digests of epochs of whole pipelines, from a second, plain implementation.

    python3 streams.py > streams.txt

Every epoch is made from its beginning, and copies are counted at its end. The Rust test compares the crate with the
file. Its lines never change, only new pipelines are added: a run that is recorded today must mean the same batches in years.
"""

import bisect
import itertools
import math
from collections import Counter
from fractions import Fraction

from buckets import PACKED_ROWS, as_runs, digest, in_queues, length, pack, shuffled, sizes
from orders import M64, Rng, full, key, mix, permutation

ECHO, BATCH_ECHO, PART, MIXED, ORDER = 13, 15, 16, 22, 1


def kept_records(records, dropped):
    """The records that are kept: one in `dropped` is not."""
    return [record for record in range(records) if not dropped or mix(record) % dropped]


def turns(weights, count, seed):
    """The part of each of the first examples of a run: rounds of parts with equal shares, and windows of two nodes."""
    shares = [math.floor(Fraction(weight / sum(weights) * 2**53) + Fraction(1, 2)) for weight in weights]
    nodes = [(share, [part for part, s in enumerate(shares) if s == share]) for share in sorted(set(shares)) if share]
    nodes = [(share * len(parts), parts) for share, parts in nodes]
    open_nodes = [(share, node) for node, (share, _) in enumerate(nodes)]
    while len(open_nodes) > 1:
        few, many = sorted(open_nodes)[:2]
        open_nodes = sorted(open_nodes)[2:] + [(few[0] + many[0], len(nodes))]
        nodes.append((few[0] + many[0], (few, many)))

    def of_node(node, count):
        kind = nodes[node][1]
        if isinstance(kind, list):
            rounds = range(-(-count // len(kind)))
            orders = [permutation(len(kind), key(seed, number, MIXED, node)) for number in rounds]
            return [kind[order(place)] for order in orders for place in range(len(kind))][:count]
        (few, first), (many, second) = kind
        goes = []
        for number in range(count):
            start, end = (n * (few + many) // few for n in (number, number + 1))
            chosen = start + Rng(key(seed, number, MIXED, node)).below(end - start)
            goes += [place == chosen for place in range(start, end)]
            if len(goes) >= count:
                break
        goes = goes[:count]
        below = {True: iter(of_node(first, sum(goes))), False: iter(of_node(second, len(goes) - sum(goes)))}
        return [next(below[smaller]) for smaller in goes]

    return of_node(len(nodes) - 1, count)


def mixed(parts, examples, kept, seed, epoch):
    """The records of an epoch of a mixture."""
    numbers = [[record for record in kept if start <= record < end] for start, end, _ in parts]
    drawn, records = Counter(), []
    for part in turns([weight for _, _, weight in parts], examples * (epoch + 1), seed):
        n = len(numbers[part])
        order = permutation(n, key(seed, drawn[part] // n, PART, part))
        records.append(numbers[part][order(drawn[part] % n)])
        drawn[part] += 1
    return records[examples * epoch :]


def weight(record):
    return [0, 1, 0.1, 3, 0.25][mix(record ^ 99) % 5]


def class_of(record):
    return [0, 0, 0, 0, 0, 1, 1, 4][mix(record ^ 77) % 8]


def drawn(kept, examples, seed, epoch):
    """The records of an epoch that draws by weight."""
    sums = list(itertools.accumulate(weight(record) for record in kept))
    shares = [int(sum / sums[-1] * 2**53) for sum in sums]
    rng = Rng(key(seed, epoch, ORDER))
    return [kept[bisect.bisect_right(shares, rng.next() >> 11)] for _ in range(examples)]


def balanced(kept, examples, seed, epoch):
    """The records of an epoch that draws all classes alike."""
    by_class = sorted(kept, key=class_of)
    ends = [bisect.bisect_right([class_of(record) for record in by_class], c) for c in range(5)]
    parts = [(start, end, float(end > start)) for start, end in zip([0] + ends, ends)]
    order = mixed(parts, examples, range(len(by_class)), seed, epoch)
    return [by_class[number] for number in order]


def echoed(things, echo, seed, epoch, stage):
    """Each thing as often as the echo says: windows of fresh ones, with repeats of the window before between."""
    factor, _, window = echo.partition(":")
    factor, window, n = Fraction(factor), int(window or max(1, min(1024, len(things) // 10))), len(things)
    times = [math.floor((i + 1) * factor) - math.floor(i * factor) for i in range(n)]
    out, repeats = [], []
    for number in range(-(-n // window) + 1):
        fresh = list(range(number * window, min(n, (number + 1) * window)))
        total = len(fresh) + len(repeats)
        for slot in range(total):
            before = slot * len(fresh) // total
            is_fresh = (slot + 1) * len(fresh) // total > before
            out.append(things[fresh[before] if is_fresh else repeats[slot - before]])
        repeats = repeats_of(fresh, times, key(seed, epoch, stage, number))
    return out


def repeats_of(window, times, key):
    rng, repeats, half = Rng(key), [], len(window) // 2
    for copy in range(1, max((times[i] for i in window), default=0)):
        for side in (window[:half], window[half:]):
            again = [i for i in side if times[i] > copy]
            for last in range(len(again) - 1, 0, -1):
                chosen = rng.below(last + 1)
                again[last], again[chosen] = again[chosen], again[last]
            repeats += again
    return repeats


def cut(things, batch, last="even"):
    start = 0
    for size in sizes(len(things), batch, last):
        yield things[start : start + size]
        start += size


def in_rows(draws, row_length, look_ahead, batch, seed, epoch):
    rows = []
    for window in range(-(-len(draws) // look_ahead)):
        ahead = draws[window * look_ahead : (window + 1) * look_ahead]
        patterns = sorted(pack([length(draw[0]) for draw in ahead], row_length), key=as_runs, reverse=True)
        waiting = {}
        for draw in ahead:
            waiting.setdefault(length(draw[0]), []).append(draw)
        for row in shuffled(patterns, key(seed, epoch, PACKED_ROWS, window)):
            rows.append([waiting[piece].pop(0) for piece in row])
    for of_batch in cut(rows, batch):
        yield list(itertools.chain(*of_batch))


def batches(records, dropped, mixture, examples, echo, policy, batch, batch_echo, seed, epoch):
    """Lists of (record, position)."""
    kept = kept_records(records, dropped)
    if mixture == "-":
        order = [kept[number] for number in full(len(kept), seed, epoch)]
    elif mixture == "weights":
        order = drawn(kept, examples, seed, epoch)
    elif mixture == "classes":
        order = balanced(kept, examples, seed, epoch)
    elif mixture == "ids":
        listed = [mix(i ^ 55) % records for i in range(examples)]
        listed = [record for record in listed if record in set(kept)]
        order = [listed[number] for number in full(len(listed), seed, epoch)]
    else:
        parts = [(int(a), int(b), float(w)) for a, b, w in (part.split("/") for part in mixture.split(","))]
        order = mixed(parts, examples, kept, seed, epoch)
    draws = echoed([(record, position) for position, record in enumerate(order)], echo, seed, epoch, ECHO)
    kind, _, rest = policy.partition(":")
    if kind == "static":
        ends = [int(end) for end in rest.split(",")]
        ends[-1] = 10**9
        fresh = list(in_queues(draws, lambda draw: bisect.bisect_left(ends, length(draw[0])), [batch] * len(ends)))
    elif kind == "pack":
        fresh = list(in_rows(draws, *map(int, rest.split(":")), batch, seed, epoch))
    else:
        fresh = list(cut(draws, batch, "even" if kind == "-" else kind))
    return echoed(list(enumerate(fresh)), batch_echo, seed, epoch, BATCH_ECHO)


def words(steps):
    """For each step the number of the batch that it repeats, and record, position, copy and last of each draw."""
    left = Counter(draw[1] for _, batch in steps for draw in batch)
    copies, seen = Counter(), set()
    for number, batch in steps:
        step = [number + 1 if number in seen else 0]
        seen.add(number)
        for record, position in batch:
            left[position] -= 1
            step += [record, position, copies[position], int(left[position] == 0)]
            copies[position] += 1
        yield step


CASES = [(40, 0, 0), (1100, 1, 2), (2500, M64, 7)]
PIPELINES = [
    # dropped one in, mixture (start/end/weight) or sampler, examples, echo, policy, batch, batch echo
    (0, "-", 0, "2:16", "-", 8, "1"),
    (3, "-", 0, "1.5:20", "drop", 7, "1"),
    (2, "-", 0, "1", "short", 5, "2.25:3"),
    (0, "0/10/1,10/40/2", 30, "1", "-", 8, "1"),
    (5, "0/3/1,3/8/0.5,8/40/0.1,0/40/0", 77, "1", "drop", 8, "1"),
    (4, "0/13/0.3,13/40/0.7", 200, "2.125:32", "-", 8, "1"),
    (0, "-", 0, "2:16", "static:5,10,20", 4, "1"),
    (3, "0/30/1,5/40/2", 150, "1.5:9", "static:5,10", 4, "1"),
    (0, "-", 0, "1", "static:5,10", 4, "1.5:4"),
    (0, "-", 0, "2:8", "pack:100:64", 3, "1"),
    (7, "0/30/1,5/40/2", 150, "1", "pack:100:16", 3, "1"),
    (7, "0/30/1,5/40/2", 150, "1", "pack:120:50", 2, "2:2"),
]
SAMPLED = [
    (0, "weights", 40, "1", "-", 8, "1"),
    (3, "weights", 100, "1.5:20", "static:5,10", 4, "1"),
    (0, "classes", 40, "1", "-", 8, "1"),
    (3, "classes", 77, "1", "pack:100:16", 3, "1"),
    (0, "ids", 60, "1", "drop", 8, "1"),
    (2, "ids", 90, "2:16", "static:5,10", 4, "1"),
]

if __name__ == "__main__":
    print("# dropped mixture examples echo policy batch batch_echo records seed epoch steps digest words of the first step…")
    for pipelines in (PIPELINES, SAMPLED):
        for (n, seed, epoch), spec in itertools.product(CASES, pipelines):
            steps = list(words(batches(n, *spec, seed, epoch)))
            print(*spec, n, seed, epoch, len(steps), digest(steps), *steps[0][:13])
