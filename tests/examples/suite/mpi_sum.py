"""MPI: a sum over all ranks."""

from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
print(f"rank {world.rank} of {world.size} has {total}", flush=True)
