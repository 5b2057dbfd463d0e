"""accelerate: the pipeline is iterated as it is, and its position is part of accelerate's checkpoint, so `skip_first_batches`,
which reads what it skips, is not needed.

    pip install torch torchvision accelerate
    accelerate launch --num_processes 2 examples/accelerate_resume.py PHOTOS --out run
"""

from __future__ import annotations

import argparse
import os

import torch
import torchvision
from accelerate import Accelerator

import pelton


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos")
    parser.add_argument("--out", default="run")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--steps", type=int, default=0, help="end after this many steps; 0: after all epochs")
    parser.add_argument("--batch", type=int, default=256, help="of all ranks together")
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--show", action="store_true", help="print the records of every batch")
    options = parser.parse_args()

    accelerator = Accelerator()
    photos = pelton.load(options.photos).shuffle(seed=0).decode("image").random_resized_crop(options.side).flip().normalize()
    batches = photos.batch(options.batch).torch(accelerator.device)
    net = torchvision.models.resnet18(num_classes=len(batches.classes))
    net = net.to(memory_format=torch.channels_last)  # as pictures come
    optimiser = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    # Not the batches: every process takes its own share.
    net, optimiser = accelerator.prepare(net, optimiser)
    accelerator.register_for_checkpointing(batches)
    if os.path.exists(options.out):
        accelerator.load_state(options.out)

    steps, ends = 0, False
    for epoch in range(batches.state_dict()["epoch"], options.epochs):
        for batch in batches:
            loss = torch.nn.functional.cross_entropy(net(batch["image"]), batch["label"])
            optimiser.zero_grad()
            accelerator.backward(loss)
            optimiser.step()
            steps += 1
            if options.show:
                print(f"epoch {epoch} rank {accelerator.process_index} records {batch.ids.tolist()}", flush=True)
            if ends := steps == options.steps:
                break
        accelerator.save_state(options.out)
        if ends:
            break
    accelerator.end_training()


if __name__ == "__main__":
    main()
