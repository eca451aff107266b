"""Training through MXNet's key-value store: workers push gradients to servers and pull back the weights (legacy)."""

import hashlib
import json
import os
from pathlib import Path

import fairway
import mxnet as mx  # a scheduler or a server stays inside this import until the workers have ended
import numpy as np
from mxnet import autograd, nd
from sklearn.datasets import load_digits

STEPS, BATCH, RATE, TEST = 200, 32, 0.5, 297


def main() -> None:
    """Train; then write this worker's results to a file."""
    store = mx.kv.create("dist_sync")  # a push takes effect when all workers have pushed
    store.set_optimizer(mx.optimizer.SGD(learning_rate=RATE, rescale_grad=1 / store.num_workers))
    rank, world = store.rank, store.num_workers
    digits = load_digits()
    images, labels = (digits.images.reshape(-1, 64) / 16).astype(np.float32), digits.target
    mine = np.arange(len(labels) - TEST)[rank::world]
    chance, used = np.random.default_rng(rank), set()
    start = np.random.default_rng(1)
    weights = [nd.array(start.normal(scale=0.1, size=shape)) for shape in ((64, 64), (64, 10))]
    for key, weight in enumerate(weights):
        store.init(key, weight)
        weight.attach_grad()
    criterion = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for step in range(1, STEPS + 1):
        ids = chance.choice(mine, BATCH)
        used.update(ids.tolist())
        with autograd.record():
            scores = nd.dot(nd.relu(nd.dot(nd.array(images[ids]), weights[0])), weights[1])
            loss = criterion(scores, nd.array(labels[ids])).mean()
        loss.backward()
        for key, weight in enumerate(weights):
            store.push(key, weight.grad)
            store.pull(key, weight)
        if rank == 0 and step % 20 == 0:
            fairway.report(step=step, loss=float(loss.asscalar()))
    scores = nd.dot(nd.relu(nd.dot(nd.array(images[-TEST:]), weights[0])), weights[1])
    accuracy = float(np.mean(scores.asnumpy().argmax(axis=1) == labels[-TEST:]))
    print(f"worker {rank} of {world}: loss {loss.asscalar():.3f}, accuracy {accuracy:.3f}")
    digest = hashlib.sha256(b"".join(weight.asnumpy().tobytes() for weight in weights)).hexdigest()
    note = {"rank": rank, "world_size": world, "samples": sorted(used), "weights": digest, "accuracy": accuracy}
    Path(os.environ["FAIRWAY_SHARED_DIR"], f"rank-{rank}.json").write_text(json.dumps(note))


if __name__ == "__main__":
    main()
