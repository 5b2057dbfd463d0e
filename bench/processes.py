"""A function that holds Python's lock for 5 ms: one thread against worker processes of `.map`.

    python bench/processes.py --processes 2 --repeats 5

Prints rows for bench/results/processes.csv: milliseconds a sample from the first batch on, in turns.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pelton


def busy(sample: dict[str, Any]) -> dict[str, Any]:
    end = time.thread_time() + 0.005
    while time.thread_time() < end:
        pass
    return {"x": 1}


def milliseconds(pipeline: Any) -> float:
    batches = iter(pipeline)
    next(batches)
    began = time.perf_counter()
    samples = sum(len(batch.ids) for batch in batches)
    taken = (time.perf_counter() - began) / samples * 1e3
    # Otherwise the next epoch would be made meanwhile.
    pipeline.close()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    data = pelton.from_arrays(x=np.arange(480))
    thread = data.map(busy).batch(8).threads(1)
    processes = data.map(busy, processes=options.processes).batch(8)
    print("repeat,thread_ms,processes_ms,ratio")
    for repeat in range(options.repeats):
        one, several = milliseconds(thread), milliseconds(processes)
        print(f"{repeat},{one:.3f},{several:.3f},{one / several:.3f}", flush=True)


if __name__ == "__main__":
    main()
