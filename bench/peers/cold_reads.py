"""Cold reads past the page cache: large rows next to fio at the same size and depth on the same file; small
rows on the window and scatter paths against the floor of read amplification; warm rows a second.

    python3 bench/peers/cold_reads.py [large] [small] [warm]
"""

import math
import sys

import peers

ROUNDS = 3
ALL = ["large", "small", "warm"]
COLUMNS = (
    "part,case,access,memory,round,examples_per_s,used_bytes_per_s,read_bytes_per_s,read_amplification,"
    "floor_512,floor_4096,writes_per_byte,first_batch_s,wall_s,cpu_s,mean_queue_depth,verdict"
).split(",")


def bench(results, part, case, data, number, arguments, **more):
    figures = peers.pelton("bench", data, *arguments)
    results.add(
        part=part, case=case, access=figures["access"], round=number,
        used_bytes_per_s=figures["bytes_per_s"], read_bytes_per_s=figures["read_bytes"] / figures["wall_s"],
        writes_per_byte=figures["written_bytes"] / figures["used_bytes"],
        **{key: figures[key] for key in COLUMNS if key in figures and key != "access"}, **more,
    )
    return figures


def large(results):
    """44 KB rows; fio reads blocks of the mean size at multiples of a sector."""
    path = peers.demo_files("demo:webspam:30000")[0]
    for number in range(ROUNDS):
        for depth in [64, 128]:
            peers.drop_cache(path)
            fio = ["--rw=randread", "--bs=44544", "--blockalign=512", f"--iodepth={depth}"]
            rate = peers.fio(path, *fio)
            results.add(part="large", case=f"fio randread 44544 bytes depth {depth}", round=number, read_bytes_per_s=rate)
        rate = peers.fio(path, "--rw=randread", "--bs=44544", "--blockalign=512", "--iodepth=128", "--numjobs=3", "--group_reporting")
        results.add(part="large", case="fio randread 44544 bytes 3 jobs of depth 128", round=number, read_bytes_per_s=rate)
        bench(
            results, "large", "webspam:30000 batch 64", path, number,
            "--order full --access direct --batch 64 --io direct --cold --memory 256MiB".split(), memory="256MiB",
        )


def floor(share, row_bytes, unit_bytes):
    """Read amplification when memory for a share f of the rows serves disjoint windows."""
    return (1 - math.exp(-share * (row_bytes + unit_bytes - 1) / row_bytes)) / share


def small(results):
    """Several epochs, so that the sweeps before the first batch and after the last weigh little."""
    cold = ["--io", "direct", "--cold", "--epochs", "6"]
    for spec, row_bytes in [("demo:higgs:1000000", 120), ("demo:kdd:400000", 362)]:
        path = peers.demo_files(spec)[0]
        for number in range(ROUNDS):
            page = ["--order", "page:4096", "--access", "direct", "--memory", "1/8", *cold]
            bench(results, "small", f"{spec[5:]} page:4096", path, number, page, memory="1/8")
            for share in [8, 4, 2]:
                floors = {f"floor_{unit}": floor(1 / share, row_bytes, unit) for unit in (512, 4096)}
                for access in ["window:0", "window", "scatter"]:
                    if access == "window:0" and number:
                        continue  # slow, and what counts of it, the amplification, does not vary
                    options = ["--order", "full", "--access", access, "--memory", f"1/{share}", *cold]
                    bench(results, "small", spec[5:], path, number, options, memory=f"1/{share}", **floors)


def warm(results):
    path = peers.demo_files("demo:higgs:4000000")[0]
    for number in range(ROUNDS):
        peers.warm(path)
        for access in ["auto", "direct", "window"]:
            options = ["--order", "full", "--access", access, "--io", "buffered", "--memory", "256MiB"]
            bench(results, "warm", "higgs:4000000", path, number, options, memory="256MiB")


def main():
    parts = sys.argv[1:] or ALL
    results = peers.Results("cold_reads_" + "_".join(parts) if parts != ALL else "cold_reads", COLUMNS)
    for part in parts:
        {"large": large, "small": small, "warm": warm}[part](results)


main()
