"""One side on one workload, in a process of its own: prints figures as JSON.

    PYTHON bench/peers/sides/harness.py '{"side": "torch", "began": …, "act": "run", "kind": "records", …}'

`began` is the monotonic clock before the process started. An epoch that takes longer than `seconds` from its first batch is broken off. Seconds
and processor time, which is that of all processes of the session, are counted from the first batch to the last.
The consumer looks at one byte of each page of each array, and at the classes of up to 64 batches.
"""

import importlib
import json
import os
import pathlib
import sys
import time

import work as works

TICKS = os.sysconf("SC_CLK_TCK")
LOOKS = 64


def cpu_s():
    """Seconds of all processors, of the living processes of this session and of those they have waited for."""
    total, session = 0, os.getsid(0)
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(fields[3]) == session:
            total += sum(map(int, fields[11:15]))
    return total / TICKS


def numpy_of(array):
    """Tensors of PyTorch and TensorFlow as what they share memory with."""
    return array.numpy() if hasattr(array, "numpy") else array


class Consumer:
    def __init__(self, task, numpy):
        self.task, self.numpy = task, numpy
        self.examples = self.batches = self.cells = self.used = 0
        self.classes, self.ids = [], []
        self.every = max(1, task.count // task.batch // LOOKS)

    def take(self, batch, check):
        count, arrays, labels = batch
        np = self.numpy
        for array in arrays:
            flat = array if isinstance(array, (bytes, memoryview)) else numpy_of(array).reshape(-1)
            np.frombuffer(flat, np.uint8)[::4096].max()
        if self.batches % self.every == 0 or check:
            self.look(count, arrays, labels, check)
        if self.task.kind == "text":
            self.cells += arrays[0].shape[0] * arrays[0].shape[1]
            self.used += int(numpy_of(arrays[1]).sum())
        self.examples += count
        self.batches += 1

    def look(self, count, arrays, labels, check):
        np = self.numpy
        records = self.task.kind in ("records", "tiny")
        if records and arrays:
            rows = numpy_of(arrays[0])
            assert rows.shape == (count, self.task.length) and rows.dtype == np.uint8, (rows.shape, rows.dtype)
            labels = np.ascontiguousarray(rows[:, 8:10]).view(np.uint16)
        if self.task.kind == "photos":
            assert list(arrays[0].shape) in ([count, 3, works.SIDE, works.SIDE], [count, works.SIDE, works.SIDE, 3]), arrays[0].shape
            assert "uint8" in str(arrays[0].dtype)
        if labels is not None:
            self.classes.append(len(set(np.asarray(numpy_of(labels)).reshape(-1).tolist())))
        if check and records and arrays:
            self.ids += np.ascontiguousarray(rows[:, :8]).view(np.uint64).reshape(-1).tolist()
        elif check and self.task.kind == "tfrecord":
            self.ids += numpy_of(arrays[1]).reshape(-1).tolist()
        elif check and self.task.kind in ("tar", "cloud"):
            if len(arrays) != count:  # one array of all, and where each ends, or begins and ends
                ends = [0, *numpy_of(arrays[1]).tolist()][-count - 1 :]
                arrays = [arrays[0][begin : begin + 8] for begin in ends[:-1]]
            self.ids += [int.from_bytes(bytes(numpy_of(array)[:8]), "little") for array in arrays]


def main():
    spec = json.loads(sys.argv[1])
    took = {key: spec.pop(key) for key in ["side", "began", "act", "seconds", "check"]}
    task = works.Work(**{**spec, "root": pathlib.Path(spec["root"])})
    entered = time.monotonic()
    if task.option in ("torch", "wrapper"):
        import torch
    side = importlib.import_module(f"{took['side']}_side")
    imported = time.monotonic()
    if took["act"] == "prepare":
        convert = getattr(side, f"prepare_{task.kind}", None)
        if convert:
            convert(task)
        print(json.dumps({"seconds": time.monotonic() - imported} if convert else {}))
        return
    feed = getattr(side, "records" if task.kind == "tiny" else task.kind)(task)
    import numpy

    consumer, first = Consumer(task, numpy), None
    for batch in feed:
        if first is None:
            first, before, head = time.monotonic(), cpu_s(), batch[0]
        consumer.take(batch, took["check"])
        if consumer.batches > 1 and time.monotonic() - first > took["seconds"] and not took["check"]:
            break
    ended, cpu = time.monotonic(), cpu_s() - before
    seconds, behind = max(ended - first, 1e-9), max(consumer.examples - head, 1)
    figures = dict(
        examples=consumer.examples, whole=consumer.examples == task.count, wall_s=ended - imported, rl_exact=task.randomness,
        examples_per_s=behind / seconds, cpu_us_per_example=1e6 * cpu / behind,
        import_s=imported - entered, first_after_imports_s=first - imported, first_batch_s=first - took["began"],
    )
    figures.update(task.notes)
    if consumer.classes:
        figures["classes"] = sum(consumer.classes) / len(consumer.classes)
    if consumer.cells:
        figures["padded"] = 1 - consumer.used / consumer.cells
    if took["check"]:
        assert consumer.examples == task.count, f"{consumer.examples} examples of {task.count}"
        assert not consumer.ids or sorted(consumer.ids) == list(range(task.count)), "not every example came once"
        assert not consumer.ids or task.option == "sequential" or consumer.ids[:500] != list(range(500)), "not shuffled"
        figures["checked"] = len(consumer.ids)
    print(json.dumps(figures), flush=True)
    os._exit(0)  # workers and threads that still prefetch are no part of it


if __name__ == "__main__":
    main()
