"""The same test through Hugging Face Accelerate."""

import gc
import hashlib
import json
import os
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator()
    rank, world = accelerator.process_index, accelerator.num_processes
    assert world == int(os.environ["EXPECT"]), f"{world} ranks, expected {os.environ['EXPECT']}"
    torch.manual_seed(rank)
    digits = load_digits()
    pixels, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model, optimizer, train = accelerator.prepare(model, optimizer, DataLoader(TensorDataset(torch.arange(1500)), 15))
    used = set()
    for _ in range(6):
        for (drawn,) in train:
            used.update(drawn.tolist())
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(pixels[drawn]), labels[drawn]))
            optimizer.step()
    flat = torch.cat([weights.detach().flatten() for weights in model.parameters()])
    digest = hashlib.sha256(flat.numpy().tobytes()).hexdigest()
    assert len(set(gather_object([digest]))) == 1, "ranks ended with different weights"
    everything = gather_object(sorted(used))
    assert len(everything) == len(set(everything)), "a sample was used by two ranks"
    accuracy = (model(pixels[1500:]).argmax(1) == labels[1500:]).float().mean().item()
    note = {"rank": rank, "world_size": world, "samples": sorted(used), "weights": digest, "accuracy": accuracy}
    note |= {"pid": os.getpid(), "peers": gather_object([os.getpid()])}
    Path(os.environ["FAIRWAY_SHARED_DIR"], f"rank-{rank}.json").write_text(json.dumps(note))
    accelerator.end_training()


if __name__ == "__main__":
    main()
    gc.collect()  # nothing may hold the group's threads when the interpreter ends
