"""Which of several processes this one is, as launchers say it."""

from __future__ import annotations

import os

# torchrun, Lightning and Ray Train; Open MPI; Slurm.
_LAUNCHERS = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
]


def rank_and_world_size() -> tuple[int, int]:
    """Rank and number of ranks from the environment; ``(0, 1)`` where no launcher says them."""
    for rank_name, size_name in _LAUNCHERS:
        rank, size = os.environ.get(rank_name), os.environ.get(size_name)
        if rank is None or size is None:
            continue
        if not (rank.isdigit() and size.isdigit() and int(rank) < int(size)):
            raise ValueError(
                f"the environment says {rank_name}={rank} and {size_name}={size}, which is no rank of so many; "
                "correct them, or name the rank with .shard(rank, world_size)"
            )
        return int(rank), int(size)
    return 0, 1
