"""Photos to batches: decode, random-resized-crop 224, flip, batches of 64, on two threads or two workers, all
in a full random order from warm files. Pelton reads one tar file, the others the same bytes as files.
Needs a Python with the packages of `PACKAGES` and FFmpeg's libraries; makes one in the work folder, or takes
PEERS_PYTHON.

    python3 bench/peers/image_pipeline.py [SAMPLES [ROUNDS [SYSTEM…]]]
"""

import os
import pathlib
import resource
import sys

import peers
import samples

PACKAGES = ["torch", "torchvision", "spdl-core", "spdl-io", "numpy", "Pillow"]
SYSTEMS = ["Pelton", "torchvision", "torchvision PIL", "SPDL"]
THREADS = 2
COLUMNS = "system,round,examples,wall_s,examples_per_s,cpu_s,examples_per_cpu_s,peak_rss_bytes,private_bytes,first_batch_s,rl_exact".split(",")
PIPELINE = "--decode jpg --augment rrc:224,flip --batch 64 --order full --memory 256MiB".split()


def python():
    """A Python that has the other systems."""
    if "PEERS_PYTHON" in os.environ:
        return os.environ["PEERS_PYTHON"]
    folder = peers.WORK / "venv"
    if not (folder / "done").exists():
        peers.run([sys.executable, "-m", "venv", folder])
        peers.run([folder / "bin/pip", "install", "-q", *PACKAGES])
        (folder / "done").touch()
    return folder / "bin/python"


def cpu_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def pelton(data):
    before = cpu_s()
    figures = peers.pelton("bench", data, *PIPELINE, "--threads", THREADS)
    # The whole process, with its start; of the others only the epoch is counted.
    return {**figures, "cpu_s": cpu_s() - before, "private_bytes": figures["peak_rss_bytes"]}


def main():
    count, rounds = [int(text) for text in (sys.argv[1:3] + ["20000", "3"][len(sys.argv[1:3]) :])]
    systems = sys.argv[3:] or SYSTEMS
    tar, listed = samples.clothing_tar(count), samples.clothing_list(count)
    versions = peers.run([python(), "-m", "pip", "list", "--format=freeze"]).split()
    versions = ", ".join(line for line in versions if line.split("==")[0].lower() in [name.lower() for name in PACKAGES])
    results = peers.Results("image_pipeline", COLUMNS, versions)
    for path in [tar, *(line.split("\t")[0] for line in listed.read_text().splitlines())]:
        peers.warm(path)
    side = pathlib.Path(__file__).parent / "image_sides.py"
    rates = {system: [] for system in systems}
    for number in range(rounds):
        for system in systems:
            if system == "Pelton":
                figures = pelton(tar)
            else:
                figures = peers.json.loads(peers.run([python(), side, system, listed, THREADS]))
            each = figures["examples"] / figures["cpu_s"]
            rates[system].append((each, figures["examples"] / figures["wall_s"]))
            results.add(
                system=system, round=number, examples_per_cpu_s=each,
                **{key: figures[key] for key in COLUMNS if key in figures and key != "examples_per_s"},
                examples_per_s=figures["examples"] / figures["wall_s"],
            )
    for system, pairs in rates.items():
        cpu, wall = (peers.median(column) for column in zip(*pairs))
        ours = [peers.median(column) for column in zip(*rates["Pelton"])] if "Pelton" in rates else [cpu, wall]
        results.note(
            f"median of {system}: {cpu:.0f} examples a processor second, {wall:.0f} a second; "
            f"Pelton {ours[0] / cpu:.2f}x and {ours[1] / wall:.2f}x of it"
        )


main()
