"""A program that starts its own ranks: torch.multiprocessing."""

import os

import torch
from torch import distributed, multiprocessing

WORLD = 2


def work(rank: int) -> None:
    """One rank."""
    os.environ.update(MASTER_ADDR="127.0.0.1", RANK=str(rank), WORLD_SIZE=str(WORLD))
    store = distributed.FileStore(os.environ["MEET"], WORLD)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=WORLD)
    total = torch.tensor([rank + 1.0])
    distributed.all_reduce(total)
    print(f"rank {rank} of {distributed.get_world_size()} has {float(total)}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    os.environ["MEET"] = os.path.abspath(f"meet-{os.getpid()}")
    multiprocessing.spawn(work, nprocs=WORLD)
