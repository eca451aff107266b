"""A legacy program: it reads its role and index in the cluster from flags, and does not use Fairway.

Every worker builds the graph and updates the shared variables when it is ready, without waiting for the others.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits

TEST = 297

flags = argparse.ArgumentParser()
flags.add_argument("--ps_hosts", required=True, help="host:port,host:port,...")
flags.add_argument("--worker_hosts", required=True, help="host:port,host:port,...")
flags.add_argument("--job_name", required=True, choices=["ps", "worker"])
flags.add_argument("--task_index", required=True, type=int)
flags.add_argument("--train_steps", type=int, default=600, help="updates by all workers together")
flags.add_argument("--batch_size", type=int, default=32)
flags.add_argument("--learning_rate", type=float, default=0.2)
flags.add_argument("--log_dir", required=True)
FLAGS = flags.parse_args()


def main() -> None:
    """Serve variables, or train."""
    tf.disable_eager_execution()
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    workers, me = cluster.num_tasks("worker"), f"/job:worker/task:{FLAGS.task_index}"
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=me)):
        global_step = tf.train.get_or_create_global_step()
        x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
        hidden = tf.nn.relu(tf.matmul(x, tf.get_variable("w1", [64, 64])))
        logits = tf.matmul(hidden, tf.get_variable("w2", [64, 10]))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
        train = tf.train.GradientDescentOptimizer(FLAGS.learning_rate).minimize(loss, global_step=global_step)
        init = tf.global_variables_initializer()

    digits = load_digits()
    images, labels = digits.images.reshape(-1, 64) / 16, digits.target
    mine = np.arange(len(labels) - TEST)[FLAGS.task_index :: workers]
    supervisor = tf.train.Supervisor(is_chief=FLAGS.task_index == 0, init_op=init, global_step=global_step, recovery_wait_secs=1)
    config = tf.ConfigProto(device_filters=["/job:ps", me])
    local_step = step = 0
    with supervisor.prepare_or_wait_for_session(server.target, config=config) as session:
        while step < FLAGS.train_steps:
            batch = np.random.choice(mine, FLAGS.batch_size)
            value, _, step = session.run([loss, train, global_step], {x: images[batch], y: labels[batch]})
            local_step += 1
            if local_step % 50 == 0:
                print(f"worker {FLAGS.task_index}: local step {local_step}, step={step} loss={value:.4f}", flush=True)
        step, score = session.run([global_step, accuracy], {x: images[-TEST:], y: labels[-TEST:]})
    print(f"worker {FLAGS.task_index}: {local_step} of {step} updates were mine, accuracy={score:.4f}")
    note = {"rank": FLAGS.task_index, "world_size": workers, "samples": mine.tolist()}
    note |= {"local_steps": local_step, "steps": int(step), "accuracy": float(score)}
    Path(FLAGS.log_dir, f"rank-{FLAGS.task_index}.json").write_text(json.dumps(note))


main()
