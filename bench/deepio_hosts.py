"""DeepIO's read paths over real sockets: bytes a second into the batches of 1, 2 and 4 hosts, which are namespaces of this
machine with links of a stated rate; the backend is modelled (`--device-model pfs`). Needs root.

python bench/deepio_hosts.py target/release/pelton 10gbit > bench/results/deepio_hosts.csv
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "tests"))
from hosts import Hosts  # noqa: E402

# As pictures of ImageNet: 110 KiB a record.
RECORDS, NUMBERS = 2048, 110 * 256
WAYS = [("backend", "none", "1", "ordered"), ("memory", "peers", "1/1", "ordered")]
WAYS += [(f"{mode} 1/{part}", "peers", f"1/{part}", mode) for mode in ("ordered", "opportunistic") for part in (2, 4, 8)]


def main() -> None:
    program, rate = Path(sys.argv[1]).resolve(), sys.argv[2]
    print("round,hosts,way,bytes_per_s")
    for turn in range(2):
        for count in (1, 2, 4):
            with tempfile.TemporaryDirectory() as base, Hosts(count, Path(base)) as hosts:
                hosts.limit(rate)
                np.save(hosts.disk(0) / "data.npy", np.ones((RECORDS, NUMBERS), "f4"))
                for host in range(1, count):
                    os.link(hosts.disk(0) / "data.npy", hosts.disk(host) / "data.npy")
                for way, cache, memory, mode in WAYS:
                    line = [program, "bench", "data.npy", "--batch", 32, "--epochs", 4, "--device-model", "pfs", "--json"]
                    if cache == "peers":
                        line += ["--cache", "peers", "--peer-memory", memory, "--mode", mode, "--anywhere"]
                    ranks = hosts.start_ranks(*line) if count > 1 else [hosts.start(0, *line)]
                    for rank in ranks:
                        assert rank.wait(300) == 0, rank.output
                    figures = json.loads([line for line in ranks[0].output.splitlines() if line.startswith("{")][-1])
                    print(f"{turn},{count},{way},{figures['bytes_per_s']:.0f}", flush=True)


if __name__ == "__main__":
    main()
