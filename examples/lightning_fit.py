"""Lightning: pipelines are the loaders. Their position goes into Lightning's checkpoints, and a fit resumes in the middle of
an epoch.

    pip install lightning torchvision
    python examples/lightning_fit.py TRAIN VALID --devices 2 --out run
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import lightning
import torch
import torchvision
from lightning.pytorch.callbacks import ModelCheckpoint

import pelton


class Net(lightning.LightningModule):
    """ResNet-18."""

    def __init__(self, classes: int, show: bool) -> None:
        super().__init__()
        self.net = torchvision.models.resnet18(num_classes=classes).to(memory_format=torch.channels_last)  # as pictures come
        self.show = show

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        if self.show:
            print(f"epoch {batch.epoch} rank {self.global_rank} records {batch.ids.tolist()}", flush=True)
        return torch.nn.functional.cross_entropy(self.net(batch["image"]), batch["label"])

    def validation_step(self, batch: Any, index: int) -> None:
        right = (self.net(batch["image"]).argmax(1) == batch["label"]).float().mean()
        self.log("accuracy", right, batch_size=len(batch["label"]), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("valid")
    parser.add_argument("--out", default="run")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--steps", type=int, default=-1, help="end after this many steps; -1: after all epochs")
    parser.add_argument("--save-every", type=int, default=1000)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--batch", type=int, default=256, help="of all ranks together")
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--show", action="store_true", help="print the records of every batch")
    options = parser.parse_args()

    train = pelton.load(options.train).shuffle(seed=0).decode("image").random_resized_crop(options.side).flip()
    valid = pelton.load(options.valid, classes=train).decode("image").resize(options.side).crop(options.side)
    train, valid = (part.normalize().batch(options.batch).torch() for part in (train, valid))
    trainer = lightning.Trainer(
        max_epochs=options.epochs, max_steps=options.steps, devices=options.devices, logger=False,
        callbacks=[ModelCheckpoint(options.out, every_n_train_steps=options.save_every, save_last=True)],
        use_distributed_sampler=False,  # pipelines know their rank
    )  # fmt: skip
    last = os.path.join(options.out, "last.ckpt")
    trainer.fit(Net(len(train.classes), options.show), train, valid, ckpt_path=last if os.path.exists(last) else None)


if __name__ == "__main__":
    main()
