"""The StatefulDataLoader of torchdata over a pipeline, with worker processes; it resumes in the middle of an epoch.

Workers help where functions in Python are slow; otherwise iterate the pipeline, which has a state of its own.

    pip install torch torchvision torchdata
    python examples/stateful_dataloader.py PHOTOS --workers 2 --checkpoint run.pt
"""

from __future__ import annotations

import argparse
import os

import torch
import torchvision
from torchdata.stateful_dataloader import StatefulDataLoader

import pelton


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos")
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--steps", type=int, default=0, help="end after this many steps; 0: after all epochs")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--show", action="store_true", help="print the records of every batch")
    options = parser.parse_args()

    photos = pelton.load(options.photos).shuffle(seed=0).decode("image").random_resized_crop(options.side).flip().normalize()
    batches = photos.batch(options.batch).torch()
    loader = StatefulDataLoader(batches, batch_size=None, num_workers=options.workers)
    net = torchvision.models.resnet18(num_classes=len(batches.classes))
    optimiser = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    first = 0
    if os.path.exists(options.checkpoint):
        # The state of the loader is that of its workers, and not only of tensors.
        state = torch.load(options.checkpoint, weights_only=False)
        net.load_state_dict(state["net"])
        optimiser.load_state_dict(state["optimiser"])
        loader.load_state_dict(state["data"])
        first = state["epoch"]

    steps = 0
    for epoch in range(first, options.epochs):
        batches.set_epoch(epoch)  # new workers cannot count epochs
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(net(batch["image"]), batch["label"])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            steps += 1
            if options.show:
                print(f"epoch {epoch} rank 0 records {batch.ids.tolist()}")
            if steps == options.steps:
                parts = {"net": net.state_dict(), "optimiser": optimiser.state_dict(), "data": loader.state_dict()}
                torch.save({**parts, "epoch": epoch}, options.checkpoint)
                return


if __name__ == "__main__":
    main()
