"""Seconds of communication between 2 to 4 hosts at 1 Gbit/s, which are namespaces of this machine; needs root.

python bench/network_times.py target/release/examples/network_times > bench/results/network_times.csv
"""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "tests"))
from hosts import Hosts  # noqa: E402

BYTES = 40_000_000


def main() -> None:
    print("round,hosts,operation,bytes,seconds")
    for turn in range(3):
        for count in (2, 3, 4):
            with tempfile.TemporaryDirectory() as base, Hosts(count, Path(base)) as hosts:
                hosts.limit("1gbit")
                ranks = hosts.start_ranks(Path(sys.argv[1]).resolve(), BYTES)
                for rank in ranks:
                    assert rank.wait(120) == 0, rank.output
                seconds = json.loads(ranks[0].output)
            for operation in ("all_reduce", "all_gather", "ring", "reads"):
                read = seconds["read_bytes"] if operation == "reads" else BYTES
                print(f"{turn},{count},{operation},{read},{seconds[operation]:.4f}", flush=True)


if __name__ == "__main__":
    main()
