"""PyTorch's DataLoader over a map-style dataset that makes whole batches (`__getitems__`): torch-2 has two workers,
torch-0 none. Photos are decoded by torchvision."""

import os

import numpy as np
import photo
import tf_examples
import torch
import torch.utils.data
import work as works
from tar_samples import TarSamples, prepare

prepare_tar = prepare_photos = prepare_cloud = prepare


class Batches(torch.utils.data.Dataset):
    """Of `count` examples `take(ids)` makes a batch."""

    def __init__(self, count, take):
        self.count, self.take = count, take

    def __len__(self):
        return self.count

    def __getitems__(self, ids):
        return self.take(ids)


def loader(work, take, sampler=None):
    workers = int(work.option or work.threads)
    torch.set_num_threads(1 if workers else work.threads)
    torch.manual_seed(work.seed)
    order = {"batch_sampler": sampler} if sampler else {"batch_size": work.batch, "shuffle": True}
    return torch.utils.data.DataLoader(Batches(work.count, take), num_workers=workers, collate_fn=lambda batch: batch, **order)


def records(work):
    rows = np.memmap(work.records, np.uint8, "r", shape=(work.count, work.length))
    for batch in loader(work, lambda ids: torch.from_numpy(rows[ids])):
        yield len(batch), [batch], None


def tar(work):
    samples = TarSamples(work)

    def take(ids):
        return [torch.from_numpy(array) for array in samples.read(ids)]

    for flat, ends, labels in loader(work, take):
        yield len(labels), [flat, ends], labels


def photos(work):
    samples, decode = TarSamples(work), photo.ByTorchvision()

    def take(ids):
        flat, ends, labels = samples.read(ids)
        parts = torch.from_numpy(flat).tensor_split(torch.from_numpy(ends[:-1]))
        return torch.stack([decode(part) for part in parts]), torch.from_numpy(labels)

    for images, labels in loader(work, take):
        yield len(images), [images], labels


def text(work):
    """Batches of about one length as Hugging Face's `group_by_length` makes them: a permutation in stretches of fifty
    batches, each sorted by length, and the batches of a stretch in random order."""
    lines, numbers = works.lines(work)
    lengths = np.array([len(line) for line in lines])
    order = np.random.default_rng(work.seed).permutation(work.count)
    batches = []
    for begin in range(0, work.count, 50 * work.batch):
        stretch = order[begin : begin + 50 * work.batch]
        stretch = stretch[np.argsort(-lengths[stretch], kind="stable")]
        batches += np.array_split(stretch, range(work.batch, len(stretch), work.batch))
    np.random.default_rng(work.seed).shuffle(batches)

    def take(ids):
        rows = [[numbers[word] for word in lines[at]] for at in ids]
        used = torch.tensor([len(row) for row in rows])
        tokens = torch.zeros(len(rows), int(used.max()), dtype=torch.int32)
        for at, row in enumerate(rows):
            tokens[at, : len(row)] = torch.tensor(row, dtype=torch.int32)
        return tokens, used

    for tokens, used in loader(work, take, [batch.tolist() for batch in batches]):
        yield len(tokens), [tokens, used], None


def prepare_tfrecord(work):
    np.save(work.root / "index.npy", np.array(list(tf_examples.frames(work))))


def tfrecord(work):
    index = np.load(work.root / "index.npy")
    files = [os.open(path, os.O_RDONLY) for path in work.named("*.tfrecord")]

    def take(ids):
        records = [os.pread(files[shard], size, at) for shard, at, size in index[ids].tolist()]
        return [torch.from_numpy(array) for array in tf_examples.parse(records)]

    for x, ids, labels in loader(work, take):
        yield len(x), [x, ids], labels


def cloud(work):
    """Range requests of an fsspec file system, those of a batch at once."""
    import fsspec

    index = TarSamples(work).index
    urls = [f"{work.url}/{os.path.basename(shard)}" for shard in work.shards]

    def take(ids):
        shard, begin, size, label = index[ids].T.tolist()
        system = fsspec.filesystem("http")  # one is kept for each process
        parts = system.cat_ranges([urls[at] for at in shard], begin, [at + length for at, length in zip(begin, size)])
        return parts, torch.tensor(label)

    for parts, labels in loader(work, take):
        yield len(labels), parts, labels
