"""Train LeNet-5 on handwritten digits with two workers: each trains on its part of the images, and gradients are averaged."""

import gc
import sys

import fairway
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS, BATCH, RATE = 1, 64, 2e-3


def load_images() -> tuple[TensorDataset, TensorDataset]:
    """Load MNIST with the module in `examples/data`, the job's input `fetcher`. Rank 0 goes first and fills the cache."""
    sys.path.append(fairway.data("fetcher"))
    import mnist

    if dist.get_rank() > 0:
        dist.barrier()
    found = mnist.load()
    if dist.get_rank() == 0:
        dist.barrier()
        print(f"{found.source}: {len(found.train_labels):,} images to train with, {len(found.test_labels):,} to test with")
    images = [torch.tensor(pixels, dtype=torch.float32).unsqueeze(1) / 255 for pixels in (found.train_images, found.test_images)]
    labels = [torch.tensor(numbers, dtype=torch.int64) for numbers in (found.train_labels, found.test_labels)]
    return TensorDataset(images[0], labels[0]), TensorDataset(images[1], labels[1])


def make_lenet() -> nn.Module:
    features = [nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2)]
    classifier = [nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)]
    return nn.Sequential(*features, *classifier)


def main() -> None:
    dist.init_process_group("gloo")  # "nccl" on GPUs; the peers are in the environment already
    torch.manual_seed(1)
    train, test = load_images()
    sampler = DistributedSampler(train, seed=1)
    model = DistributedDataParallel(make_lenet())
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    step = 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for images, labels in DataLoader(train, BATCH, sampler=sampler):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 20 == 0:
                fairway.report(step=step, loss=loss.item())
        with torch.no_grad():
            images, labels = test.tensors
            accuracy = (model(images).argmax(1) == labels).float().mean()
        fairway.report(step=step, accuracy=accuracy)
        print(f"epoch {epoch}: worker {dist.get_rank()} of {dist.get_world_size()}, loss {loss:.3f}, accuracy {accuracy:.3f}")
    fairway.export(model, images[:2])  # rank 0 writes ONNX and checks it against the model's own outputs
    del model
    gc.collect()  # frees the model, so that nothing holds the process group's threads at exit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
