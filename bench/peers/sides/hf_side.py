"""Hugging Face datasets: Arrow files in a memory map, rows of a global order (`dataset[ids]`) by PyTorch's DataLoader with
two workers. From the network it streams shards through a buffer."""

import datasets
import numpy as np
import photo
import pyarrow as pa
import torch
import work as works
from torch_side import loader

HELD = 1000


def save(work, columns):
    datasets.Dataset(pa.table(columns)).save_to_disk(str(work.folder("hf")))


def opened(work):
    return datasets.load_from_disk(str(work.folder("hf"))).with_format("arrow")


def prepare_records(work):
    flat = pa.array(np.fromfile(work.records, np.uint8))
    save(work, {"data": pa.FixedSizeListArray.from_arrays(flat, work.length)})


prepare_tiny = prepare_records


def records(work):
    data = opened(work)

    def take(ids):
        column = data[ids].column("data").combine_chunks()
        return torch.from_numpy(column.flatten().to_numpy().reshape(-1, work.length))

    for batch in loader(work, take):
        yield len(batch), [batch], None


def prepare_tar(work):
    payloads, labels = zip(*works.tar_samples(work))
    save(work, {"data": pa.array(payloads, pa.large_binary()), "label": pa.array(labels)})


prepare_photos = prepare_tar


def tar(work):
    data = opened(work)

    def take(ids):
        table = data[ids].combine_chunks()
        column = table.column("data").chunk(0)
        ends = np.frombuffer(column.buffers()[1], np.int64)[column.offset :][: len(column) + 1]
        flat = np.frombuffer(column.buffers()[2], np.uint8)[ends[0] : ends[-1]]
        return torch.from_numpy(flat), torch.from_numpy(ends - ends[0]), torch.from_numpy(table.column("label").to_numpy())

    for flat, ends, labels in loader(work, take):
        yield len(labels), [flat, ends], labels


def photos(work):
    data, decode = opened(work), photo.ByTorchvision()

    def take(ids):
        table = data[ids]
        images = [decode(value.as_buffer()) for value in table.column("data")]
        return torch.stack(images), torch.from_numpy(table.column("label").to_numpy())

    for images, labels in loader(work, take):
        yield len(labels), [images], labels


def cloud(work):
    urls = [f"{work.url}/{shard.rpartition('/')[2]}" for shard in work.shards]
    data = datasets.load_dataset("webdataset", data_files={"train": urls}, streaming=True, cache_dir=str(work.folder("hf")))["train"]
    data = data.shuffle(seed=work.seed, buffer_size=HELD)
    work.randomness = works.chunks(work.count, work.count // len(urls), HELD)
    load = torch.utils.data.DataLoader(data, work.batch, num_workers=work.threads, collate_fn=list)
    for rows in load:
        yield len(rows), [row["bin"] for row in rows], [int(row["cls"]) for row in rows]
