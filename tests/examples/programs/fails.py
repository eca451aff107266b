"""Fails on one rank as requested: `fails.py torch|mpi|alone HOW`. The ranks connect first, so that the others lose a peer."""

import os
import signal
import sys

LIBRARY, HOW = sys.argv[1:3]
if LIBRARY == "torch":
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank, meet = dist.get_rank(), dist.barrier
elif LIBRARY == "alone":
    rank, meet = 1, lambda: None
else:
    from mpi4py import MPI

    rank, meet = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Barrier
meet()
if rank == 1:
    if HOW == "error":
        raise RuntimeError("shape mismatch: [3, 4]\nexpected [4, 3]\n====")
    if HOW == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if HOW == "import":
        import nothing_of_that_name  # noqa: F401
    if HOW == "flag":
        sys.stderr.write("usage: fails.py [-h]\nfails.py: error: unrecognized arguments: --bad\n")
        sys.exit(2)
if HOW == "stop" and rank == 0:
    import time

    import fairway

    print("asks", flush=True)
    while not fairway.should_stop():
        time.sleep(0.02)
    time.sleep(2.0)  # longer than the second that mpirun leaves its ranks after SIGTERM
    print("saved", flush=True)
meet()
