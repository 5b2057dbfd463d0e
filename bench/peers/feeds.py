"""Feeds next to each other: the same bytes, decoding, batch size and two threads or workers for everybody, from Python.

    python3 bench/peers/feeds.py [--workloads records,tiny] [--sides pelton,torch-2] [--rounds 3] [--scale 1] [--seconds 3]

Installs the others from PyPI into environments of their own (10 GB) and Pelton from this tree, makes the data (about
17 GB at scale 1) and the copies that some need, then runs every side on every workload in a process of its own
(sides/harness.py), in turns. Rows go to bench/results/peers.csv; `feeds_table.py` makes the table and the chart of them.
Of a side that cannot be installed, or fails, the row says why.

`--setup` stops when all is there; `--check` runs small data and looks whether every record came once, and shuffled.
Rates are from the first batch to the end of the epoch, or `--seconds` later; processor time is that of all
processes over the same stretch; memory is the largest sum over all processes (PSS), sampled, with and without mapped
files; the first batch counts from the start of the process, and from the end of its imports. Cold workloads begin with
the files' pages dropped. `classes` is how many classes a batch has, of a source that is sorted by class.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import feed_sources
import peers

PACKAGES = {
    "pelton": ["numpy", "maturin"],
    "torch": "torch torchvision litdata webdataset spdl-core spdl-io datasets aiohttp fsspec pillow tfrecord".split(),
    "streaming": ["mosaicml-streaming"],
    "grain": ["grain", "array_record", "pillow", "tfrecord"],
    "tf": ["tensorflow-cpu"],
    "dali": ["nvidia-dali-cuda120", "numpy"],
}
# Streaming and `datasets` need different versions; it finds PyTorch in the environment it is based on.
BASES = {"streaming": "torch"}
ENVIRONMENTS = {"pelton": "pelton", "streaming": "streaming", "grain": "grain", "tfdata": "tf", "dali": "dali"}  # of the others torch
PELTON_IN = ["pelton", "torch"]
SIDES_FOLDER = pathlib.Path(__file__).resolve().parent / "sides"
THREADS = 2
LATENCY_MS = 20


@dataclasses.dataclass
class Workload:
    kind: str
    count: int
    length: int
    batch: int
    sides: str
    most: dict = dataclasses.field(default_factory=dict)  # examples of a side whose copy would take minutes to make
    cold: bool = False


RECORDS = "pelton pelton-torch torch-2 torch-0 grain litdata streaming webdataset spdl tfdata hf"
FLOORS = " floor-numpy floor-tmpfs floor-pread floor-map floor-wrapper"
FEW = {"litdata": 200_000, "streaming": 200_000, "webdataset": 200_000, "hf": 200_000}
WORKLOADS = {
    "records": Workload("records", 1_000_000, 3072, 256, RECORDS + FLOORS, FEW),
    "tiny": Workload("tiny", 10_000_000, 17, 256, RECORDS + FLOORS, FEW),
    "tar": Workload("tar", 8_000, 110_000, 64, "pelton pelton-torch torch-2 torch-0 grain litdata streaming webdataset spdl tfdata hf dali"),
    "photos": Workload("photos", 8_000, 0, 64, "pelton pelton-torch torch-2 grain litdata streaming webdataset spdl tfdata hf dali floor-decode"),
    "tfrecord": Workload("tfrecord", 1_000_000, 100, 256, "tfdata pelton torch-2 grain dali"),  # tfdata first: it writes the source
    "text": Workload("text", 400_000, 0, 32, "pelton pelton-none torch-2 tfdata"),
    "cloud": Workload("cloud", 2_000, 110_000, 64, "pelton torch-2 webdataset streaming litdata hf"),
    "records-cold": Workload("records", 1_000_000, 3072, 256, "pelton torch-2 grain litdata streaming spdl hf", FEW, cold=True),
    "tar-cold": Workload("tar", 8_000, 110_000, 64, "pelton torch-2 grain litdata streaming webdataset spdl", cold=True),
}
COLUMNS = (
    "workload,side,round,examples,whole,examples_per_s,cpu_us_per_example,first_batch_s,first_after_imports_s,import_s,wall_s,"
    "peak_pss_bytes,peak_own_bytes,convert_s,converted_bytes,rl_exact,classes,padded,note"
).split(",")


def environment(name):
    """The Python of an environment, made where it is missing."""
    folder = peers.WORK / "venvs" / name
    python, done = folder / "bin/python", folder / "installed"
    wanted = " ".join(PACKAGES[name])
    if not done.exists() or done.read_text() != wanted:
        peers.run([sys.executable, "-m", "venv", folder])
        if name in BASES:
            environment(BASES[name])
            packages = next((folder / "lib").glob("python*/site-packages"))
            base = packages.relative_to(folder)
            (packages / "base.pth").write_text(f"{peers.WORK / 'venvs' / BASES[name] / base}\n")
        peers.run([python, "-m", "pip", "install", "-q", *PACKAGES[name]])
        done.write_text(wanted)
    return python


def environment_of(side):
    return "torch" if side.endswith("-torch") else ENVIRONMENTS.get(side.partition("-")[0], "torch")


def versions(python):
    """What was asked for, as it was installed."""
    names = {name.replace("_", "-") for packages in PACKAGES.values() for name in packages} - {"maturin"}
    lines = peers.run([python, "-m", "pip", "list", "--format=freeze"]).split()
    return " ".join(line for line in lines if line.split("==")[0].lower().replace("_", "-") in names)


def install_pelton(pythons):
    """A wheel of this tree, built once, in every environment that uses it."""
    wheels = peers.WORK / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    peers.run([pythons["pelton"].parent / "maturin", "build", "--release", "-q", "-o", wheels], cwd=peers.REPOSITORY)
    for name in PELTON_IN:
        if name in pythons:
            peers.run([pythons[name], "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", *wheels.glob("*.whl")])


class Memory(threading.Thread):
    """Samples what all processes of a session take together, at most a thirtieth of the time."""

    def __init__(self, session):
        super().__init__(daemon=True)
        self.session, self.pss, self.own, self.ended = session, 0, 0, threading.Event()
        self.start()

    def run(self):
        while not self.ended.is_set():
            began = time.monotonic()
            pss = own = 0
            for process in processes(self.session):
                try:
                    rollup = (process / "smaps_rollup").read_text()
                except OSError:
                    continue
                sizes = {key: int(value.split()[0]) << 10 for key, _, value in (line.partition(":") for line in rollup.splitlines()[1:])}
                pss += sizes.get("Pss", 0)
                own += sizes.get("Pss_Anon", 0) + sizes.get("Pss_Shmem", 0)
            self.pss, self.own = max(self.pss, pss), max(self.own, own)
            self.ended.wait(max(0.03, 30 * (time.monotonic() - began)))


def processes(session):
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if int((path / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                yield path
        except OSError:
            continue


def harness(python, act, side, task, seconds=0.0, check=False, limit=900):
    """Figures of a side, or a note of why there are none."""
    name, _, option = side.partition("-")
    spec = {"side": name, "act": act, "seconds": seconds, "check": check, "option": option, **task, "began": time.monotonic()}
    out, log = peers.WORK / "side.json", peers.WORK / "side.log"
    with open(out, "wb") as printed, open(log, "wb") as said:
        command = [str(python), str(SIDES_FOLDER / "harness.py"), json.dumps(spec)]
        process = subprocess.Popen(command, stdout=printed, stderr=said, start_new_session=True, cwd=peers.WORK)
    memory = Memory(process.pid)
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        pass
    memory.ended.set()
    for path in processes(process.pid):  # also workers that outlive it
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(path.name), signal.SIGKILL)
    process.wait()
    printed = out.read_text()
    if process.returncode or not printed:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        return {"note": f"failed: {lines[-1][:200]}" if lines else f"ended with {process.returncode} in {limit} s"}
    figures = json.loads(printed.splitlines()[-1])
    return {**figures, "peak_pss_bytes": memory.pss, "peak_own_bytes": memory.own}


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


class Runs:
    def __init__(self, arguments):
        self.arguments = arguments
        self.servers = {}

    def task(self, name, side):
        """The source of a side, and what it is asked to do."""
        workload = WORKLOADS[name]
        scale = 0.02 if self.arguments.check else self.arguments.scale
        most = workload.most.get(side.partition("-")[0], workload.count)
        count = max(workload.batch * 20, int(min(workload.count, most) * scale))
        root = feed_sources.source(workload.kind, count, workload.length)
        return dict(kind=workload.kind, root=str(root), count=count, length=workload.length, batch=workload.batch, threads=THREADS)

    def prepared(self, python, side, task):
        """Seconds and bytes of the copy or the index that a side needs, or a note of why it is not there."""
        folder = pathlib.Path(task["root"]) / side.partition("-")[0]
        done = folder.with_suffix(".json")
        if not done.exists():
            figures = harness(python, "prepare", side, task)
            if "note" in figures:
                return figures
            size = sum(path.stat().st_size for path in files(folder))
            row = {"convert_s": figures["seconds"], "converted_bytes": size} if "seconds" in figures else {}
            done.write_text(json.dumps(row))
        return json.loads(done.read_text())

    def run(self, name, side, python):
        workload, task = WORKLOADS[name], self.task(name, side)
        prepared = self.prepared(python, side, task)
        if "note" in prepared or self.arguments.setup:
            return prepared
        root = pathlib.Path(task["root"])
        shutil.rmtree(root / "cache", ignore_errors=True)
        if workload.kind == "cloud":
            task["url"] = self.serve(root)
        for path in files(root / side.partition("-")[0]) or [path for path in root.iterdir() if path.is_file()]:
            peers.drop_cache(path) if workload.cold else peers.warm(path)
        return {**prepared, **harness(python, "run", side, task, self.arguments.seconds, self.arguments.check, limit=120)}

    def serve(self, root):
        """The address under which a folder is served with a latency."""
        if root not in self.servers:
            command = [sys.executable, str(SIDES_FOLDER / "slow_http.py"), str(root), str(LATENCY_MS)]
            self.servers[root] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self.servers[root].url = self.servers[root].stdout.readline().strip()
        return self.servers[root].url

    def close(self):
        for server in self.servers.values():
            server.kill()


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--sides", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--setup", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--no-build", action="store_true", help="takes Pelton as it was installed last")
    parser.add_argument("--out", default="peers", help="name of the file of results")
    return parser.parse_args()


def main():
    arguments = parsed()
    chosen = arguments.sides.split(",") if arguments.sides else None
    names = arguments.workloads.split(",")
    sides = {name: [side for side in WORKLOADS[name].sides.split() if not chosen or side in chosen] for name in names}
    if arguments.check:
        sides = {name: [side for side in of if not side.startswith("floor")] for name, of in sides.items()}
    needed = {environment_of(side) for name in names for side in sides[name]}
    needed |= set() if arguments.no_build else {"pelton"}
    pythons = {name: environment(name) for name in sorted(needed)}
    if not arguments.no_build:
        install_pelton(pythons)
    results = peers.Results(arguments.out, COLUMNS, "; ".join(f"{name}: {versions(python)}" for name, python in pythons.items()))
    runs = Runs(arguments)
    try:
        for number in range(1 if arguments.setup or arguments.check else arguments.rounds):
            for name in names:
                for side in sides[name]:
                    row = runs.run(name, side, pythons[environment_of(side)])
                    results.add(workload=name, side=side, round=number, **{key: row[key] for key in COLUMNS if key in row})
    finally:
        runs.close()


main()
