"""Fails in one way on rank 1: failing.py WAY MENDED. When the file MENDED exists, the fault has been removed and it succeeds.

The other ranks wait for rank 1 as a collective would, and lose their connection when it ends. It can be started by Fairway,
`torchrun` or `mpirun`, and needs only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import time

WAY, MENDED = sys.argv[1:3]
RANK = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["RANK"])
WORLD = int(os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ["WORLD_SIZE"])
BAD = 1


def missing_module() -> None:
    import no_such_module_of_ours  # noqa: F401


def memory() -> None:
    kept = [bytearray(b"x") * (64 << 20) for _ in range(16)]
    print(len(kept))
    # The limit is checked at intervals.
    time.sleep(3)
    # With enough memory the fault is fixed; the file lets the other rank continue too.
    with open(MENDED, "w"):
        pass


def port() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", int(os.environ["TAKEN_PORT"])))


def missing_file() -> None:
    with open("data/train.csv") as file:
        print(file.read())


def not_a_number() -> None:
    for step in range(1, 4):
        print(f"step={step} loss={'nan' if step > 1 else 0.5}", flush=True)
    message = "loss is nan at step 3"
    raise FloatingPointError(message)


def hang() -> None:
    time.sleep(3600)


def segfault() -> None:
    ctypes.string_at(0)


def world_size() -> None:
    wanted = 4
    message = f"world size {WORLD} does not match tensor parallel size {wanted}"
    raise ValueError(message)


def disk_full() -> None:
    with open("/dev/full", "w") as file:
        file.write("x" * 100_000)


def gpu_memory() -> None:
    class OutOfMemoryError(RuntimeError):
        """As PyTorch names it."""

    OutOfMemoryError.__module__ = "torch"
    message = (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.72 GiB of which 1.10 GiB is free."
    )
    raise OutOfMemoryError(message)


def bad_flag() -> None:
    import argparse

    parser = argparse.ArgumentParser(prog="failing.py")
    parser.add_argument("--learning-rate", type=float)
    parser.parse_args(sys.argv[3:])


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Fail on rank 1, unless the fault was removed."""
    print(f"rank {RANK} of {WORLD} starts", flush=True)
    if not os.path.exists(MENDED):
        if WAY == "bad_flag" and "--learning-rate" in sys.argv:
            return
        if RANK == BAD:
            globals()[WAY]()
        else:
            # A collective of two ranks in which the other rank never answers.
            while not os.path.exists(MENDED):
                time.sleep(0.05)
    print(f"rank {RANK} is done", flush=True)


main()
