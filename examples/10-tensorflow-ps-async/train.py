"""Asynchronous training with parameter servers: the chief hands out batches, workers update shared weights when they are done."""

import json
import os
import sys
from collections import defaultdict
from pathlib import Path

import fairway
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

EPOCHS, BATCH, RATE, TEST = int(os.environ.get("EPOCHS", "6")), 32, 0.2, 297


def leave_note(name: str, **facts: object) -> None:
    """Write this process's results to a file, so that the run can be checked."""
    Path(os.environ["FAIRWAY_SHARED_DIR"], f"{name}.json").write_text(json.dumps({"pid": os.getpid(), **facts}))


def train(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> None:
    """Run the chief: build the model on the parameter servers, then schedule one step per batch."""
    digits = load_digits()
    images, labels = (digits.images.reshape(-1, 64) / 16).astype(np.float32), digits.target
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    tf.random.set_seed(1)
    with strategy.scope():
        hidden = tf.Variable(tf.random.normal((64, 64), stddev=0.1))
        output = tf.Variable(tf.random.normal((64, 10), stddev=0.1))
        updates = tf.Variable(0, dtype=tf.int64, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

    def logits(pixels: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(pixels @ hidden) @ output

    @tf.function
    def step(pixels: tf.Tensor, wanted: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Run one step in a worker. The weights may have changed when its gradients arrive: the price of asynchrony."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(wanted, logits(pixels)))
        for variable, gradient in zip((hidden, output), tape.gradient(loss, (hidden, output))):
            variable.assign_sub(RATE * gradient)
        updates.assign_add(1)
        return loss, tf.strings.split(tf.io.read_file("/proc/self/stat"))[0]  # the process that computed this

    samples = defaultdict(list)
    for epoch in range(EPOCHS):
        batches = np.array_split(np.random.default_rng(epoch).permutation(len(labels) - TEST), (len(labels) - TEST) // BATCH)
        results = [coordinator.schedule(step, args=(tf.constant(images[ids]), tf.constant(labels[ids]))) for ids in batches]
        coordinator.join()
        losses = []
        for ids, (loss, pid) in zip(batches, map(coordinator.fetch, results)):
            losses.append(float(loss))
            samples[int(pid)].append([epoch, ids.tolist()])
        fairway.report(step=int(updates), loss=float(np.mean(losses)))
    accuracy = float(np.mean(np.argmax(logits(images[-TEST:]), axis=1) == labels[-TEST:]))
    fairway.report(step=int(updates), accuracy=accuracy)
    print(f"{int(updates)} updates by {len(samples)} workers, accuracy {accuracy:.3f}")
    leave_note("chief-0", samples=samples, updates=int(updates), batches=EPOCHS * len(batches), accuracy=accuracy)


def main() -> None:
    """Train in the chief, which ends the job; serve its requests in parameter servers and workers."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    cluster = resolver.cluster_spec().as_dict()
    if not cluster.get("ps"):
        sys.exit("TF_CONFIG names no parameter servers; run this with `fairway run job.yaml`")
    if resolver.task_type == "chief":
        train(resolver)
        os._exit(0)  # a normal exit waits for ever if a worker is missing at that moment
    leave_note(f"{resolver.task_type}-{resolver.task_id}", world_size=len(cluster["worker"]))
    tf.distribute.Server(cluster, job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc").join()


if __name__ == "__main__":
    main()
