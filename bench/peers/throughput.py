"""Index arithmetic, location tables, scanning and parsing: ids a second of each order, bytes a record of
the location table, `pelton`'s scan next to `wc -l`, its parser next to the reader of LIBLINEAR's train.

    python3 bench/peers/throughput.py [ROWS_HIGGS ROWS_KDD]
"""

import json
import sys

import peers

ROUNDS = 3


def head(text, size):
    """The first lines of a text file, about `size` bytes."""
    target = text.with_suffix(f".head{size >> 20}")
    with open(text, "rb") as source, open(target, "wb") as out:
        out.write(source.read(size))
        out.write(source.readline())
    return target


def main():
    rows_higgs, rows_kdd = (sys.argv[1:] + ["3000000", "1250000"])[:2] if len(sys.argv) > 2 else ("3000000", "1250000")
    results = peers.Results("throughput", ["what", "case", "round", "value", "unit"])
    for line in peers.run([peers.EXAMPLES / "ids_per_second"]).splitlines()[1:]:
        case, records, rate = line.split(",")
        results.add(what="ids", case=f"{case} of {records}", round="median of 7", value=rate, unit="million/s, one core")
    for spec in [f"demo:kdd:{rows_kdd}", f"demo:higgs:{rows_higgs}"]:
        name = spec[5:].replace(":", "-") + ".svm"
        text = peers.as_libsvm(peers.demo_files(spec)[0], name)
        index = peers.pelton("index", text)
        results.add(what="table", case=name, round=1, value=index["bytes_per_record"], unit="bytes a record")
        results.add(what="size", case=name, round=1, value=text.stat().st_size, unit="bytes")
        part = head(text, 200 << 20)
        for number in range(ROUNDS):
            peers.warm(text)
            for line in peers.run([peers.EXAMPLES / "format_speed", text]).splitlines()[1:]:
                what, value, unit = line.split(None, 2) if not line.strip().startswith("wc") else ("wc -l", *line.split()[2:])
                results.add(what=what, case=name, round=number, value=float(value), unit=unit)
            theirs = json.loads(peers.run([peers.liblinear(), "read", part]))
            rate = part.stat().st_size / 1e6
            results.add(what="LIBLINEAR reader", case=name, round=number, value=rate / theirs["cpu_s"], unit="MB/s CPU, one thread")
            results.add(what="LIBLINEAR reader", case=name, round=number, value=rate / theirs["read_s"], unit="MB/s wall, one thread")


main()
