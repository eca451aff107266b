"""A program written for torchrun, without any use of Fairway."""

import gc
import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS, BATCH, TEST = 3, 8, 297


def main() -> None:
    dist.init_process_group("gloo")
    local_rank, rank, world = int(os.environ["LOCAL_RANK"]), dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world}, number {local_rank} in its task")
    torch.manual_seed(1)
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    train = TensorDataset(images[:-TEST], labels[:-TEST])
    sampler = DistributedSampler(train, seed=1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    step = 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for pixels, wanted in DataLoader(train, BATCH, sampler=sampler):
            loss = nn.functional.cross_entropy(model(pixels), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 0 and step % 10 == 0:
                print(f"step {step}: loss {loss.item():.4f}")
    accuracy = (model(images[-TEST:]).argmax(1) == labels[-TEST:]).float().mean()
    print(f"rank {rank}: accuracy {accuracy:.3f}")
    del model
    gc.collect()  # frees the model, so that nothing holds the process group's threads at exit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
