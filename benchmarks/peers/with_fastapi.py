"""LeNet-5 behind FastAPI with PyTorch, as people write it. Not a benchmark by itself."""

from __future__ import annotations

import torch
from fastapi import FastAPI
from lenet import lenet
from pydantic import BaseModel

torch.set_num_threads(1)
model = lenet().eval()
app = FastAPI()


class Picture(BaseModel):
    """What is sent."""

    data: list[float]


@app.post("/predict")
async def predict(picture: Picture) -> list[float]:
    """One picture."""
    with torch.inference_mode():
        output = model(torch.tensor(picture.data).reshape(1, 1, 28, 28))
    return output.ravel().tolist()
