"""What the drivers of this folder share: running Pelton and others, and files of raw results.

Every driver is `python3 bench/peers/NAME.py`, needs nothing beyond Python's standard library unless it says so,
and writes its rows to bench/results/NAME.csv under a header that names machine, date and command. Data is made in
PELTON_BENCH_DIR (default: bench-data in the current folder; up to 20 GB) and may be deleted afterwards.
Pelton is taken from PELTON (default: target/release/pelton); build it first, with the examples:

    cargo build --release -p pelton-cli
    cargo build --release -p pelton-format -p pelton-plan --examples
"""

import datetime
import gzip
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import urllib.request

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
WORK = pathlib.Path(os.environ.get("PELTON_BENCH_DIR", "bench-data")).resolve()
PELTON = pathlib.Path(os.environ.get("PELTON", REPOSITORY / "target/release/pelton")).resolve()
EXAMPLES = PELTON.parent / "examples"
DATA = pathlib.Path(os.environ.get("PELTON_DATA", REPOSITORY / "../shared/data"))
CACHE = WORK / "cache"
TRAIN_C = "http://deb.debian.org/debian/pool/main/libl/liblinear/liblinear_2.3.0+dfsg.orig.tar.xz"

median = statistics.median


def run(command, **options):
    """Standard output of a command that must succeed."""
    command = [str(part) for part in command]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    return done.stdout


def pelton(*arguments):
    """The figures that a Pelton command prints with --json."""
    output = run([PELTON, *arguments, "--cache-dir", CACHE, "--json"], cwd=WORK)
    return json.loads(output)


def train(data, *arguments):
    """Figures of a training run in a fresh run folder."""
    folder = WORK / "runs/bench"
    shutil.rmtree(folder, ignore_errors=True)
    given = ["--loss", "hinge", "--intercept", "none", "--scale", "none"]
    pairs = [pair for pair in zip(given[::2], given[1::2]) if pair[0] not in arguments]
    return pelton("train", "linear", data, "--out", folder, *arguments, *sum(pairs, ()))


def demo_files(spec):
    """Training and test file of demo:NAME:ROWS, generated where they are missing."""
    pelton("inspect", spec)
    _, name, rows = spec.split(":")
    found = sorted(CACHE.glob(f"{name}-v*-{rows}-seed*.prow"))
    return (
        next(path for path in found if not path.stem.endswith("-test")),
        next(path for path in found if path.stem.endswith("-test")),
    )


def drop_cache(*paths):
    """Drops files from the page cache."""
    for path in paths:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(path):
    """Reads a file into the page cache."""
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 24):
            pass


def as_libsvm(source, name):
    """A data set as LIBSVM text under the work folder."""
    target = WORK / name
    if not target.exists():
        with open(target.with_suffix(".part"), "wb") as out:
            subprocess.run([EXAMPLES / "to_libsvm", source], stdout=out, check=True)
        target.with_suffix(".part").rename(target)
    return target


def unzipped(source, name):
    """A .gz file decompressed under the work folder."""
    target = WORK / name
    if not target.exists():
        with gzip.open(source) as packed, open(target, "wb") as out:
            shutil.copyfileobj(packed, out)
    return target


def liblinear(cap=None):
    """Builds LIBLINEAR's side from the release on PyPI, with its iteration cap raised where `cap` says so.
    The release has no reader in C; train.c comes from the source package of Debian."""
    folder = WORK / f"liblinear-{cap or 'stock'}"
    program = folder / "liblinear_side"
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d"]
    run(pip + [folder, "liblinear-official==2.50.0"])
    run(["tar", "xzf", *folder.glob("liblinear*.tar.gz"), "--strip-components=2", "-C", folder, "--wildcards", "*/cpp-source/*"])
    archive = folder / "train.tar.xz"
    with urllib.request.urlopen(TRAIN_C, timeout=60) as response:
        archive.write_bytes(response.read())
    run(["tar", "xf", archive, "--strip-components=1", "-C", folder, "--wildcards", "*/train.c"])
    if cap:
        source = folder / "linear.cpp"
        source.write_text(source.read_text().replace("dual_solver_max_iter = 300", f"dual_solver_max_iter = {cap}"))
    objects = []
    for source in sorted(folder.glob("blas/*.c")):
        objects.append(source.with_suffix(".o"))
        run(["gcc", "-O3", "-c", source, "-o", objects[-1]])
    sides = [REPOSITORY / "bench/peers/liblinear_side.cpp", folder / "linear.cpp", folder / "newton.cpp"]
    run(["g++", "-O3", "-w", "-fpermissive", "-I", folder, *sides, *objects, "-o", program])
    return program


def fio(path, *options, seconds=5):
    """Bytes a second of one fio job of direct reads (or writes) on a file."""
    command = ["fio", "--name=job", f"--filename={path}", "--direct=1", "--ioengine=io_uring", "--output-format=json"]
    command += ["--time_based", f"--runtime={seconds}", "--randrepeat=0", "--norandommap", *options]
    job = json.loads(run(command))["jobs"][0]
    return max(job["read"]["bw_bytes"], job["write"]["bw_bytes"])


def machine():
    """Processor, cores and memory, as /proc says them."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown processor")
    flags = next((line for line in lines if line.startswith("flags")), "")
    vectors = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "no AVX2"
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model} ({vectors}), {os.cpu_count()} cores, {gib:.0f} GiB"


class Results:
    """Raw rows of one driver, printed and kept."""

    def __init__(self, name, columns, note=""):
        self.path = REPOSITORY / "bench/results" / f"{name}.csv"
        self.columns = columns
        load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
        header = [
            f"python3 bench/peers/{pathlib.Path(sys.argv[0]).name} {' '.join(sys.argv[1:])}".strip(),
            f"{datetime.date.today()}; {machine()}, virtual NVMe-like disk (ext4); load {load}",
            f"commit {run(['git', 'rev-parse', '--short', 'HEAD'], cwd=REPOSITORY).strip()}",
        ]
        lines = header + ([note] if note else [])
        self.path.write_text("".join(f"# {line}\n" for line in lines) + ",".join(columns) + "\n")
        print(",".join(columns), flush=True)

    def add(self, **row):
        def show(value):
            return f"{value:.6g}" if isinstance(value, float) and abs(value) < 1e5 else str(value)

        line = ",".join(show(row.get(column, "")).replace(",", ";") for column in self.columns)
        self.write(line)

    def note(self, text):
        """A comment below the rows so far, such as their medians."""
        self.write(f"# {text}")

    def write(self, line):
        with open(self.path, "a") as file:
            file.write(line + "\n")
        print(line, flush=True)


CACHE.mkdir(parents=True, exist_ok=True)
