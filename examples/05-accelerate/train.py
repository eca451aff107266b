"""A program written for Hugging Face Accelerate, without any use of Fairway."""

import gc

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH, TEST = 4, 16, 297


def main() -> None:
    accelerator = Accelerator()
    set_seed(1)
    accelerator.print(f"{accelerator.num_processes} processes on {accelerator.device.type}")
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    train = DataLoader(TensorDataset(images[:-TEST], labels[:-TEST]), BATCH, shuffle=True)
    test = DataLoader(TensorDataset(images[-TEST:], labels[-TEST:]), BATCH)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)
    for epoch in range(1, EPOCHS + 1):
        for pixels, wanted in train:
            loss = nn.functional.cross_entropy(model(pixels), wanted)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        right = [accelerator.gather_for_metrics(model(pixels).argmax(1) == wanted) for pixels, wanted in test]
        accelerator.print(f"epoch {epoch}: accuracy {torch.cat(right).float().mean():.3f} on {len(torch.cat(right))} images")
    accelerator.end_training()


if __name__ == "__main__":
    main()
    gc.collect()  # frees the model, so that nothing holds the process group's threads at exit
