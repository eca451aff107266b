"""The fork server: a small process of the daemon that forks supervisors. Standard library only.

A fork of this process costs a millisecond; a fork of the daemon would copy all that the daemon has mapped, and a new interpreter
takes twenty. It ends when the daemon's end of its socket closes, however the daemon died; the supervisors live on.
"""

from __future__ import annotations

import gc
import os
import signal
import socket

from fairway.engines.local.supervision import order
from fairway.engines.local.supervision.process import kernel_call
from fairway.engines.local.supervision.process.process_identity import boot_id
from fairway.engines.local.supervision.standby import stand_by
from fairway.engines.local.supervision.supervisor import supervise


def main(descriptor: int) -> None:
    """Fork a supervisor for each order that comes through the socket, until its other end closes."""
    kernel_call.name_process("fairway-forker")
    # Tasks start with default signal handling, however the daemon was started.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Supervisors are reaped by the kernel, which drops their exit codes.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Read once, for all supervisors.
    boot_id()
    # Garbage collection would write to every page that the supervisors share.
    gc.disable()
    gc.freeze()
    with socket.socket(fileno=descriptor) as channel:
        while (received := order.receive(channel)) is not None:
            _hand_over(channel, *received)


def _hand_over(channel: socket.socket, text: bytes, descriptors: list[int]) -> None:
    """Fork; the child keeps the descriptors, this process closes them."""
    waits = text.startswith(order.STANDBY)
    try:
        pid = os.fork()
    except OSError as problem:
        if not waits:
            words = f"error no process could be created: {problem.strerror}\n"
            os.write(descriptors[1], words.encode())
        pid = -1
    if pid == 0:
        # The daemon must notice the end of the fork server even while this supervisor lives.
        channel.close()
        if waits:
            stand_by(text.removeprefix(order.STANDBY), descriptors[0])
        supervise(text, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
