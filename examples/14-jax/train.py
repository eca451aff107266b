"""One program, many processes: JAX sees the devices of all of them as one mesh, and the batch is split over it."""

import hashlib
import json
import os
from pathlib import Path

import fairway
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

STEPS, BATCH, RATE, TEST = 200, 64, 0.5, 297


def logits(weights: dict, pixels: jax.Array) -> jax.Array:
    return jax.nn.relu(pixels @ weights["hidden"]) @ weights["output"]


def loss_of(weights: dict, pixels: jax.Array, wanted: jax.Array) -> jax.Array:
    """Mean over the global batch; the compiler adds the all-reduce that this needs."""
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits(weights, pixels)), wanted[:, None], axis=1))


@jax.jit
def step(weights: dict, pixels: jax.Array, wanted: jax.Array) -> tuple[dict, jax.Array]:
    loss, gradients = jax.value_and_grad(loss_of)(weights, pixels, wanted)
    return jax.tree.map(lambda weight, gradient: weight - RATE * gradient, weights, gradients), loss


def main() -> None:
    """Train; then write this process's results to a file."""
    jax.distributed.initialize()  # finds its peers in the environment; fails without them
    rank, world = jax.process_index(), jax.process_count()
    mesh = Mesh(jax.devices(), ("data",))
    split, copied = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    digits = load_digits()
    images, labels = (digits.images.reshape(-1, 64) / 16).astype(np.float32), digits.target
    mine = np.arange(len(labels) - TEST)[rank::world]
    first, second = jax.random.split(jax.random.key(1))
    start = {"hidden": jax.random.normal(first, (64, 64)) * 0.1, "output": jax.random.normal(second, (64, 10)) * 0.1}
    weights = jax.device_put(start, copied)
    chance, used = np.random.default_rng(rank), set()
    for done in range(1, STEPS + 1):
        ids = chance.choice(mine, BATCH // world)
        used.update(ids.tolist())
        batch = (jax.make_array_from_process_local_data(split, part[ids]) for part in (images, labels))
        weights, loss = step(weights, *batch)
        if rank == 0 and done % 20 == 0:
            fairway.report(step=done, loss=float(loss))
    local = jax.tree.map(lambda weight: np.asarray(weight.addressable_data(0)), weights)
    accuracy = float(np.mean(np.argmax(logits(local, images[-TEST:]), axis=1) == labels[-TEST:]))
    print(f"process {rank} of {world}, {len(jax.devices())} devices: loss {float(loss):.3f}, accuracy {accuracy:.3f}")
    digest = hashlib.sha256(local["hidden"].tobytes() + local["output"].tobytes()).hexdigest()
    present = multihost_utils.process_allgather(np.array(os.getpid())).tolist()
    note = {"rank": rank, "world_size": world, "samples": sorted(used), "weights": digest, "accuracy": accuracy}
    note |= {"pid": os.getpid(), "peers": present}
    Path(os.environ["FAIRWAY_SHARED_DIR"], f"rank-{rank}.json").write_text(json.dumps(note))


if __name__ == "__main__":
    main()
