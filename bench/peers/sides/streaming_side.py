"""MosaicML Streaming: MDS shards of 64 MB, its default shuffle (py1e), which spreads samples over blocks of at least
262 144, and two workers."""

import os

import photo
import streaming
import torch
import work as works
from webdataset_side import flat

BLOCK = 1 << 18


def write(work, columns, samples):
    with streaming.MDSWriter(out=str(work.folder("streaming")), columns=columns, size_limit="64mb") as out:
        for sample in samples:
            out.write(dict(zip(columns, sample)))


def prepare_records(work):
    write(work, {"data": "bytes"}, ((record,) for record in works.record_samples(work)))


prepare_tiny = prepare_records


def prepare_tar(work):
    write(work, {"data": "bytes", "label": "int"}, works.tar_samples(work))


prepare_photos = prepare_cloud = prepare_tar


def epoch(work, make, remote=None):
    torch.set_num_threads(1)
    local = str(work.folder("cache" if remote else "streaming"))
    streaming.base.util.clean_stale_shared_memory()
    data = streaming.StreamingDataset(local=local, remote=remote, shuffle=True, shuffle_seed=work.seed, batch_size=work.batch)
    work.randomness = works.chunks(work.count, -(-work.count // len(work.named("streaming/*.mds"))), BLOCK)
    return torch.utils.data.DataLoader(data, work.batch, num_workers=work.threads, collate_fn=make)


def records(work):
    for batch in epoch(work, lambda samples: flat([sample["data"] for sample in samples])[0].view(-1, work.length)):
        yield len(batch), [batch], None


def tar(work, remote=None):
    def make(samples):
        return *flat([sample["data"] for sample in samples]), torch.tensor([sample["label"] for sample in samples])

    for values, ends, labels in epoch(work, make, remote):
        yield len(labels), [values, ends], labels


def photos(work):
    decode = photo.ByTorchvision()

    def make(samples):
        images = torch.stack([decode(sample["data"]) for sample in samples])
        return images, torch.tensor([sample["label"] for sample in samples])

    for images, labels in epoch(work, make):
        yield len(labels), [images], labels


def cloud(work):
    os.environ.update(S3_ENDPOINT_URL=work.url, AWS_ACCESS_KEY_ID="none", AWS_SECRET_ACCESS_KEY="none", AWS_DEFAULT_REGION="none")
    return tar(work, "s3://bucket/streaming")
