"""LitData: chunks of 64 MB that `optimize` writes, in random order, and the samples of each in random order; two workers."""

import litdata
import photo
import torch
import work as works
from webdataset_side import flat


CHUNK = 64_000_000


def optimize(work, pieces, function):
    litdata.optimize(function, pieces, str(work.folder("litdata")), chunk_bytes=CHUNK, num_workers=1, verbose=False)


def prepare_records(work):
    optimize(work, [work], works.record_samples)


prepare_tiny = prepare_records


def prepare_tar(work):
    optimize(work, [work], works.tar_samples)


prepare_photos = prepare_cloud = prepare_tar


def epoch(work, make, folder=None):
    torch.set_num_threads(1)
    data = litdata.StreamingDataset(folder or str(work.folder("litdata")), shuffle=True, drop_last=False, seed=work.seed)
    chunk = -(-work.count // len(work.named("litdata/*.bin")))
    work.randomness = works.chunks_within(work.count, chunk)
    return litdata.StreamingDataLoader(data, batch_size=work.batch, num_workers=work.threads, collate_fn=make)


def records(work):
    for batch in epoch(work, lambda samples: flat(samples)[0].view(-1, work.length)):
        yield len(batch), [batch], None


def tar(work, folder=None):
    def make(samples):
        return *flat([data for data, _ in samples]), torch.tensor([label for _, label in samples])

    for values, ends, labels in epoch(work, make, folder):
        yield len(labels), [values, ends], labels


def photos(work):
    decode = photo.ByTorchvision()

    def make(samples):
        return torch.stack([decode(data) for data, _ in samples]), torch.tensor([label for _, label in samples])

    for images, labels in epoch(work, make):
        yield len(labels), [images], labels
