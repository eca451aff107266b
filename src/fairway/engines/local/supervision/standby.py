"""A supervisor that has no order yet: it keeps a spare interpreter, and waits. Standard library only.

It ends, and the spare with it, when the daemon's end of its socket closes, however the daemon died, and
when the spare gives up.
"""

from __future__ import annotations

import os
import signal
import socket

from fairway.engines.local.supervision import kernel, order
from fairway.engines.local.supervision.reactor import READ, Reactor
from fairway.engines.local.supervision.spare import Spare
from fairway.engines.local.supervision.supervisor import supervise


def stand_by(text: bytes, descriptor: int) -> None:
    """Start a spare as the request says, wait for an order, and be its supervisor. Never returns."""
    try:
        _wait(order.Order.decode(text), descriptor)
    finally:
        os._exit(1)


def _wait(request: order.Order, descriptor: int) -> None:
    kernel.name_process("fairway-standby")
    # The nursery lets the kernel forget its children; this process must hear how its own end.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(fileno=descriptor) as channel:
        spare = Spare(request)
        heard: list[int] = []
        reactor = Reactor()
        reactor.watch(channel.fileno(), READ, lambda _events: heard.append(channel.fileno()))
        reactor.watch(spare.fileno(), READ, lambda _events: heard.append(spare.fileno()))
        while channel.fileno() not in heard:
            reactor.wait(None)
            if spare.fileno() in heard and not spare.listen():
                break
            heard = [each for each in heard if each == channel.fileno()]
        received = order.receive(channel) if channel.fileno() in heard else None
        if received is None:
            spare.end()
            return
    supervise(*received, spare)
