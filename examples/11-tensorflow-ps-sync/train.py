"""Synchronous training with parameter servers: a step takes one gradient from each worker, so all use the same weights."""

import hashlib
import json
import os
import sys
from pathlib import Path

import fairway
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

v1 = tf.compat.v1
STEPS, BATCH, RATE, TEST = 250, 32, 0.5, 297


class Graph:
    """Variables, gradient accumulators and one queue per worker on the parameter servers; computation in the worker."""

    def __init__(self, cluster: tf.train.ClusterSpec, device: str, rank: int) -> None:
        workers = cluster.num_tasks("worker")
        with v1.device(v1.train.replica_device_setter(cluster=cluster, worker_device=device)):
            self.step = v1.train.get_or_create_global_step()
            self.pixels, self.wanted = v1.placeholder(tf.float32, (None, 64)), v1.placeholder(tf.int64, (None,))
            self.weights = [v1.get_variable("hidden", (64, 64)), v1.get_variable("output", (64, 10))]
            self.logits = tf.nn.relu(self.pixels @ self.weights[0]) @ self.weights[1]
            self.loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(self.wanted, self.logits))
            optimizer = v1.train.GradientDescentOptimizer(RATE)
            gradients = [gradient for gradient, _ in optimizer.compute_gradients(self.loss, self.weights)]
        with v1.device("/job:ps/task:0"):
            sums = [v1.ConditionalAccumulator(tf.float32, each.shape, shared_name=f"sum-{each.op.name}") for each in self.weights]
            queues = [v1.FIFOQueue(1, tf.int64, shapes=(), shared_name=f"worker-{index}-may-go-on") for index in range(workers)]
        self.give = tf.group(*[total.apply_grad(gradient, self.step) for total, gradient in zip(sums, gradients)])
        means = [total.take_grad(workers) for total in sums]  # waits until all workers have contributed
        with tf.control_dependencies([optimizer.apply_gradients(zip(means, self.weights), global_step=self.step)]):
            self.finish_step = tf.group(*[queue.enqueue(self.step) for queue in queues])
        self.go_on = queues[rank].dequeue()


def work(server: tf.distribute.Server, cluster: tf.train.ClusterSpec, rank: int) -> None:
    """Run a worker. Worker 0 also creates the variables and finishes each step, in its own loop, so that no thread remains."""
    v1.disable_eager_execution()
    v1.set_random_seed(1)
    workers, device = cluster.num_tasks("worker"), f"/job:worker/task:{rank}"
    graph = Graph(cluster, device, rank)
    digits = load_digits()
    images, labels = digits.images.reshape(-1, 64) / 16, digits.target
    mine = np.arange(len(labels) - TEST)[rank::workers]
    chance = np.random.default_rng(rank)
    config = v1.ConfigProto(device_filters=["/job:ps", device])  # so that a worker that has ended does not block the others
    sessions = v1.train.SessionManager(ready_op=v1.report_uninitialized_variables(), recovery_wait_secs=1)
    if rank == 0:
        sessions.prepare_session(server.target, init_op=v1.global_variables_initializer(), config=config).close()
    with sessions.wait_for_session(server.target, config=config) as session:
        given = step = 0
        while step < STEPS:
            ids = chance.choice(mine, BATCH)
            loss, _ = session.run([graph.loss, graph.give], {graph.pixels: images[ids], graph.wanted: labels[ids]})
            given += 1
            if rank == 0:
                session.run(graph.finish_step)
            step = int(session.run(graph.go_on))
            if rank == 0 and step % 25 == 0:
                fairway.report(step=step, loss=float(loss))
        weights, guess = session.run([graph.weights, graph.logits], {graph.pixels: images[-TEST:]})
    accuracy = float(np.mean(np.argmax(guess, axis=1) == labels[-TEST:]))
    print(f"worker {rank} of {workers}: {step} steps, accuracy {accuracy:.3f}")
    digest = hashlib.sha256(b"".join(each.tobytes() for each in weights)).hexdigest()
    note = {"rank": rank, "world_size": workers, "samples": mine.tolist(), "steps": step, "given": given, "weights": digest}
    Path(os.environ["FAIRWAY_SHARED_DIR"], f"rank-{rank}.json").write_text(json.dumps({**note, "accuracy": accuracy}))


def main() -> None:
    """Parameter servers hold variables until the job ends; workers train."""
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    if not config.get("cluster", {}).get("ps"):
        sys.exit("TF_CONFIG names no parameter servers; run this with `fairway run job.yaml`")
    cluster, task = tf.train.ClusterSpec(config["cluster"]), config["task"]
    server = tf.distribute.Server(cluster, job_name=task["type"], task_index=task["index"], protocol="grpc")
    if task["type"] == "ps":
        server.join()
    work(server, cluster, task["index"])


if __name__ == "__main__":
    main()
