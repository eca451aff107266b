"""Train a perceptron on handwritten digits with PyTorch; save it as a program of torch.export, and its weights."""

import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

folder = Path(sys.argv[1])
torch.manual_seed(0)
torch.set_num_threads(1)
digits = load_digits()
images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(120):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images[:1500]), labels[:1500]).backward()
    optimizer.step()
with torch.no_grad():
    logits = model(images[1500:])
np.savez(
    folder / "digits.npz", images=images[1500:].numpy(), labels=labels[1500:].numpy(), logits=logits.numpy(),
    **{name.replace(".", "_"): value.detach().numpy() for name, value in model.state_dict().items()},
)  # fmt: skip
(folder / "torch").mkdir()
batch = torch.export.Dim("batch", min=1, max=4096)
program = torch.export.export(model.eval(), (images[:2],), dynamic_shapes=({0: batch},))
torch.export.save(program, folder / "torch" / "model.pt2")
