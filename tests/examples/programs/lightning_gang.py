"""The same test through Lightning; the program passes $NODES and $DEVICES to its trainer."""

import gc
import hashlib
import json
import os
from pathlib import Path

import lightning
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Digits(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        digits = load_digits()
        self.pixels, self.labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        self.used: set[int] = set()

    def training_step(self, batch, index):
        (drawn,) = batch
        if self.current_epoch == 0:  # Lightning redistributes the samples each epoch
            self.used.update(drawn.tolist())
        return nn.functional.cross_entropy(self.net(self.pixels[drawn]), self.labels[drawn])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=5e-3)


def main() -> None:
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ["DEVICES"]),
        num_nodes=int(os.environ["NODES"]),
        max_epochs=6,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    rank, world = trainer.global_rank, trainer.world_size
    assert world == int(os.environ["EXPECT"]), f"{world} ranks, expected {os.environ['EXPECT']}"
    torch.manual_seed(rank)
    model = Digits()
    trainer.fit(model, DataLoader(TensorDataset(torch.arange(1500)), 15))
    flat = torch.cat([weights.detach().flatten() for weights in model.net.parameters()])
    accuracy = (model.net(model.pixels[1500:]).argmax(1) == model.labels[1500:]).float().mean().item()
    note = {"rank": rank, "world_size": world, "samples": sorted(model.used), "accuracy": accuracy, "pid": os.getpid()}
    note["weights"] = hashlib.sha256(flat.numpy().tobytes()).hexdigest()
    notes = [note] * world
    dist.all_gather_object(notes, note)
    everything = [sample for each in notes for sample in each["samples"]]
    assert len(everything) == len(set(everything)), "a sample was used by two ranks"
    assert len({each["weights"] for each in notes}) == 1, "ranks ended with different weights"
    note["peers"] = [each["pid"] for each in notes]
    Path(os.environ["FAIRWAY_SHARED_DIR"], f"rank-{rank}.json").write_text(json.dumps(note))


if __name__ == "__main__":
    main()
    gc.collect()  # nothing may hold the group's threads when the interpreter ends
    if dist.is_initialized():
        dist.destroy_process_group()
