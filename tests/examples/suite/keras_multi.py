"""Keras over several workers: `MultiWorkerMirroredStrategy`, which reads TF_CONFIG."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import numpy
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
place = strategy.cluster_resolver.task_id or 0
world = strategy.num_replicas_in_sync
keras.utils.set_random_seed(7)
inputs = numpy.linspace(-1, 1, 64, dtype="float32").reshape(64, 1)
data = tf.data.Dataset.from_tensor_slices((inputs, 3 * inputs + 0.5)).batch(16)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
with strategy.scope():
    weight, bias = tf.Variable(0.0), tf.Variable(0.0)


@tf.function
def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """One step of gradient descent on the sum over all replicas."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((weight * x + bias - y) ** 2) / 16.0
    slopes = tape.gradient(loss, [weight, bias])
    context = tf.distribute.get_replica_context()
    slopes = context.all_reduce(tf.distribute.ReduceOp.SUM, slopes)
    for variable, slope in zip((weight, bias), slopes, strict=True):
        variable.assign_sub(0.1 * slope)
    return loss


for x, y in strategy.experimental_distribute_dataset(data.with_options(options)):
    strategy.run(step, (x, y))
print(f"rank {place} of {world} has {float(weight.numpy()):.4f} {float(bias.numpy()):.4f}", flush=True)
