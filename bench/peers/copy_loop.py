"""Records without decoding. Warm: Pelton next to a bare loop (copy_loop.c) that copies the same ranges in the
same order from a memory map, or by a system call for each, into the buffer of one batch. Cold: Pelton next to fio's random reads of the same size.
3073-byte records are CIFAR's binary form, put out as they lie (--planar) and, in rows that say so, with the
channels of a pixel side by side, which is more than a copy; 110 592-byte ones are IDX pictures.

    python3 bench/peers/copy_loop.py [warm] [cold]
"""

import array
import sys

import peers
import samples

BATCH = 64
ROUNDS = 3
COLD_ROUNDS = 4
THREADS = 2
COLUMNS = "part,case,system,round,examples_per_s,bytes_per_s,cpu_s,peak_rss_bytes,first_batch_s,mean_queue_depth,access,verdict".split(",")
# The second budget holds the files, which then stay in memory if their records are short.
MEMORY, ROOMY = "256MiB", "4GiB"
FLAGS = ["--batch", BATCH, "--collate", "stack", "--order", "full"]


def records():
    """Of each case: file, bytes before the first record, from a record to the next, and of a record's payload."""
    cifar = samples.cifar(650_000)
    pictures, start, size = samples.pictures(18_000)
    return {
        "3073 bytes (cifar10)": (cifar, 1, samples.CIFAR_BYTES, samples.CIFAR_BYTES - 1, "cifar10"),
        "110592 bytes (idx)": (pictures, start, size, size, "idx"),
    }


def as_stored(kind):
    """Flags by which pictures come out as they lie in the file."""
    return ["--planar"] if kind == "cifar10" else []


def program():
    source = peers.REPOSITORY / "bench/peers/copy_loop.c"
    target = peers.WORK / "copy_loop"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        peers.run(["gcc", "-O3", "-pthread", "-o", target, source])
    return target


def order(path, kind):
    """The ids of one epoch as Pelton consumes them."""
    state, log = peers.WORK / "order.state", peers.WORK / "order.ids"
    state.unlink(missing_ok=True)
    log.unlink(missing_ok=True)
    peers.pelton("bench", path, "--format", kind, *FLAGS, "--state", state, "--log", log)
    return array.array("Q", log.read_bytes())


def ranges(case, path, start, stride, size, kind):
    """The file of offsets and lengths of one epoch in Pelton's order."""

    def write(out):
        ids = order(path, kind)
        assert sorted(ids) == list(range(path.stat().st_size // stride))
        both = array.array("Q", bytes(16 * len(ids)))
        both[::2] = array.array("Q", [start + number * stride for number in ids])
        both[1::2] = array.array("Q", [size] * len(ids))
        both.tofile(out)

    return samples.made(f"{path.name}.ranges", write)


def warm(results):
    rates = {}

    def add(case, system, number, bytes_per_s, **more):
        rates.setdefault(case, {}).setdefault(system, []).append(bytes_per_s)
        results.add(part="warm", case=case, system=system, round=number, bytes_per_s=bytes_per_s, **more)

    for case, (path, start, stride, size, kind) in records().items():
        listed = ranges(case, path, start, stride, size, kind)
        for number in range(ROUNDS):
            peers.warm(path)
            for how, threads in [("map", 1), ("map", THREADS), ("pread", THREADS)]:
                seconds = peers.run([program(), how, path, listed, BATCH, threads, 2]).split()
                count = listed.stat().st_size / 16
                first = ", page faults in it" if how == "map" else ", first round"
                for note, took in zip([first, ""], map(float, seconds)):
                    add(case, f"bare {how} loop, {threads} threads{note}", number, count * size / took, examples_per_s=count / took)
            ours = {f"Pelton, {threads} threads": [*as_stored(kind), "--threads", threads] for threads in [1, THREADS]}
            if kind == "cifar10":
                ours["Pelton, channels side by side"] = ["--threads", THREADS]
            cases = [(system, flags, memory) for system, flags in ours.items() for memory in [MEMORY, ROOMY]]
            for system, flags, memory in cases:
                peers.warm(path)
                figures = peers.pelton("bench", path, "--format", kind, *FLAGS, *flags, "--memory", memory)
                system = f"{system}, {memory}"
                more = {key: figures[key] for key in COLUMNS if key in figures and key != "bytes_per_s"}
                add(case, system, number, figures["examples_per_s"] * size, **more)
    for case, systems in rates.items():
        medians = {system: peers.median(values) for system, values in systems.items()}
        for name in [system for system in medians if "Pelton" in system]:
            ours = medians[name]
            shares = ", ".join(f"{ours / value:.2f} of {system}" for system, value in medians.items() if "bare" in system)
            results.note(f"warm, {case}: {name}: median {ours / 1e9:.2f} GB/s, {shares}")


def cold(results):
    for case, (path, _, stride, size, kind) in records().items():
        rates = {}
        for number in range(COLD_ROUNDS):
            for depth in [64, 128]:
                peers.drop_cache(path)
                block = -(-stride // 512) * 512
                fio = ["--rw=randread", f"--bs={block}", "--blockalign=512", f"--iodepth={depth}"]
                rate = peers.fio(path, *fio, seconds=3)
                system = f"fio randread {block} bytes, depth {depth}"
                rates.setdefault(system, []).append(rate / block)
                results.add(part="cold", case=case, system=system, round=number, bytes_per_s=rate, examples_per_s=rate / block)
            for name, flags in [("direct", ["--access", "direct", "--io", "direct"]), ("auto", [])]:
                figures = peers.pelton("bench", path, "--format", kind, *FLAGS, *as_stored(kind), *flags, "--memory", MEMORY, "--cold")
                rates.setdefault(f"Pelton {name}", []).append(figures["examples_per_s"])
                more = {key: figures[key] for key in COLUMNS if key in figures and key != "bytes_per_s"}
                results.add(part="cold", case=case, system=f"Pelton {name}", round=number, bytes_per_s=figures["read_bytes"] / figures["wall_s"], **more)
        medians = {system: peers.median(values) for system, values in rates.items()}
        best = max(value for system, value in medians.items() if "fio" in system)
        for system, value in medians.items():
            results.note(f"cold, {case}: {system}: median {value:.0f} records a second, {value / best:.2f} of the best fio")


def main():
    parts = sys.argv[1:] or ["warm", "cold"]
    results = peers.Results("copy_loop", COLUMNS)
    for part in parts:
        {"warm": warm, "cold": cold}[part](results)


main()
