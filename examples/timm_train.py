"""A model of timm with its own data settings, optimiser and schedule.

    pip install timm
    python examples/timm_train.py PHOTOS --model resnet18
"""

from __future__ import annotations

import argparse

import timm
import timm.data
import timm.optim
import timm.scheduler
import torch

import pelton


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--pretrained", action="store_true")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--steps", type=int, default=0, help="end after this many steps; 0: after all epochs")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--show", action="store_true", help="print the records of every batch")
    options = parser.parse_args()

    photos = pelton.load(options.photos).shuffle(seed=0).decode("image")
    net = timm.create_model(options.model, pretrained=options.pretrained, num_classes=len(photos.classes))
    # Size, mean and deviation are the model's. Its interpolation has no counterpart: pictures are resized bilinearly, as by
    # Pillow. timm itself trains on a random choice of bilinear and bicubic.
    config = timm.data.resolve_model_data_config(net)
    photos = photos.random_resized_crop(config["input_size"][-1]).flip().normalize(config["mean"], config["std"])
    batches = photos.batch(options.batch).torch()
    optimiser = timm.optim.create_optimizer_v2(net, opt="lamb", lr=5e-3, weight_decay=0.02)
    schedule, epochs = timm.scheduler.create_scheduler_v2(
        optimiser, sched="cosine", num_epochs=options.epochs, warmup_epochs=5, updates_per_epoch=len(batches), step_on_epochs=False
    )
    updates = 0
    for epoch in range(epochs):
        for batch in batches:
            loss = torch.nn.functional.cross_entropy(net(batch["image"]), batch["label"])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            updates += 1
            schedule.step_update(updates)
            if options.show:
                print(f"epoch {epoch} rank 0 records {batch.ids.tolist()}")
            if updates == options.steps:
                return
        print(f"epoch {epoch}: loss {loss.item():.3f}, rate {optimiser.param_groups[0]['lr']:.2g}; {batches.verdict()}", flush=True)


if __name__ == "__main__":
    main()
