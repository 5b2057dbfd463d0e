"""Pelton: the source as it lies, in a full order. pelton-torch hands out tensors."""

import numpy  # counted as an import, as it is everywhere
import pelton


def epoch(work, paths, change=lambda pipeline: pipeline, field="data", **how):
    pipeline = change(pelton.load(paths, cache_dir=work.root / "pelton-cache", **how).shuffle(seed=work.seed))
    pipeline = pipeline.batch(work.batch).threads(work.threads)
    pipeline = pipeline.torch() if work.option == "torch" else pipeline
    work.randomness = pipeline.randomness["rl_exact"]
    for batch in pipeline:
        data = batch[field]
        arrays = [data.values, data.offsets] if isinstance(data, pelton.Ragged) else [data]
        arrays += [batch[name] for name in (f"{field}_lengths", "id") if name in batch]
        yield len(batch.ids), arrays, batch.get("label")
    work.notes["note"] = pipeline.verdict()


def records(work):
    return epoch(work, work.records, format=f"raw:u8[{work.length}]")


def prepare_tar(work):
    """The index next to each file, which the first look at it writes."""
    assert pelton.load(work.shards, cache_dir=work.root / "pelton-cache").records == work.count


prepare_photos = prepare_tar


def tar(work):
    return epoch(work, work.shards, lambda pipeline: pipeline.decode("member:bin"), "bin")


def photos(work):
    def change(pipeline):
        return pipeline.decode("jpg").random_resized_crop(224).flip()

    return epoch(work, work.shards, change, "image")


def prepare_tfrecord(work):
    assert pelton.load(work.named("*.tfrecord"), format="tfrecord", cache_dir=work.root / "pelton-cache").records == work.count


def tfrecord(work):
    return epoch(work, work.named("*.tfrecord"), field="x", format="tfrecord")


def prepare_text(work):
    """The index, and the vocabulary."""
    len(pelton.load(work.root / "lines.txt", cache_dir=work.root / "pelton-cache").decode("words").batch(work.batch))


def text(work):
    policy = work.option or "auto"
    return epoch(work, work.root / "lines.txt", lambda pipeline: pipeline.decode("words").buckets(policy), "tokens")


def cloud(work):
    paths = [f"{work.url}/{name.rpartition('/')[2]}" for name in work.shards]
    return epoch(work, paths, lambda pipeline: pipeline.decode("member:bin"), "bin")
