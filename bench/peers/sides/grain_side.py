"""Grain over ArrayRecord. Ids are shuffled and put into batches, and a batch is read at once (`__getitems__`), which is
faster than Grain's way of a record at a time; grain-records is that way. Two worker processes; grain-0 has threads alone."""

import grain
import numpy as np
import photo
import tf_examples
import work as works
from array_record.python import array_record_data_source, array_record_module


def write(work, samples, name="data.arrayrecord", **more):
    folder = work.folder("grain")
    folder.mkdir(exist_ok=True)
    writer = array_record_module.ArrayRecordWriter(str(folder / name), "group_size:1,uncompressed")
    for sample in samples:
        writer.write(sample)
    writer.close()


def prepare_records(work):
    write(work, works.record_samples(work))


prepare_tiny = prepare_records


def with_class(work):
    return (label.to_bytes(4, "little") + payload for payload, label in works.tar_samples(work))


def prepare_tar(work):
    write(work, with_class(work))


prepare_photos = prepare_tar


def epoch(work, make):
    """Batches of what `make` makes of the bytes of samples."""
    source = array_record_data_source.ArrayRecordDataSource(str(work.folder("grain") / "data.arrayrecord"))
    if work.option == "records":
        feed = grain.MapDataset.source(source).seed(work.seed).shuffle().batch(work.batch, batch_fn=make)
    else:
        ids = grain.MapDataset.range(len(source)).seed(work.seed).shuffle().batch(work.batch)
        feed = ids.map(lambda batch: make(source.__getitems__(batch.tolist())))
    workers = 0 if work.option == "0" else work.threads
    feed = feed.to_iter_dataset(grain.ReadOptions(num_threads=1 if workers else work.threads, prefetch_buffer_size=8))
    return feed.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers)) if workers else feed


def records(work):
    def make(samples):
        return np.frombuffer(b"".join(samples), np.uint8).reshape(-1, work.length)

    for batch in epoch(work, make):
        yield len(batch), [batch], None


def labels_of(samples):
    return np.array([int.from_bytes(sample[:4], "little") for sample in samples])


def tar(work):
    def make(samples):
        ends = np.cumsum([len(sample) - 4 for sample in samples])
        return np.frombuffer(b"".join([memoryview(sample)[4:] for sample in samples]), np.uint8), ends, labels_of(samples)

    for flat, ends, labels in epoch(work, make):
        yield len(labels), [flat, ends], labels


def photos(work):
    def make(samples):
        return np.stack([photo.by_pillow(sample[4:]) for sample in samples]), labels_of(samples)

    for images, labels in epoch(work, make):
        yield len(labels), [images], labels


def prepare_tfrecord(work):
    write(work, tf_examples.payloads(work))


def tfrecord(work):
    for x, ids, labels in epoch(work, tf_examples.parse):
        yield len(x), [x, ids], labels
