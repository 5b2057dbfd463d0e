"""Training by Newton's method on 1, 2 and 4 ranks: seconds to a certified relative gap of 1e-3, in memory, out of core with
memory for 1/8 of the data for each rank, and with that memory for all ranks together. Runs of different
numbers of ranks take turns; rows hold medians. With `model` in the case reads are held to a modelled SSD,
one for each rank; with `core`, ranks run on as many cores as there are ranks, as on machines of one core each.

    python3 bench/peers/linear_ranks.py [SPEC…]
"""

import os
import sys

import peers

SPECS = ["demo:higgs:500000"]
RANKS = [1, 2, 4]
REPEATS = 3
CASES = {
    "all in memory": lambda ranks: ["--memory", "4GiB"],
    "1/8 each": lambda ranks: ["--memory", "1/8"],
    "1/4 together": lambda ranks: ["--memory", f"1/{4 * ranks}"],
    "all in memory; a core each": lambda ranks: ["--memory", "4GiB"],
    "1/8 each; a core each": lambda ranks: ["--memory", "1/8"],
    "1/8 each; modelled ssd": lambda ranks: ["--memory", "1/8", "--device-model", "ssd"],
}
KEYS = [
    "epochs", "passes", "relative_gap", "wall_s", "compute_s", "wait_s", "communication_s",
    "communication_bytes", "visits", "read_bytes", "peak_rss_bytes",
]


def main():
    results = peers.Results("linear_ranks", ["data", "memory", "ranks", *KEYS])
    for spec in sys.argv[1:] or SPECS:
        for case, memory in CASES.items():
            cores = sorted(os.sched_getaffinity(0))
            bound = "core" in case
            runs = {ranks: [] for ranks in RANKS if not bound or ranks <= len(cores)}
            for _ in range(REPEATS):
                for ranks in runs:
                    flags = ["--target", "1e-3", "--epochs", "60", "--ranks", ranks, *memory(ranks)]
                    flags += ["--solver", "newton"]
                    if bound:
                        os.sched_setaffinity(0, cores[:ranks])
                    runs[ranks].append(peers.train(spec, *flags))
                    os.sched_setaffinity(0, cores)
            for ranks, figures in runs.items():
                medians = {key: peers.median(run[key] for run in figures) for key in KEYS}
                results.add(data=spec.removeprefix("demo:"), memory=case, ranks=ranks, **medians)


main()
