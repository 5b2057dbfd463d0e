"""Writes orders.txt: the first and last ids of each order, from a second, plain implementation.

    python3 orders.py > orders.txt

The Rust test compares the crate with the file. Its lines never change, only new
orders are added: a run recorded years ago must still mean the same sequence.
"""

import itertools

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
ORDER, BLOCK_ORDER, BLOCK_ASSIGNMENT, QUEUE, INITIAL_SHUFFLE = 1, 2, 3, 4, 5
LOAD_UNITS, LOAD_RECORDS = 9, 10


def mix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & M64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & M64
    return x ^ (x >> 31)


def key(seed, epoch, kind, number=0):
    state = mix((seed + GAMMA) & M64)
    for word in (epoch, kind, number):
        state = mix((state + word) * GAMMA & M64 ^ 0x50454C544F4E0001)
    return state


class Rng:
    def __init__(self, key):
        self.key, self.counter = key, 0

    def next(self):
        inner = mix(self.counter * GAMMA & M64 ^ self.key)
        self.counter += 1
        rotated = (self.key << 32 | self.key >> 32) & M64
        return mix((inner + rotated) & M64)

    def below(self, bound):
        unfair = (1 << 64) % bound
        while True:
            product = self.next() * bound
            if product & M64 >= unfair:
                return product >> 64


def mixed_32(half, key):
    h = (half ^ key) * 0x9E3779B1 & M32
    return (h ^ (h >> 15)) * 0x85EBCA77 & M32


def mixed_64(half, key):
    h = (half ^ key) * 0x9E3779B1
    h = ((h ^ (h >> 32)) & M32) * 0x85EBCA77
    return (h ^ (h >> 32)) & M32


def permutation(n, key, back=False):
    """Position -> element; or, with `back`, element -> position."""
    if n <= 1024:
        table, rng = list(range(n)), Rng(key)
        for last in range(n - 1, 0, -1):
            chosen = rng.below(last + 1)
            table[last], table[chosen] = table[chosen], table[last]
        return table.index if back else table.__getitem__
    return network(n, key, back)


def network(n, key, back=False):
    bits = (n - 1).bit_length()
    left_bits, right_bits = bits // 2, bits - bits // 2
    mixed = mixed_32 if n <= 1 << 32 else mixed_64
    keys = [mix((key + (i + 1) * GAMMA) & M64) >> 32 for i in range(10)]

    rounds = list(enumerate(keys))[:: -1 if back else 1]

    def walk(x):
        while True:
            left, right = x >> right_bits, x & ((1 << right_bits) - 1)
            for i, k in rounds:
                if i % 2 == 0:
                    left ^= mixed(right, k) >> (32 - left_bits)
                else:
                    right ^= mixed(left, k) >> (32 - right_bits)
            x = left << right_bits | right
            if x < n:
                return x

    return walk


def queue(n, slots, shuffled, seed, epoch):
    """The whole epoch, lazily."""
    place = permutation(n, key(seed, 0, INITIAL_SHUFFLE)) if shuffled else lambda i: i
    rng = Rng(key(seed, epoch, QUEUE))
    slots = min(slots, n)
    buffer, taken = [place(i) for i in range(slots)], slots
    while buffer:
        drawn = rng.below(len(buffer))
        yield buffer[drawn]
        if taken < n:
            buffer[drawn] = place(taken)
            taken += 1
        else:
            buffer[drawn] = buffer[-1]
            buffer.pop()


def block(n, blocks, permute, seed, epoch):
    assignment = permutation(n, key(seed, 0, BLOCK_ASSIGNMENT))
    order = permutation(blocks, key(seed, epoch, BLOCK_ORDER)) if permute else lambda i: i
    for step in range(blocks):
        b = order(step)
        for place in range(b * n // blocks, (b + 1) * n // blocks):
            yield assignment(place)


def page(n, record_bytes, unit_bytes, seed, epoch):
    a_unit = -(-unit_bytes // record_bytes)
    units = -(-n // a_unit)
    order = permutation(units, key(seed, epoch, ORDER))
    for position in range(units):
        unit = order(position)
        yield from range(unit * a_unit, min(n, (unit + 1) * a_unit))


def opportunistic(n, record_bytes, loads, unit_bytes, seed, epoch):
    """The first load, lazily."""
    a_unit = -(-unit_bytes // record_bytes)
    units = -(-n // a_unit)
    order_key = key(seed, epoch, LOAD_UNITS)
    order, place_of = permutation(units, order_key), permutation(units, order_key, back=True)
    short, missing = place_of(units - 1), units * a_unit - n
    places = units // loads
    records = places * a_unit - (missing if short < places else 0)
    inside = permutation(records, key(seed, epoch, LOAD_RECORDS, 0))
    for position in range(records):
        record = inside(position)
        if record >= (short + 1) * a_unit - missing:
            record += missing
        yield order(record // a_unit) * a_unit + record % a_unit


def full(n, seed, epoch):
    order = permutation(n, key(seed, epoch, ORDER))
    for position in range(n):
        yield order(position)


def line(name, n, seed, epoch, ids):
    first = [str(number) for number in itertools.islice(ids, 12)]
    print(name, n, seed, epoch, *first)


SIZES = [1, 2, 10, 1000, 1024, 1025, 65536, 65537, 1 << 20, 11000000, 1 << 32, (1 << 32) + 1, 10**12]
EPOCHS = [(0, 0), (0, 1), (1, 0), (20240607, 29), (M64, M64)]

if __name__ == "__main__":
    print("# order records seed epoch ids…  (page: records of 112 bytes)")
    for n in SIZES:
        for seed, epoch in EPOCHS:
            line("full", n, seed, epoch, full(n, seed, epoch))
            line("page:4096", n, seed, epoch, page(n, 112, 4096, seed, epoch))
            line("queue:500", n, seed, epoch, queue(n, 500, False, seed, epoch))
            line("queue:500:shuffled", n, seed, epoch, queue(n, 500, True, seed, epoch))
            for blocks in [7, 2000]:
                if blocks <= n:
                    line(f"block:{blocks}", n, seed, epoch, block(n, blocks, False, seed, epoch))
                    line(f"block:{blocks}:permute", n, seed, epoch, block(n, blocks, True, seed, epoch))
    for n in SIZES:
        for seed, epoch in EPOCHS:
            for loads, unit_bytes in [(1, 112), (8, 4096), (8, 1 << 20), (1000, 1000)]:
                if loads <= -(-n // -(-unit_bytes // 112)):
                    ids = opportunistic(n, 112, loads, unit_bytes, seed, epoch)
                    line(f"opportunistic:{loads}:{unit_bytes}", n, seed, epoch, ids)
