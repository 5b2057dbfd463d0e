"""Ray Train: each worker takes its share, as its rank says. Run again with the same name and folder, it resumes from the last
checkpoint, in the middle of an epoch.

    pip install "ray[train]" torch torchvision
    python examples/ray_train.py PHOTOS --workers 2 --out /shared/runs
"""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any

import ray.train
import ray.train.torch
import torchvision

import pelton


def train_loop(options: dict[str, Any]) -> None:
    # Not above: Ray pickles this function, and would take `batches.classes` for the module `torch.classes`.
    import torch

    photos = pelton.load(options["photos"]).shuffle(seed=0).decode("image").random_resized_crop(options["side"]).flip().normalize()
    batches = photos.batch(options["batch"]).torch()
    net = torchvision.models.resnet18(num_classes=len(batches.classes))
    net = ray.train.torch.prepare_model(net.to(memory_format=torch.channels_last))  # as pictures come
    optimiser = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    checkpoint, rank = ray.train.get_checkpoint(), ray.train.get_context().get_world_rank()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        net.load_state_dict(state["net"])
        optimiser.load_state_dict(state["optimiser"])
        batches.load_state_dict(state["data"])

    def report(loss: float) -> None:
        with tempfile.TemporaryDirectory() as folder:
            if rank == 0:
                state = {"net": net.state_dict(), "optimiser": optimiser.state_dict(), "data": batches.state_dict()}
                torch.save(state, os.path.join(folder, "state.pt"))
            ray.train.report({"loss": loss}, checkpoint=ray.train.Checkpoint(folder) if rank == 0 else None)

    steps, ends = 0, False
    for epoch in range(batches.state_dict()["epoch"], options["epochs"]):
        for batch in batches:
            loss = torch.nn.functional.cross_entropy(net(batch["image"]), batch["label"])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            steps += 1
            if options["show"]:
                print(f"epoch {epoch} rank {rank} records {batch.ids.tolist()}", flush=True)
            if ends := steps == options["steps"]:
                break
        report(loss.item())
        if ends:
            break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=os.path.abspath)
    parser.add_argument("--out", type=os.path.abspath, default="runs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--steps", type=int, default=0, help="end after this many steps; 0: after all epochs")
    parser.add_argument("--batch", type=int, default=256, help="of all workers together")
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--show", action="store_true", help="print the records of every batch")
    options = parser.parse_args()
    trainer = ray.train.torch.TorchTrainer(
        train_loop,
        train_loop_config=vars(options),
        scaling_config=ray.train.ScalingConfig(num_workers=options.workers),
        run_config=ray.train.RunConfig(name="resnet18", storage_path=options.out),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
