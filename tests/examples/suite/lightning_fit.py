"""Lightning: `DEVICES` ranks per node, `NODES` nodes; it starts the ranks of a node itself unless a launcher has."""

import os
import warnings

import lightning
import torch
from lightning.pytorch.demos.boring_classes import BoringModel

warnings.filterwarnings("ignore")
lightning.seed_everything(7, verbose=False)


class Model(BoringModel):
    """The model of Lightning's own demos, which prints its rank and result at the end."""

    def on_train_end(self) -> None:
        total = sum(float(value.sum()) for value in self.parameters())
        print(f"rank {self.trainer.global_rank} of {self.trainer.world_size} has {total:.4f}", flush=True)


trainer = lightning.Trainer(
    accelerator="cpu", devices=int(os.environ.get("DEVICES", "1")), num_nodes=int(os.environ.get("NODES", "1")), strategy="ddp",
    max_steps=4, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    limit_val_batches=0,
)  # fmt: skip
trainer.fit(Model())
torch.distributed.destroy_process_group()
