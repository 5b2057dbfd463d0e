"""Ranks of torch.distributed, each with its share of every batch; stops and goes on.

    torchrun --nproc-per-node 2 examples/torchrun.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pelton


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = DistributedDataParallel(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10)))
    optimiser = torch.optim.SGD(net.parameters(), 0.01)
    # The batch of all ranks; each gets its share. Rank and world size are those of torchrun.
    batches = pelton.load("demo:images:5000").shuffle(seed=0).batch(256).torch()
    for epoch in range(2):
        seen = torch.zeros(())
        for batch in batches:
            loss = torch.nn.functional.cross_entropy(net(batch["image"].float() / 255), batch["label"])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            seen += len(batch["label"])
        dist.all_reduce(seen)
        if dist.get_rank() == 0:
            # The same on every rank: one file is enough, on whatever number of ranks it goes on.
            torch.save({"net": net.module.state_dict(), "data": batches.state_dict()}, "checkpoint.pt")
            print(f"epoch {epoch}: {int(seen)} examples, loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
