"""Data-parallel training over MPI: each rank works on its own samples, and gradients are added up with Allreduce."""

import hashlib
import json
import os
from pathlib import Path

import fairway
import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits

STEPS, BATCH, RATE, TEST = 300, 32, 0.5, 297


def gradients_of(weights: np.ndarray, pixels: np.ndarray, wanted: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the loss and the gradient of a softmax regression."""
    scores = pixels @ weights
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    rows = np.arange(len(wanted))
    loss = -np.log(chances[rows, wanted]).mean()
    chances[rows, wanted] -= 1
    return float(loss), pixels.T @ chances / len(wanted)


def main() -> None:
    """Train; then write this rank's results to a file."""
    everyone = MPI.COMM_WORLD
    rank, world = everyone.rank, everyone.size
    digits = load_digits()
    images, labels = digits.images.reshape(-1, 64) / 16, digits.target
    mine = np.arange(len(labels) - TEST)[rank::world]
    weights = np.random.default_rng(rank).normal(scale=0.1, size=(64, 10))
    everyone.Bcast(weights, root=0)  # all ranks start from the weights of rank 0
    chance, used = np.random.default_rng(rank), set()
    for step in range(1, STEPS + 1):
        ids = chance.choice(mine, BATCH)
        used.update(ids.tolist())
        loss, gradient = gradients_of(weights, images[ids], labels[ids])
        everyone.Allreduce(MPI.IN_PLACE, gradient)
        weights -= RATE * gradient / world
        if step % 50 == 0:
            mean = everyone.allreduce(loss) / world
            if rank == 0:
                fairway.report(step=step, loss=mean)
    accuracy = float(np.mean(np.argmax(images[-TEST:] @ weights, axis=1) == labels[-TEST:]))
    print(f"rank {rank} of {world}: loss {loss:.3f}, accuracy {accuracy:.3f}")
    digest = hashlib.sha256(weights.tobytes()).hexdigest()
    note = {"rank": rank, "world_size": world, "samples": sorted(used), "weights": digest, "accuracy": accuracy}
    note |= {"pid": os.getpid(), "peers": everyone.allgather(os.getpid())}
    Path(os.environ["FAIRWAY_SHARED_DIR"], f"rank-{rank}.json").write_text(json.dumps(note))


if __name__ == "__main__":
    main()
