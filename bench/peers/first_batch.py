"""Seconds to the first batch of a million records whose index is there, and the vocabulary unless the case says that it
is counted; and of the process as a whole up to the end of the epoch. `opened` is what a process takes that only opens the data (pelton index on a warm index).

    python3 bench/peers/first_batch.py [RECORDS]
"""

import sys
import time

import peers
import samples

ROUNDS = 2
COLUMNS = "data,bytes,case,round,first_batch_s,opened_s,wall_s,process_s,cpu_s,peak_rss_bytes".split(",")
BATCHES = {
    "rows of bytes": ["--batch", 64],
    "rows of bytes, pages dropped": ["--batch", 64, "--cold"],
    "ragged": ["--batch", 64, "--collate", "ragged"],
    "words; vocabulary counted": ["--batch", 64, "--decode", "words"],
    "words": ["--batch", 64, "--decode", "words"],
    "words; buckets auto": ["--batch", 64, "--decode", "words", "--buckets", "auto"],
    "buckets auto": ["--batch", 64, "--buckets", "auto", "--collate", "pad"],
}


def timed(*arguments):
    began = time.perf_counter()
    figures = peers.pelton(*arguments)
    return figures, time.perf_counter() - began


def main():
    records = int((sys.argv[1:] or ["1000000"])[0])
    results = peers.Results("first_batch", COLUMNS, f"{records} records; the index was written by an earlier command")
    seconds = {}
    for path in [samples.tiny_tar(records), samples.tiny_text(records), samples.sentences(records)]:
        peers.warm(path)
        peers.pelton("index", path)
        for number in range(ROUNDS):
            for case, flags in BATCHES.items():
                if "counted" in case:
                    for kept in peers.CACHE.glob("*.pelton-vocabulary"):
                        kept.unlink()
                if path.suffix == ".tar" and case.startswith("words"):
                    flags = [*flags, "--collate", "pad"]
                _, opened = timed("index", path)
                figures, process = timed("bench", path, *flags)
                keys = [key for key in COLUMNS if key in figures]
                seconds.setdefault((path.name, case), []).append(figures["first_batch_s"])
                results.add(
                    data=path.name, bytes=path.stat().st_size, case=case, round=number, opened_s=opened,
                    process_s=process, **{key: figures[key] for key in keys},
                )
    for (name, case), values in seconds.items():
        results.note(f"{name}, {case}: median {peers.median(values):.3f} s, most {max(values):.3f} s")


main()
