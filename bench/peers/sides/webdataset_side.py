"""WebDataset: shards in random order, divided among two workers, then a buffer. Photos are decoded by torchvision."""

import photo
import torch
import webdataset as wds
import work as works

HELD = {"records": 5000, "tiny": 5000}  # of others 1000


def shards(work, extension, samples):
    folder = work.folder("webdataset")
    folder.mkdir(exist_ok=True)
    with wds.ShardWriter(str(folder / "shard-%03d.tar"), maxcount=-(-work.count // 16), maxsize=1e12, verbose=0) as out:
        for number, sample in enumerate(samples):
            out.write({"__key__": f"{number:08}", extension: sample})


def prepare_records(work):
    shards(work, "bin", works.record_samples(work))


prepare_tiny = prepare_records


def epoch(work, urls, extensions, make):
    torch.set_num_threads(1)
    held = HELD.get(work.kind, 1000)
    data = wds.WebDataset(urls, shardshuffle=len(urls), seed=work.seed).shuffle(held).to_tuple(*extensions)
    data = data.batched(work.batch, collation_fn=make)
    work.randomness = works.chunks(work.count, work.count // len(urls), held)
    return wds.WebLoader(data, batch_size=None, num_workers=work.threads)


def flat(payloads):
    """Payloads of unequal length in one tensor, and where each ends."""
    ends = torch.tensor([len(payload) for payload in payloads]).cumsum(0)
    return torch.frombuffer(bytearray().join(payloads), dtype=torch.uint8), ends


def records(work):
    def make(samples):
        return flat([sample for (sample,) in samples])[0].view(-1, work.length)

    for batch in epoch(work, work.named("webdataset/*.tar"), ["bin"], make):
        yield len(batch), [batch], None


def tar(work, urls=None):
    def make(samples):
        payloads, labels = zip(*samples)
        return *flat(payloads), torch.tensor([int(label) for label in labels])

    for values, ends, labels in epoch(work, urls or work.shards, ["bin", "cls"], make):
        yield len(labels), [values, ends], labels


def cloud(work):
    """Its way to read from the network is a process of curl for each shard."""
    return tar(work, [f"pipe:curl -s {work.url}/{shard.rpartition('/')[2]}" for shard in work.shards])


def photos(work):
    decode = photo.ByTorchvision()

    def make(samples):
        return torch.stack([decode(data) for data, _ in samples]), torch.tensor([int(label) for _, label in samples])

    for images, labels in epoch(work, work.shards, ["jpg", "cls"], make):
        yield len(labels), [images], labels
