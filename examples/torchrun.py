"""ResNet-18 on ranks of torch.distributed, each with its share of every batch. It resumes where it stopped, also on
another number of ranks.

    pip install torch torchvision
    torchrun --nproc-per-node 2 examples/torchrun.py PHOTOS --checkpoint run.pt
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel

import pelton


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos")
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--steps", type=int, default=0, help="end after this many steps; 0: after all epochs")
    parser.add_argument("--batch", type=int, default=256, help="of all ranks together")
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--show", action="store_true", help="print the records of every batch")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    photos = pelton.load(options.photos).shuffle(seed=0).decode("image").random_resized_crop(options.side).flip().normalize()
    batches = photos.batch(options.batch).torch()
    torch.manual_seed(0)
    net = torchvision.models.resnet18(num_classes=len(batches.classes))
    net = net.to(memory_format=torch.channels_last)  # as pictures come
    optimiser = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    if os.path.exists(options.checkpoint):
        state = torch.load(options.checkpoint)
        net.load_state_dict(state["net"])
        optimiser.load_state_dict(state["optimiser"])
        batches.load_state_dict(state["data"])
    ranks_net = DistributedDataParallel(net)

    def save() -> None:
        # The state of the data is the same on every rank.
        if dist.get_rank() == 0:
            state = {"net": net.state_dict(), "optimiser": optimiser.state_dict(), "data": batches.state_dict()}
            torch.save(state, options.checkpoint)

    steps, ends = 0, False
    for epoch in range(batches.state_dict()["epoch"], options.epochs):
        for batch in batches:
            loss = torch.nn.functional.cross_entropy(ranks_net(batch["image"]), batch["label"])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            steps += 1
            if options.show:
                print(f"epoch {epoch} rank {dist.get_rank()} records {batch.ids.tolist()}", flush=True)
            if ends := steps == options.steps:
                break
        save()
        if ends:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
