"""NVIDIA DALI on the processor with two threads: its readers of tar files and TFRecords with a shuffle buffer."""

import numpy as np
import nvidia.dali as dali
import tf_examples
import work as works
from nvidia.dali import fn, tfrecord as features, types

HELD = 1000


def epoch(work, reader, make, **how):
    """Batches of what `make` makes of the outputs of a reader, until each record came once."""

    @dali.pipeline_def(batch_size=work.batch, num_threads=work.threads, device_id=None, seed=work.seed, prefetch_queue_depth=2)
    def graph():
        outputs = reader(random_shuffle=True, initial_fill=HELD, read_ahead=True, name="reader", dont_use_mmap=False, **how)
        return make(outputs)

    pipeline = graph()
    pipeline.build()
    work.randomness = works.queue(work.count, HELD)
    left = work.count
    while left > 0:
        count = min(left, work.batch)
        yield count, pipeline.run()
        left -= count


def tar_reader(work, extension):
    return dict(reader=fn.readers.webdataset, paths=work.shards, ext=[extension, "cls"], missing_component_behavior="error")


def class_of(labels, count):
    return [int(bytes(np.asarray(labels[at]))) for at in range(count)]


def tar(work):
    for count, (payloads, labels) in epoch(work, make=tuple, **tar_reader(work, "bin")):
        yield count, [payloads.at(at) for at in range(count)], class_of(labels, count)


def photos(work):
    def make(outputs):
        images = fn.decoders.image_random_crop(outputs[0], random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3])
        images = fn.resize(images, size=[works.SIDE, works.SIDE])
        return fn.flip(images, horizontal=fn.random.coin_flip()), outputs[1]

    for count, (images, labels) in epoch(work, make=make, **tar_reader(work, "jpg")):
        yield count, [images.as_array()[:count]], class_of(labels, count)


def prepare_tfrecord(work):
    """Offset and size of each record, as `tfrecord2idx` writes them."""
    work.folder("dali").mkdir(exist_ok=True)
    shards = [open(f"{work.folder('dali')}/{number:03}.idx", "w") for number in range(len(work.named("*.tfrecord")))]
    for number, at, size in tf_examples.frames(work):
        shards[number].write(f"{at - 12} {size + 16}\n")


def tfrecord(work):
    wanted = {name: features.FixedLenFeature([], features.int64, 0) for name in ["id", "label"]}
    wanted["x"] = features.FixedLenFeature([16], features.float32, 0.0)
    how = dict(path=work.named("*.tfrecord"), index_path=work.named("dali/*.idx"), features=wanted)
    for count, (x, ids, labels) in epoch(work, reader=fn.readers.tfrecord, make=lambda out: (out["x"], out["id"], out["label"]), **how):
        yield count, [x.as_array()[:count], ids.as_array()[:count]], labels.as_array()[:count]
