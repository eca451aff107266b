"""Accelerate: one model, prepared for the number of processes that run."""

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object, set_seed

set_seed(7)
accelerator = Accelerator(cpu=True)
inputs = torch.linspace(-1, 1, 64).reshape(64, 1)
data = torch.utils.data.TensorDataset(inputs, 3 * inputs + 0.5)
model, loader = torch.nn.Linear(1, 1), torch.utils.data.DataLoader(data, batch_size=16)
model, loader, optimizer = accelerator.prepare(model, loader, torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(5):
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
        optimizer.step()
weights = [round(float(value), 4) for value in model.parameters()]
seen = gather_object([accelerator.process_index])
print(f"rank {accelerator.process_index} of {accelerator.num_processes} has {weights} and saw {sorted(seen)}", flush=True)
# A model of several processes keeps their process group alive, and torch may abort when it frees that while Python ends.
model, loader, optimizer = accelerator.free_memory(model, loader, optimizer)
accelerator.end_training()
