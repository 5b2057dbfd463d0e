"""tf.data with two threads: files interleaved where there are several, a shuffle buffer, batches, then decoding of whole
batches. It cannot shuffle globally unless the buffer holds everything."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf
import work as works

HELD = 16384
SHARDS = 16


def ready(work, data):
    options = tf.data.Options()
    options.threading.private_threadpool_size = work.threads
    options.deterministic = False
    return data.prefetch(4).with_options(options)


def records(work):
    data = tf.data.FixedLengthRecordDataset(str(work.records), work.length, buffer_size=1 << 20)
    data = data.shuffle(HELD, seed=work.seed).batch(work.batch)
    work.randomness = works.queue(work.count, HELD)
    for batch in ready(work, data.map(lambda rows: tf.io.decode_raw(rows, tf.uint8), work.threads)):
        yield len(batch), [batch], None


def feature(value):
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    if isinstance(value, int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
    return tf.train.Feature(float_list=tf.train.FloatList(value=value))


def write(work, folder, examples):
    """Examples in shards, each a stretch of the source."""
    folder.mkdir(exist_ok=True)
    each = -(-work.count // SHARDS)
    for at, example in enumerate(examples):
        if at % each == 0:
            writer = tf.io.TFRecordWriter(str(folder / f"shard-{at // each:03}.tfrecord"))
        features = {name: feature(value) for name, value in example.items()}
        writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
        if (at + 1) % each == 0 or at + 1 == work.count:
            writer.close()


def shuffled(work, paths, held):
    paths = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths), seed=work.seed)
    data = paths.interleave(tf.data.TFRecordDataset, cycle_length=SHARDS, block_length=16, num_parallel_calls=work.threads, deterministic=False)
    work.randomness = works.chunks(work.count, work.count // SHARDS, held)
    return data.shuffle(held, seed=work.seed)


def prepare_tfrecord(work):
    """The source itself."""
    numbers = np.random.default_rng(work.seed)
    examples = (
        {"id": at, "label": at * works.CLASSES // work.count, "x": numbers.random(16, np.float32).tolist()}
        for at in range(work.count)
    )
    write(work, work.root, examples)


def tfrecord(work):
    spec = {name: tf.io.FixedLenFeature([], tf.int64) for name in ["id", "label"]}
    spec["x"] = tf.io.FixedLenFeature([16], tf.float32)
    data = shuffled(work, work.named("*.tfrecord"), HELD).batch(work.batch)
    data = data.map(lambda rows: tf.io.parse_example(rows, spec), work.threads)
    for batch in ready(work, data):
        yield len(batch["x"]), [batch["x"], batch["id"]], batch["label"]


def prepare_tar(work):
    write(work, work.folder("tfdata"), ({"data": data, "label": label} for data, label in works.tar_samples(work)))


prepare_photos = prepare_tar
SAMPLE = {"data": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def tar(work):
    data = shuffled(work, work.named("tfdata/*.tfrecord"), 1000).batch(work.batch)
    data = data.map(lambda rows: tf.io.parse_example(rows, SAMPLE), work.threads)
    for batch in ready(work, data):
        payloads = batch["data"].numpy().tolist()
        yield len(payloads), payloads, batch["label"]


def photos(work):
    def decode(row):
        sample = tf.io.parse_single_example(row, SAMPLE)
        shape = tf.io.extract_jpeg_shape(sample["data"])
        everything = tf.zeros([1, 0, 4])
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            shape, everything, area_range=(0.08, 1.0), aspect_ratio_range=(3 / 4, 4 / 3), use_image_if_no_bounding_boxes=True
        )
        window = tf.concat([begin[:2], size[:2]], 0)
        image = tf.io.decode_and_crop_jpeg(sample["data"], window, channels=3)
        image = tf.image.random_flip_left_right(tf.image.resize(image, [works.SIDE, works.SIDE]))
        return tf.cast(image, tf.uint8), sample["label"]

    data = shuffled(work, work.named("tfdata/*.tfrecord"), 1000).map(decode, work.threads).batch(work.batch)
    for images, labels in ready(work, data):
        yield len(labels), [images], labels


def text(work):
    """Ends of buckets every ten words, as its documentation shows; all lines in the buffer, which is a global shuffle."""
    _, numbers = works.lines(work)
    table = tf.lookup.KeyValueTensorInitializer(list(numbers), list(numbers.values()), value_dtype=tf.int32)
    table = tf.lookup.StaticHashTable(table, 0)
    data = tf.data.TextLineDataset(str(work.root / "lines.txt")).shuffle(work.count, seed=work.seed)
    data = data.map(lambda line: table.lookup(tf.strings.split(line)), work.threads)
    data = data.map(lambda tokens: (tokens, tf.size(tokens)))
    ends = list(range(10, 61, 10))
    data = data.bucket_by_sequence_length(lambda tokens, used: used, ends, [work.batch] * (len(ends) + 1))
    for tokens, used in ready(work, data):
        yield len(tokens), [tokens, used], None
