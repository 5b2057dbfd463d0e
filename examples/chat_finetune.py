"""Fine-tunes a small causal model with the Trainer of transformers on chats in Parquet: a column `messages` of lists of turns
with `role` and `content`. Chats are packed into rows of one length, each sees only itself, and only what the assistant says has
a loss. A run resumes in the middle of an epoch, on any number of ranks.

    pip install torch transformers accelerate
    python examples/chat_finetune.py CHATS.parquet --out run            # or torchrun --nproc-per-node 2 …
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import pelton

# Bytes are the tokens here; a real one is `AutoTokenizer.from_pretrained(…).apply_chat_template(turns)`.
END, VOCABULARY = 256, 257


def tokenised(sample: dict[str, Any]) -> dict[str, Any]:
    """The tokens of a chat, and their labels: those of the assistant's turns, -100 for the others."""
    tokens: list[int] = []
    labels: list[int] = []
    for turn in json.loads(sample["messages"]):
        said = [*f"{turn['role']}: {turn['content']}".encode(), END]
        tokens += said
        labels += said if turn["role"] == "assistant" else [-100] * len(said)
    return {"tokens": np.array(tokens), "labels": np.array(labels)}


def length(sample: dict[str, Any]) -> int:
    return len(tokenised(sample)["tokens"])


class Chat(LlamaForCausalLM):
    """A causal model whose loss never holds the logits of the vocabulary; a chooser may take a part of it."""

    chooser: torch.nn.Module | None = None

    def forward(self, input_ids: Any = None, position_ids: Any = None, labels: Any = None, **others: Any) -> Any:
        if labels is None:
            return super().forward(input_ids, position_ids=position_ids, **others)
        # Chats of a row are kept apart by their positions only without a cache.
        hidden = self.model(input_ids, position_ids=position_ids, use_cache=False).last_hidden_state
        # The weight is that of the embedding, too: the gradients of both meet in it.
        return {"loss": pelton.partial_cross_entropy(hidden[:, :-1], self.lm_head.weight, labels[:, 1:], self.chooser)}


class ChatTrainer(Trainer):
    """Takes its batches from the pipeline, which knows its rank."""

    show = False

    def get_train_dataloader(self) -> Any:
        return self.train_dataset

    def training_step(self, model: torch.nn.Module, inputs: dict[str, Any], *others: Any) -> torch.Tensor:
        # Padding, where no chat is.
        labels = inputs["labels"].masked_fill(inputs["segment_ids"] == 0, -100)
        if self.show:
            total = int((inputs["tokens"] * (inputs["segment_ids"] > 0)).sum())
            print(f"rank {self.args.process_index} chats {sorted(set(inputs['ids'].tolist()))} tokens {total}", flush=True)
        # Positions that begin again tell the model where a chat begins.
        given = {"input_ids": inputs["tokens"], "position_ids": inputs["position_ids"], "labels": labels}
        return super().training_step(model, given, *others)


class SavePosition(TrainerCallback):
    """Saves the position of the data with each checkpoint."""

    def on_save(self, args: TrainingArguments, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
        if state.is_world_process_zero:
            folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
            (folder / "data.json").write_text(json.dumps(train_dataloader.state_dict()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chats")
    parser.add_argument("--out", default="run")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=-1, help="end after this many steps; -1: after all epochs")
    parser.add_argument("--save-every", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=2, help="rows of all ranks together")
    parser.add_argument("--row", type=int, default=2048, help="tokens of a row")
    parser.add_argument("--budget", type=float, default=1.0, help="the share of the vocabulary in a step; 1: all")
    parser.add_argument("--show", action="store_true", help="print the chats of every batch")
    options = parser.parse_args()

    arguments = TrainingArguments(
        options.out, num_train_epochs=options.epochs, max_steps=options.steps, save_steps=options.save_every, report_to=[],
        ignore_data_skip=True, use_cpu=not torch.cuda.is_available(), logging_steps=1, disable_tqdm=True, learning_rate=1e-3,
        label_names=["labels"],
    )  # fmt: skip
    chats = pelton.load(options.chats).map(tokenised).cache("2GiB").shuffle(seed=0).batch(options.batch)
    rows = chats.buckets(f"pack:{options.row}", length=length).include("ids", "segment_ids", "position_ids").torch()
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, tie_word_embeddings=True
    )
    net = Chat(config)
    if options.budget < 1:
        net.chooser = pelton.choose.Near(VOCABULARY, options.budget)
    trainer = ChatTrainer(net, arguments, train_dataset=rows, callbacks=[SavePosition()])
    trainer.show = options.show
    checkpoint = get_last_checkpoint(options.out) if Path(options.out).exists() else None
    if checkpoint is not None:
        rows.load_state_dict(json.loads(Path(checkpoint, "data.json").read_text()))
    trainer.train(resume_from_checkpoint=checkpoint)


if __name__ == "__main__":
    main()
