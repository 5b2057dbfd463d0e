"""Records of TFRecord files for sides that have no reader of their own: where they lie, and what they say by protocol
buffers."""

import pathlib
import struct

import numpy as np


def frames(work):
    """Shard, offset and length of the bytes of each record."""
    for number, path in enumerate(work.named("*.tfrecord")):
        data, at = pathlib.Path(path).read_bytes(), 0
        while at < len(data):
            size = struct.unpack_from("<Q", data, at)[0]
            yield number, at + 12, size
            at += size + 16


def payloads(work):
    """The bytes of each record."""
    files = [pathlib.Path(path).read_bytes() for path in work.named("*.tfrecord")]
    return (files[shard][at : at + size] for shard, at, size in frames(work))


def parse(records):
    """Arrays of the features x, id and label."""
    from tfrecord import example_pb2

    features = [example_pb2.Example.FromString(record).features.feature for record in records]
    x = np.array([feature["x"].float_list.value for feature in features], np.float32)
    numbers = np.array([[feature[name].int64_list.value[0] for name in ("id", "label")] for feature in features])
    return x, numbers[:, 0].copy(), numbers[:, 1].copy()
