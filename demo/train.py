"""LeNet-5 on MNIST by several workers, as a user would write it: plain PyTorch, and a few calls of Fairway.

Run by `make demo`; by hand: `fairway run --workers 2 --data mnist=FOLDER -- python train.py`.
"""

import argparse
import gc
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import fairway

BATCH = 64


def load_images() -> tuple[TensorDataset, TensorDataset]:
    """Return the images that `--data mnist=FOLDER` names, as numbers around 0."""
    with np.load(f"{fairway.data('mnist')}/mnist.npz") as found:
        parts = [torch.from_numpy(found[name]) for name in ("train_images", "train_labels", "test_images", "test_labels")]
    pixels = [(part.float().unsqueeze(1) / 255 - 0.1307) / 0.3081 for part in parts[::2]]
    return TensorDataset(pixels[0], parts[1].long()), TensorDataset(pixels[1], parts[3].long())


def make_lenet() -> nn.Module:
    """Return the LeNet-5 of 1998, with today's activation."""
    features = [nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    classifier = [nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
    return nn.Sequential(*features, *classifier)


@torch.no_grad()
def measure(model: nn.Module, test: TensorDataset) -> float:
    """Return the fraction of test images that are classified correctly; each worker checks its own part of them."""
    images, labels = (part[fairway.rank() :: fairway.world_size()] for part in test.tensors)
    right = sum(
        (model(some).argmax(1) == wanted).sum() for some, wanted in zip(images.split(1000), labels.split(1000), strict=True)
    )
    counts = torch.tensor([float(right), float(len(labels))])
    dist.all_reduce(counts)
    return float(counts[0] / counts[1])


def is_time_to_stop() -> bool:
    """Broadcast rank 0's answer to all workers, because workers that compute together must end at the same step."""
    answer = torch.tensor([float(fairway.should_stop())])
    dist.broadcast(answer, src=0)
    return bool(answer)


def main() -> None:
    """Train from the newest checkpoint, or from the beginning."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--epochs", type=int, default=0, help="passes over the data (default: 3, more where there is little data)"
    )
    given = parser.parse_args().epochs
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    train, test = load_images()
    epochs = given or max(3, 60_000 // len(train))
    model = DistributedDataParallel(make_lenet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    start = fairway.checkpoint.latest()
    if start:
        model.module.load_state_dict(torch.load(start.path / "weights.pt"))
        optimizer.load_state_dict(torch.load(start.path / "optimizer.pt"))
        print(f"going on from step {start.step}")
    sampler = DistributedSampler(train, seed=1)
    step = start.step if start else 0
    for epoch in range(start.meta["epoch"] if start else 0, epochs):
        sampler.set_epoch(epoch)
        began = time.monotonic()
        for images, labels in DataLoader(train, BATCH, sampler=sampler):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 20 == 0:
                fairway.report(step=step, loss=loss)
        accuracy = measure(model, test)
        fairway.report(step=step, accuracy=accuracy)
        if fairway.rank() == 0:
            print(f"epoch {epoch + 1} of {epochs}: loss {loss:.3f}, accuracy {accuracy:.2%}, {time.monotonic() - began:.1f} s")
        with fairway.checkpoint.save(step, epoch=epoch + 1) as folder:
            torch.save(model.module.state_dict(), folder / "weights.pt")
            torch.save(optimizer.state_dict(), folder / "optimizer.pt")
        if is_time_to_stop():
            break
    # ONNX into the run's output, by rank 0, checked against the model's own answers: it becomes a version that can be served.
    folder = fairway.export(model.module.eval(), torch.zeros(2, 1, 28, 28), metrics={"accuracy": measure(model, test)})
    if folder:
        print(f"exported to {folder}")
    del model
    gc.collect()  # nothing may keep the group's threads alive when the interpreter ends
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
