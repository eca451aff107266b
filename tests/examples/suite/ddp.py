"""Two ranks train one model on their own halves of the data; each prints its rank and its result."""

import os

import torch
from torch import distributed

torch.manual_seed(7)
distributed.init_process_group("gloo")
rank, world = distributed.get_rank(), distributed.get_world_size()
inputs = torch.linspace(-1, 1, 64).reshape(64, 1)
targets = 3 * inputs + 0.5
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs[rank::world]), targets[rank::world]).backward()
    optimizer.step()
weights = [round(float(value), 4) for value in model.parameters()]
print(f"rank {rank} of {world} has {weights}", flush=True)
distributed.barrier()  # No rank ends while another still communicates with it.
distributed.destroy_process_group()
assert int(os.environ.get("EXPECT", world)) == world
