"""A Lightning data module: pipelines are its loaders, and their state goes into its checkpoints.

    pip install lightning
"""

from __future__ import annotations

from typing import Any

import lightning

import pelton


class Data(lightning.LightningDataModule):
    """Ranks are those that Lightning starts; no sampler is to be put in their place."""

    def __init__(self, train: str, test: str, batch: int = 256) -> None:
        super().__init__()
        self.train = pelton.load(train).shuffle(seed=0).batch(batch).torch()
        self.test = pelton.load(test).batch(batch).torch()

    def train_dataloader(self) -> pelton.Pipeline:
        return self.train

    def val_dataloader(self) -> pelton.Pipeline:
        return self.test

    def state_dict(self) -> dict[str, Any]:
        return {"train": self.train.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.train.load_state_dict(state["train"])


# lightning.Trainer(use_distributed_sampler=False).fit(model, Data("demo:images", "demo:images:test"))
