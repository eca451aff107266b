"""A supervisor without an order yet: it keeps a spare interpreter, and waits. Standard library only.

It ends, together with the spare, when the daemon's end of its socket closes, however the daemon died, and when the spare fails.
"""

from __future__ import annotations

import os
import signal
import socket

from fairway.engines.local.supervision import order
from fairway.engines.local.supervision.process import kernel_call
from fairway.engines.local.supervision.reactor import READ, Reactor
from fairway.engines.local.supervision.spare_process import SpareProcess
from fairway.engines.local.supervision.supervisor import supervise


def stand_by(text: bytes, descriptor: int) -> None:
    """Start a spare as the request describes, wait for an order, and supervise it. Never returns."""
    try:
        _wait(order.TaskOrder.decode(text), descriptor)
    finally:
        os._exit(1)


def _wait(request: order.TaskOrder, descriptor: int) -> None:
    kernel_call.name_process("fairway-standby")
    # The fork server lets the kernel reap its children; this process needs the exit codes of its own.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(fileno=descriptor) as channel:
        spare = SpareProcess(request)
        readable: list[int] = []
        reactor = Reactor()
        reactor.watch(channel.fileno(), READ, lambda _events: readable.append(channel.fileno()))
        reactor.watch(spare.fileno(), READ, lambda _events: readable.append(spare.fileno()))
        while channel.fileno() not in readable:
            reactor.wait(None)
            if spare.fileno() in readable and not spare.listen():
                break
            readable = [descriptor_ready for descriptor_ready in readable if descriptor_ready == channel.fileno()]
        received = order.receive(channel) if channel.fileno() in readable else None
        if received is None:
            spare.end()
            return
    supervise(*received, spare)
