"""Out of core at memory = 1/8 of the data: passes and seconds to a relative gap of 1e-3, with and without
skip and cache, next to the least time possible: max(bytes / bandwidth, visits × seconds a visit), with the
bandwidth of fio's sequential reads (and writes, for scratch files) on the same disk and the cost of a
visit when the same rows lie in memory.

    python3 bench/peers/out_of_core.py [SPEC…]
"""

import sys

import peers

SPECS = ["demo:higgs:1000000", "demo:epsilon:20000", "demo:epsilon:100000", "demo:webspam:4000", "demo:kdd:400000"]
MODES = {
    "default": [],
    "plain": ["--cache-fraction", "0"],
    "skip": ["--skip", "--cache-fraction", "0"],
    "skip cache": ["--skip", "--cache-fraction", "0.5"],
}


def visit_seconds(path):
    figures = peers.train(path, "--memory", "8GiB", "--epochs", "1", "--inner-passes", "10")
    return figures["compute_s"] / figures["visits"]


def main():
    columns = (
        "case,mode,access,passes,epochs,relative_gap,wall_s,prepare_s,load_s,compute_s,overlap_s,wait_s,read_bytes,"
        "written_bytes,visits,ns_per_visit,read_bytes_per_s,write_bytes_per_s,bound_s,ratio,ratio_without_prepare,"
        "peak_rss_bytes,memory_bytes,test_accuracy,verdict"
    ).split(",")
    results = peers.Results("out_of_core", columns)
    for spec in sys.argv[1:] or SPECS:
        path, test = peers.demo_files(spec)
        peers.drop_cache(path)
        reading = peers.fio(path, "--rw=read", "--bs=128k", "--iodepth=64", seconds=3)
        target = peers.WORK / "fio-write"
        writing = peers.fio(target, "--rw=write", "--bs=512k", "--iodepth=16", "--size=256M", seconds=3)
        target.unlink()
        visit = visit_seconds(path)
        for mode, flags in MODES.items():
            peers.drop_cache(path)
            figures = peers.train(path, "--test", test, "--memory", "1/8", "--target", "1e-3", "--epochs", "60", *flags)
            loading = figures["read_bytes"] / reading + figures["written_bytes"] / writing
            bound = max(loading, figures["visits"] * visit)
            results.add(
                case=spec[5:], mode=mode, ns_per_visit=visit * 1e9, read_bytes_per_s=reading, write_bytes_per_s=writing,
                bound_s=bound, ratio=figures["wall_s"] / bound,
                ratio_without_prepare=(figures["wall_s"] - figures["prepare_s"]) / bound,
                **{key: figures[key] for key in columns if key in figures},
            )


main()
