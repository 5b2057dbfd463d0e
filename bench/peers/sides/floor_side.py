"""Floors, which are no feeds: what single steps take. floor-numpy and floor-tmpfs index a memory map in a random order, on
the disk and in memory, which reads and makes batches; floor-pread and floor-map copy the same ranges in C, two threads,
by a system call for each and from a map; floor-wrapper hands finished batches from two workers of PyTorch to the loop;
floor-decode takes photos from memory, in one thread."""

import dataclasses
import pathlib
import resource
import shutil
import subprocess

import numpy as np


def batches(work):
    order = np.random.default_rng(work.seed).permutation(work.count)
    return np.array_split(order, range(work.batch, work.count, work.batch))


def records(work):
    if work.option in ("pread", "map"):
        return in_c(work)
    if work.option == "wrapper":
        return handed_over(work)
    path = work.records
    if work.option == "tmpfs":
        path = pathlib.Path("/dev/shm/pelton-bench-records.bin")
        shutil.copyfile(work.records, path)
    rows = np.memmap(path, np.uint8, "r", shape=(work.count, work.length))
    if work.option == "tmpfs":
        path.unlink()
    return ((len(ids), [rows[ids]], None) for ids in batches(work))


def in_c(work):
    """bench/peers/copy_loop.c, whose own seconds stand for the epoch."""
    program, ranges = work.root / "copy_loop", work.root / "ranges"
    subprocess.run(["gcc", "-O3", "-pthread", "-o", program, pathlib.Path(__file__).parents[1] / "copy_loop.c"], check=True)
    order = np.concatenate(batches(work))
    np.stack([order * work.length, np.full(work.count, work.length)], 1).astype(np.uint64).tofile(ranges)
    command = [program, work.option, work.records, ranges, str(work.batch), str(work.threads), "1"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = float(subprocess.run(command, check=True, capture_output=True).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    work.notes.update(examples_per_s=work.count / seconds, cpu_us_per_example=1e6 * cpu / work.count)
    yield work.count, [], None


def handed_over(work):
    import torch
    from torch_side import loader

    batch = torch.zeros(work.batch, work.length, dtype=torch.uint8)
    for batch in loader(dataclasses.replace(work, option="2"), lambda ids: batch.clone()[: len(ids)]):
        yield len(batch), [batch.numpy()], None


def photos(work):
    import torch
    from photo import ByTorchvision
    from tar_samples import TarSamples

    torch.set_num_threads(1)
    samples, decode = TarSamples(work), ByTorchvision()
    for ids in batches(work):
        flat, ends, labels = samples.read(ids)
        images = [decode(part) for part in torch.from_numpy(flat).tensor_split(torch.from_numpy(ends[:-1]))]
        yield len(ids), [torch.stack(images)], labels
