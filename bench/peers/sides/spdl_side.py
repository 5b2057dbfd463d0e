"""SPDL: stages of a pipeline that run in two threads, from ids in a global order to batches. Photos are decoded, cropped
and scaled by a filter graph of FFmpeg for each."""

import random

import numpy as np
import photo
import spdl.io
import spdl.pipeline
import work as works
from tar_samples import TarSamples, prepare

prepare_tar = prepare_photos = prepare


def epoch(work, *stages):
    order = np.random.default_rng(work.seed).permutation(work.count)
    builder = spdl.pipeline.PipelineBuilder()
    builder.add_source(np.array_split(order, range(work.batch, work.count, work.batch)))
    for stage in stages:
        builder.pipe(stage, concurrency=work.threads)
    pipeline = builder.add_sink(4).build(num_threads=work.threads)
    with pipeline.auto_stop():
        yield from pipeline.get_iterator()


def records(work):
    rows = np.memmap(work.records, np.uint8, "r", shape=(work.count, work.length))
    for batch in epoch(work, lambda ids: rows.take(ids, axis=0)):
        yield len(batch), [batch], None


def tar(work):
    for flat, ends, labels in epoch(work, TarSamples(work).read):
        yield len(labels), [flat, ends], labels


def photos(work):
    samples = TarSamples(work)

    def decode(data):
        packets = spdl.io.demux_image(data)
        x, y, w, h = photo.box(packets.width, packets.height)
        flip = ",hflip" if random.random() < 0.5 else ""
        graph = f"crop={w}:{h}:{x}:{y},scale={works.SIDE}:{works.SIDE}:flags=bilinear{flip}"
        return spdl.io.decode_packets(packets, filter_desc=spdl.io.get_video_filter_desc(filter_desc=graph))

    def make(ids):
        flat, ends, labels = samples.read(ids)
        frames = [decode(part.tobytes()) for part in np.split(flat, ends[:-1])]
        return spdl.io.to_numpy(spdl.io.convert_frames(frames)), labels

    for images, labels in epoch(work, make):
        yield len(labels), [images], labels
