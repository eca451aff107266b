"""The program of the DDP benchmarks: LeNet-5 on random images, two ranks over gloo. Not a benchmark by itself."""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


def lenet() -> nn.Sequential:
    """LeNet-5."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def main() -> None:
    """Train for `steps`; write the CPU time of each rank, and the time of each step, into `folder`."""
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.parallel.DistributedDataParallel(lenet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state = folder / "checkpoint.pt"
    first = 0
    if state.exists():
        saved = torch.load(state)
        model.module.load_state_dict(saved["model"])
        first = saved["step"] + 1
    images, labels = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))
    warm = first + 20
    used = 0.0
    with (folder / f"rank-{rank}.steps").open("a") as log:
        for step in range(first, steps):
            if step == warm:
                used = _cpu()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            if "SAVE" in os.environ:
                if rank == 0:
                    torch.save({"model": model.module.state_dict(), "step": step}, folder / "checkpoint.tmp")
                    (folder / "checkpoint.tmp").rename(state)
                log.write(f"{step} {time.time()} {os.getpid()}\n")
                log.flush()
                time.sleep(0.01)
    total = _cpu()
    (folder / f"rank-{rank}.json").write_text(json.dumps({"cpu_per_step": (total - used) / (steps - warm), "cpu": total}))
    # No rank ends while another still communicates with it.
    dist.barrier()
    del model
    gc.collect()  # nothing may keep the group's threads alive when the interpreter ends
    dist.destroy_process_group()


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
