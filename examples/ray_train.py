"""Ray Train: each worker takes its share, as its rank says.

    pip install "ray[train]" torch
"""

from __future__ import annotations

import ray.train
import ray.train.torch

import pelton


def train_loop() -> None:
    context = ray.train.get_context()
    batches = pelton.load("demo:images").shuffle(seed=0).batch(256)
    batches = batches.shard(context.get_world_rank(), context.get_world_size()).torch()
    for batch in batches:
        batch["image"], batch["label"]  # noqa: B018, a step of the net
    ray.train.report({"verdict": batches.verdict()})


if __name__ == "__main__":
    trainer = ray.train.torch.TorchTrainer(
        train_loop, scaling_config=ray.train.ScalingConfig(num_workers=2)
    )
    trainer.fit()
