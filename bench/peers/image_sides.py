"""The other systems of image_pipeline.py: one epoch of decode, random-resized-crop 224, flip and batches of 64
as unsigned bytes. Prints the figures as JSON; processor time is that of the epoch, without the imports.

    PYTHON bench/peers/image_sides.py SYSTEM LIST THREADS
"""

import json
import math
import pathlib
import random
import resource
import sys
import time

BATCH = 64
SIDE = 224


def cpu_s():
    """Seconds of all processors, of this process and of those it has waited for."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def peak_rss(pid):
    """Peak resident bytes of a process, and those of them that it does not share with another now."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) << 10
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return peak, sum(int(line.split()[1]) for line in rollup if line.startswith("Private")) << 10


def samples(path):
    rows = [line.split("\t") for line in pathlib.Path(path).read_text().splitlines()]
    return [row[0] for row in rows], [int(row[1]) for row in rows]


def torch_loader(system, paths, labels, threads):
    import PIL.Image
    import torch
    import torchvision.io as io
    from torchvision.transforms import v2

    class Photos(torch.utils.data.Dataset):
        def __init__(self):
            self.augment = v2.Compose([v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()])
            self.as_bytes = v2.PILToTensor()

        def __len__(self):
            return len(paths)

        def __getitem__(self, at):
            if system == "torchvision PIL":
                with PIL.Image.open(paths[at]) as image:
                    return self.as_bytes(self.augment(image.convert("RGB"))), labels[at]
            image = io.decode_jpeg(io.read_file(paths[at]), mode=io.ImageReadMode.RGB)
            return self.augment(image), labels[at]

    loader = torch.utils.data.DataLoader(Photos(), batch_size=BATCH, shuffle=True, num_workers=threads)
    batches = iter(loader)
    return batches, lambda: [worker.pid for worker in batches._workers]


def crop(width, height):
    """The crop of torchvision's RandomResizedCrop: a share of 0.08..1 of the area, sides at 3/4..4/3."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return w, h, random.randint(0, width - w), random.randint(0, height - h)
    side = min(width, height)
    return side, side, (width - side) // 2, (height - side) // 2


def spdl_loader(paths, labels, threads):
    """Threads that each decode a photo by a filter graph of its own, and a stage that puts batches together."""
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    def decode(at):
        packets = spdl.io.demux_image(paths[at])
        w, h, x, y = crop(packets.width, packets.height)
        flip = ",hflip" if random.random() < 0.5 else ""
        graph = f"crop={w}:{h}:{x}:{y},scale={SIDE}:{SIDE}:flags=bilinear{flip}"
        graph = spdl.io.get_video_filter_desc(filter_desc=graph)
        return spdl.io.decode_packets(packets, filter_desc=graph), labels[at]

    def put_together(decoded):
        frames = spdl.io.convert_frames([frames for frames, _ in decoded])
        return spdl.io.to_numpy(frames), [label for _, label in decoded]

    order = list(range(len(paths)))
    random.shuffle(order)
    builder = PipelineBuilder().add_source(order).pipe(decode, concurrency=threads).aggregate(BATCH)
    pipeline = builder.pipe(put_together).add_sink(3).build(num_threads=threads)

    def batches():
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()

    return batches(), lambda: []


def main():
    system, listed, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    paths, labels = samples(listed)
    if system == "SPDL":
        import spdl.io.utils  # what is imported costs before the clock starts
        import spdl.pipeline
    else:
        import torch
        import torchvision.transforms.v2

        torch.set_num_threads(1)  # of this process; workers have one thread each anyway
    began, before = time.perf_counter(), cpu_s()
    batches, workers = spdl_loader(paths, labels, threads) if system == "SPDL" else torch_loader(system, paths, labels, threads)
    examples, peaks, first = 0, [], None
    last = math.ceil(len(paths) / BATCH)
    for number, (images, classes) in enumerate(batches, 1):
        first = first or time.perf_counter() - began
        assert tuple(images.shape[1:]) in [(3, SIDE, SIDE), (SIDE, SIDE, 3)] and "uint8" in str(images.dtype)
        assert len(images) == len(classes)
        examples += len(images)
        if number == last - threads - 1:  # all workers are still there
            peaks = [peak_rss(pid) for pid in workers()]
    wall = time.perf_counter() - began
    del batches
    peaks.append(peak_rss("self"))
    assert examples == len(paths)
    figures = dict(examples=examples, wall_s=wall, cpu_s=cpu_s() - before, first_batch_s=first)
    figures["peak_rss_bytes"] = sum(peak for peak, _ in peaks)
    figures["private_bytes"] = sum(private for _, private in peaks)
    print(json.dumps(figures))


main()
