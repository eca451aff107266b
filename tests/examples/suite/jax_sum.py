"""JAX over processes: all processes see all devices, and each contributes to a sum over them."""

import os

import jax

jax.config.update("jax_platforms", "cpu")
if "ADDRESS" in os.environ:
    jax.distributed.initialize(os.environ["ADDRESS"], int(os.environ["COUNT"]), int(os.environ["PLACE"]))
else:
    jax.distributed.initialize()
from jax.experimental import multihost_utils  # noqa: E402 - it asks for the devices

found = multihost_utils.process_allgather(jax.numpy.array([jax.process_index() + 1.0]))
print(f"rank {jax.process_index()} of {jax.process_count()} has {float(found.sum()):.1f}", flush=True)
