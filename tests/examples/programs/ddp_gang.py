"""Trains digits by DistributedDataParallel; fails unless it is one of $EXPECT ranks that train one model on disjoint samples."""

import gc
import hashlib
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main() -> None:
    if "RANK" not in os.environ:
        sys.exit("RANK is not set: nobody told this process of its peers")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    assert world == int(os.environ["EXPECT"]), f"{world} ranks, expected {os.environ['EXPECT']}"
    torch.manual_seed(rank)  # different on purpose: DDP must make the weights equal
    digits = load_digits()
    pixels, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    train = TensorDataset(torch.arange(1500))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    used = set()
    for _ in range(6):
        # The sampler's epoch is never set, so a rank keeps its part.
        for (drawn,) in DataLoader(train, 15, sampler=DistributedSampler(train, seed=1)):
            used.update(drawn.tolist())
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pixels[drawn]), labels[drawn]).backward()
            optimizer.step()
    accuracy = (model(pixels[1500:]).argmax(1) == labels[1500:]).float().mean().item()
    flat = torch.cat([weights.detach().flatten() for weights in model.parameters()])
    note = {
        "rank": rank,
        "world_size": world,
        "samples": sorted(used),
        "weights": hashlib.sha256(flat.numpy().tobytes()).hexdigest(),
        "accuracy": accuracy,
        "pid": os.getpid(),
        "local_rank": int(os.environ["LOCAL_RANK"]),
        "threads": torch.get_num_threads(),
    }
    notes = [note] * world
    dist.all_gather_object(notes, note)
    everything = [sample for each in notes for sample in each["samples"]]
    assert len(everything) == len(set(everything)), "a sample was used by two ranks"
    assert len({each["weights"] for each in notes}) == 1, "ranks ended with different weights"
    note["peers"] = [each["pid"] for each in notes]
    Path(os.environ["FAIRWAY_SHARED_DIR"], f"rank-{rank}.json").write_text(json.dumps(note))
    del model
    gc.collect()  # nothing may hold the group's threads when the interpreter ends
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # PyTorch may abort while an interpreter ends its threads (observed once: "terminate called without an active exception").
    # All assertions are done at this point.
    sys.stdout.flush()
    os._exit(0)
