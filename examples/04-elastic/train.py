"""Continue with fewer workers when one is lost, from the newest checkpoint.

The batch depends on the step, not on the worker: any number of workers split the same BATCH images, so that the
training result is the same whether the run lost a worker or not.
"""

import gc
import os
import time

import fairway
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH, TEST = int(os.environ.get("STEPS", "600")), 48, 297
PAUSE = float(os.environ.get("PAUSE", "0"))  # seconds per step, to leave time to watch (and to kill a worker)


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = fairway.rank(), fairway.world_size()
    torch.manual_seed(1)
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = 0
    found = fairway.checkpoint.latest()
    if found:
        state = torch.load(found.path / "state.pt")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = found.step
    print(f"rank {rank} of {world}, attempt {fairway.attempt()}: from step {begin}")
    parallel = DistributedDataParallel(model)
    for step in range(begin + 1, STEPS + 1):
        drawn = torch.randperm(len(labels) - TEST, generator=torch.Generator().manual_seed(step))[:BATCH]
        mine = drawn[rank::world]
        # DDP takes the mean over ranks, so each weighs its part by its size.
        loss = nn.functional.cross_entropy(parallel(images[mine]), labels[mine], reduction="sum") * world / BATCH
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(PAUSE)
        if step % 20 == 0:
            fairway.report(step=step, loss=loss.item(), workers=world)
        if fairway.checkpoint.should_checkpoint(step):
            with fairway.checkpoint.save(step) as folder:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "state.pt")
    accuracy = (model(images[-TEST:]).argmax(1) == labels[-TEST:]).float().mean()
    fairway.report(step=STEPS, accuracy=accuracy)
    print(f"rank {rank}: done after {STEPS} steps, accuracy {accuracy:.3f}")
    del parallel
    gc.collect()  # frees the model, so that nothing holds the process group's threads at exit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
