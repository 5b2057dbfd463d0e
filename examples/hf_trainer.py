"""The Trainer of transformers with a pipeline as its loader. It resumes in the middle of an epoch without reading what was
used, on any number of ranks.

    pip install torch transformers accelerate
    python examples/hf_trainer.py PHOTOS --out run            # or torchrun --nproc-per-node 2 …
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import pelton

RESNET18: dict[str, Any] = {"layer_type": "basic", "depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512]}


class PipelineTrainer(Trainer):
    """Takes its batches from the pipeline, which knows its rank; nothing is to be prepared."""

    show = False

    def get_train_dataloader(self) -> Any:
        return self.train_dataset

    def training_step(self, model: torch.nn.Module, inputs: dict[str, Any], *others: Any) -> torch.Tensor:
        if self.show:
            epoch, ids = inputs["epoch"][0], inputs["ids"].tolist()
            print(f"epoch {epoch} rank {self.args.process_index} records {ids}", flush=True)
        inputs = {"pixel_values": inputs["image"], "labels": inputs["label"]}
        return super().training_step(model, inputs, *others)


class SavePosition(TrainerCallback):
    """Saves the position of the data with each checkpoint."""

    def on_save(self, args: TrainingArguments, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
        if state.is_world_process_zero:
            folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
            (folder / "data.json").write_text(json.dumps(train_dataloader.state_dict()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos")
    parser.add_argument("--out", default="run")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--steps", type=int, default=-1, help="end after this many steps; -1: after all epochs")
    parser.add_argument("--save-every", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=256, help="of all ranks together")
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--show", action="store_true", help="print the records of every batch")
    options = parser.parse_args()

    arguments = TrainingArguments(
        options.out, num_train_epochs=options.epochs, max_steps=options.steps, save_steps=options.save_every, report_to=[],
        ignore_data_skip=True,  # the pipeline starts at the right batch by itself
    )  # fmt: skip
    photos = pelton.load(options.photos).shuffle(seed=0).decode("image").random_resized_crop(options.side).flip().normalize()
    batches = photos.batch(options.batch).include("ids", "epoch").torch()
    net = ResNetForImageClassification(ResNetConfig(**RESNET18, num_labels=len(batches.classes)))
    trainer = PipelineTrainer(net, arguments, train_dataset=batches, callbacks=[SavePosition()])
    trainer.show = options.show
    checkpoint = get_last_checkpoint(options.out) if Path(options.out).exists() else None
    if checkpoint is not None:
        batches.load_state_dict(json.loads(Path(checkpoint, "data.json").read_text()))
    trainer.train(resume_from_checkpoint=checkpoint)


if __name__ == "__main__":
    main()
