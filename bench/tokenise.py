"""JSON Lines through a tokenizer of Hugging Face, next to `datasets.map` with two processes.

python bench/tokenise.py FOLDER TEXT [ROUNDS] > bench/results/tokenise.csv

TEXT is a file of lines; eight at a time are the texts of FOLDER/lines.jsonl, and a byte-pair tokenizer of 16 000 tokens is
trained on them. Sides take turns, a line a round with the seconds until all texts have gone by as tokens, shuffled, in batches
of 32 padded: `pelton` (`.map(batched=64).cache()`, two threads), `datasets` (`.map(batched=True, num_proc=2)`, no cache from before, then
a `DataLoader` over its result without workers), and the second epoch of each; `datasets-map` is the time of its map alone.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pelton
import torch
from torch.utils.data import DataLoader

if len(sys.argv) > 1:
    os.environ["HF_HOME"] = str(Path(sys.argv[1]) / "hf")
import datasets
import tokenizers

datasets.disable_progress_bars()
FOLDER = Path(sys.argv[1])
DATA, TOKENIZER = FOLDER / "lines.jsonl", FOLDER / "tokenizer.json"


def prepare(text: str) -> None:
    lines = Path(text).read_text().splitlines()
    with open(DATA, "w") as file:
        for start in range(0, len(lines), 8):
            file.write(json.dumps({"i": start, "text": "\n".join(lines[start : start + 8])}) + "\n")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    tokenizer.train([text], tokenizers.trainers.BpeTrainer(vocab_size=16_000, show_progress=False))
    tokenizer.save(str(TOKENIZER))


prepare(sys.argv[2])
bpe = tokenizers.Tokenizer.from_file(str(TOKENIZER))


def columns(batch: dict[str, Any]) -> dict[str, Any]:
    texts = [text.decode() for text in batch["text"]]
    return {"ids": [np.array(one.ids) for one in bpe.encode_batch_fast(texts)]}


def of_datasets(batch: dict[str, Any]) -> dict[str, Any]:
    return {"ids": [one.ids for one in bpe.encode_batch_fast(batch["text"])]}


def padded(rows: list[dict[str, Any]]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.as_tensor(row["ids"]) for row in rows], batch_first=True)


def main() -> None:
    print("side,round,seconds,tokens")
    for number in range(int(sys.argv[3]) if len(sys.argv) > 3 else 3):
        start = time.perf_counter()
        pipeline = pelton.load(DATA).map(columns, batched=64).cache("1GiB").shuffle(seed=0).batch(32, collate="pad")
        for side in ("pelton", "pelton-second"):
            tokens = sum(int(batch["ids_lengths"].sum()) for batch in pipeline)
            print(f"{side},{number},{time.perf_counter() - start:.3f},{tokens}", flush=True)
            start = time.perf_counter()
        pipeline.close()
        shutil.rmtree(FOLDER / "hf", ignore_errors=True)
        start = time.perf_counter()
        data = datasets.load_dataset("json", data_files=str(DATA), split="train")
        data = data.map(of_datasets, batched=True, num_proc=2, remove_columns=["i", "text"]).with_format("numpy")
        print(f"datasets-map,{number},{time.perf_counter() - start:.3f},0", flush=True)
        loader = DataLoader(data, batch_size=32, shuffle=True, collate_fn=padded)
        for side in ("datasets", "datasets-second"):
            tokens = sum(int((batch > 0).sum()) for batch in loader)
            print(f"{side},{number},{time.perf_counter() - start:.3f},{tokens}", flush=True)
            start = time.perf_counter()


if __name__ == "__main__":
    main()
