"""Local SGD by the processes of one replica: each trains independently, and every SYNC steps they average their weights.

Communicating once in SYNC steps instead of at every step makes training possible over a slow network.
"""

import fairway
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn

STEPS, SYNC, BATCH, TEST = 3000, 10, 16, 297


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = fairway.rank(), fairway.world_size()
    device = f"cuda:{fairway.local_rank()}" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    mine = torch.arange(len(labels) - TEST)[rank::world]
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    chance = torch.Generator().manual_seed(rank)
    for step in range(1, STEPS + 1):
        batch = mine[torch.randint(len(mine), (BATCH,), generator=chance)]
        loss = nn.functional.cross_entropy(model(images[batch].to(device)), labels[batch].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % SYNC == 0:
            for weights in model.parameters():
                dist.all_reduce(weights.data)
                weights.data /= world
            right = model(images[-TEST:].to(device)).argmax(1).cpu() == labels[-TEST:]
            accuracy = right.float().mean()
            fairway.report(step=step, loss=loss.item(), accuracy=accuracy)
            if step % 100 == 0:
                print(f"process {fairway.local_rank()} of {fairway.local_world_size()}: step {step}, accuracy {accuracy:.3f}")
            enough = torch.tensor(float(fairway.should_stop()))  # true when the document's `stop` condition holds
            dist.all_reduce(enough)
            if enough:
                break
    print(f"stopped at step {step} with accuracy {accuracy:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
