"""A program written for Lightning, without any use of Fairway. Two nodes with one device each."""

import gc

import lightning
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH, TEST = 4, 16, 297


class Digits(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch, index):
        pixels, wanted = batch
        return nn.functional.cross_entropy(self.net(pixels), wanted)

    def validation_step(self, batch, index):
        pixels, wanted = batch
        self.log("accuracy", (self.net(pixels).argmax(1) == wanted).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=5e-3)


def main() -> None:
    lightning.seed_everything(1)
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    train = DataLoader(TensorDataset(images[:-TEST], labels[:-TEST]), BATCH, shuffle=True)
    test = DataLoader(TensorDataset(images[-TEST:], labels[-TEST:]), BATCH)
    trainer = lightning.Trainer(
        accelerator="auto",
        devices=1,
        num_nodes=2,
        max_epochs=EPOCHS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Digits()
    trainer.fit(model, train, test)
    accuracy = trainer.callback_metrics["accuracy"]
    print(f"rank {trainer.global_rank} of {trainer.world_size}: accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
    gc.collect()  # frees the model, so that nothing holds the process group's threads at exit
    if dist.is_initialized():
        dist.destroy_process_group()
