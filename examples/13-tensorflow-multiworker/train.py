"""Synchronous data-parallel training: every worker holds the whole model, and gradients are averaged by all-reduce."""

import hashlib
import json
import os
from pathlib import Path

import fairway
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

EPOCHS, BATCH, RATE, TEST = 8, 32, 0.5, 297


def main() -> None:
    """Train; then write this worker's results to a file."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # reads TF_CONFIG
    rank, world = strategy.cluster_resolver.task_id or 0, strategy.num_replicas_in_sync
    digits = load_digits()
    images, labels = (digits.images.reshape(-1, 64) / 16).astype(np.float32), digits.target.astype(np.int64)
    mine = np.arange(len(labels) - TEST)[rank::world]
    mine = mine[: (len(labels) - TEST) // world]  # equal parts: a worker with an additional step would wait for ever
    tf.random.set_seed(1)
    with strategy.scope():
        hidden = tf.Variable(tf.random.normal((64, 64), stddev=0.1))
        output = tf.Variable(tf.random.normal((64, 10), stddev=0.1))

    def logits(pixels: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(pixels @ hidden) @ output

    @tf.function
    def step(pixels: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        def replica() -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(wanted, logits(pixels)))
            context = tf.distribute.get_replica_context()
            gradients = context.all_reduce(tf.distribute.ReduceOp.MEAN, tape.gradient(loss, [hidden, output]))
            hidden.assign_sub(RATE * gradients[0])
            output.assign_sub(RATE * gradients[1])
            return context.all_reduce(tf.distribute.ReduceOp.MEAN, loss)

        return strategy.run(replica)

    chance, used, done = np.random.default_rng(rank), set(), 0
    for _ in range(EPOCHS):
        for ids in np.array_split(chance.permutation(mine), len(mine) // BATCH):
            loss = step(tf.constant(images[ids]), tf.constant(labels[ids]))
            used.update(ids.tolist())
            done += 1
        if rank == 0:
            fairway.report(step=done, loss=float(loss))
    accuracy = float(np.mean(np.argmax(logits(images[-TEST:]), axis=1) == labels[-TEST:]))
    print(f"worker {rank} of {world}: {done} steps, accuracy {accuracy:.3f}")
    weights = hashlib.sha256(hidden.numpy().tobytes() + output.numpy().tobytes()).hexdigest()
    note = {"rank": rank, "world_size": world, "samples": sorted(used), "steps": done, "weights": weights, "accuracy": accuracy}
    Path(os.environ["FAIRWAY_SHARED_DIR"], f"rank-{rank}.json").write_text(json.dumps(note))


if __name__ == "__main__":
    main()
