"""LitData: chunks that `optimize` writes, and its default shuffle: chunks, stretches of 256 samples of each, and the samples
of a stretch, in random order; two workers. From the network it reads an object store's protocol."""

import litdata
import litdata.streaming.downloader
import photo
import torch
import work as works
from webdataset_side import flat

STRETCH = 256


def optimize(work, pieces, function):
    size = sum(path.stat().st_size for path in work.root.iterdir() if path.is_file())
    chunk = min(64_000_000, size // 16)  # from the network it is slow with chunks that both workers need: few of many
    litdata.optimize(function, pieces, str(work.folder("litdata")), chunk_bytes=chunk, num_workers=1, verbose=False)


def prepare_records(work):
    optimize(work, [work], works.record_samples)


prepare_tiny = prepare_records


def prepare_tar(work):
    optimize(work, [work], works.tar_samples)


prepare_photos = prepare_cloud = prepare_tar


def epoch(work, make, **how):
    torch.set_num_threads(1)
    how = how or {"input_dir": str(work.folder("litdata"))}
    data = litdata.StreamingDataset(shuffle=True, drop_last=False, seed=work.seed, **how)
    chunk = min(work.count, -(-work.count // len(work.named("litdata/*.bin"))))
    work.randomness = works.nested(work.count, chunk, min(chunk, STRETCH), 1)
    return litdata.StreamingDataLoader(data, batch_size=work.batch, num_workers=work.threads, collate_fn=make)


def records(work):
    for batch in epoch(work, lambda samples: flat(samples)[0].view(-1, work.length)):
        yield len(batch), [batch], None


def tar(work, **how):
    def make(samples):
        return *flat([data for data, _ in samples]), torch.tensor([label for _, label in samples])

    for values, ends, labels in epoch(work, make, **how):
        yield len(labels), [values, ends], labels


def photos(work):
    decode = photo.ByTorchvision()

    def make(samples):
        return torch.stack([decode(data) for data, _ in samples]), torch.tensor([label for _, label in samples])

    for images, labels in epoch(work, make):
        yield len(labels), [images], labels


def cloud(work):
    litdata.streaming.downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"  # the server here has no TLS
    keys = {"endpoint_url": work.url, "aws_access_key_id": "none", "aws_secret_access_key": "none", "region_name": "none"}
    return tar(work, input_dir="s3://bucket/litdata", cache_dir=str(work.folder("cache")), storage_options=keys)
