"""ResNet-18 on a folder of photos, PHOTOS/CLASS/NAME.jpg.

    pip install torch torchvision
    python examples/resnet_folder.py PHOTOS
"""

from __future__ import annotations

import argparse

import torch
import torchvision

import pelton


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--steps", type=int, default=0, help="end after this many steps; 0: after all epochs")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--show", action="store_true", help="print the records of every batch")
    options = parser.parse_args()

    photos = pelton.load(options.photos).shuffle(seed=0).decode("image").random_resized_crop(options.side).flip().normalize()
    batches = photos.batch(options.batch).include("ids").torch().tuples("image", "label", "ids")
    net = torchvision.models.resnet18(num_classes=len(batches.classes))
    optimiser = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    steps = 0
    for epoch in range(options.epochs):
        for images, labels, ids in batches:
            loss = torch.nn.functional.cross_entropy(net(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            steps += 1
            if options.show:
                print(f"epoch {epoch} rank 0 records {ids.tolist()}")
            if steps == options.steps:
                return
        print(f"epoch {epoch}: loss {loss.item():.3f}; {batches.verdict()}", flush=True)


if __name__ == "__main__":
    main()
