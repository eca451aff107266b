"""The router process of one service: `python -m fairway.serving.router.process`, started by its keeper.

It inherits the listening socket as a descriptor, reads the plan from its file and later from the control socket, and serves.
SIGTERM: another router takes over; stop accepting and finish the requests in flight. SIGUSR1: the service was deleted; the
same, and requests that wait for a backend are refused at once.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import secrets
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import uvloop

from fairway.app.system.clock import SystemClock
from fairway.serving.router.access.connection_acceptor import ConnectionAcceptor
from fairway.serving.router.control_socket import RouterControlSocket
from fairway.serving.router.http1_client import Http1ClientConnection
from fairway.serving.router.observe.access_log import RequestLog, RotatedFile
from fairway.serving.router.observe.service_observer import ServiceObserver
from fairway.serving.router.router_folder import ACCESS, outcome_token, read_plan
from fairway.serving.router.routing.router_state import RouterLimits, RouterState
from fairway.serving.span_tracer import tracer_of

_SWEEP_SECONDS = 1.0
_END_SECONDS = 10.0
"""How long requests in flight may take after the service was deleted."""
_ENDING_SECONDS = 0.02
"""Interval at which an ending router checks whether the last connection is closed."""


class RouterProcess:
    """One router process."""

    def __init__(self, listener: socket.socket, folder: Path, sockets: Path, limits: RouterLimits) -> None:
        self._folder = folder
        self._sockets = sockets
        self._ended = asyncio.Event()
        self._control: RouterControlSocket
        self._desk = RouterState(secrets.token_hex(6), limits, self._wake)
        log = RequestLog(1.0, RotatedFile(folder / ACCESS).write, SystemClock().now, secrets.randbelow(1000) / 1000)
        self._observer = self._desk.observer = ServiceObserver(self._desk, log, tracer_of(os.environ, "fairway-router"))
        self._desk.at_loopback = True
        self._desk.outcome_token = self._outcome_token
        self._token = ""
        self._control = RouterControlSocket(self._desk, listener)
        self._acceptor = ConnectionAcceptor(listener, self._connection)
        self._desk.followed = self._acceptor.follow

    async def run(self, ready: int) -> None:
        """Serve until a signal ends the router; write a byte to `ready` once connections are accepted."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._drain)
        loop.add_signal_handler(signal.SIGUSR1, self._end)
        self._read_plan()
        path = self._sockets / f"{os.getpid()}.sock"
        await self._control.start(path)
        await self._acceptor.start()
        with suppress(BrokenPipeError):
            # If the keeper was killed in the meantime, the next one gets the socket from this process.
            os.write(ready, b"+")
        os.close(ready)
        gc.freeze()
        sweeper = loop.create_task(self._sweep())
        try:
            await self._ended.wait()
        finally:
            sweeper.cancel()
            path.unlink(missing_ok=True)
            await self._observer.close()

    def _connection(self) -> Http1ClientConnection:
        return Http1ClientConnection(self._desk)

    def _outcome_token(self) -> str:
        self._token = self._token or outcome_token(self._folder)
        return self._token

    def _read_plan(self) -> None:
        plan = read_plan(self._folder)
        if plan is not None:
            self._desk.put(plan)

    def _wake(self) -> None:
        self._control.wake()

    def _stop_accepting(self, patience: float) -> None:
        if not self._desk.draining:
            self._desk.draining = True
            self._acceptor.close()
            self._control.stop_listening()
        loop = asyncio.get_running_loop()
        loop.call_later(patience, self._ended.set)
        loop.call_soon(self._look_for_the_last)

    def _drain(self) -> None:
        """Stop accepting and finish the requests in flight: another router has taken over."""
        self._stop_accepting(self._desk.limits.drain)
        self._desk.drain()

    def _end(self) -> None:
        """Stop accepting and refuse the waiting requests: the service was deleted."""
        self._stop_accepting(_END_SECONDS)
        self._desk.refuse_all("the service was deleted")
        self._desk.close_idle()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self._desk.sweep()
            self._acceptor.files.look()
            if not self._desk.draining and not self._folder.exists():
                # The service's folder is gone, and so is its keeper, which would have sent a signal otherwise.
                self._end()

    def _look_for_the_last(self) -> None:
        """End once the last connection is closed."""
        if self._desk.guests or self._acceptor.pending:
            asyncio.get_running_loop().call_later(_ENDING_SECONDS, self._look_for_the_last)
        else:
            self._ended.set()


def main(arguments: list[str]) -> None:
    """Run with `LISTENER READY FOLDER SOCKETS [LIMITS]`: two descriptors, two folders, and non-default limits as JSON."""
    listener, ready, folder, sockets, *rest = arguments
    # Every request in flight takes two descriptors; the default limit of 1024 is for programs that use `select`.
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    limits = msgspec.json.decode(rest[0], type=RouterLimits) if rest else RouterLimits()

    async def serve() -> None:
        await RouterProcess(socket.socket(fileno=int(listener)), Path(folder), Path(sockets), limits).run(int(ready))

    uvloop.run(serve())


if __name__ == "__main__":
    main(sys.argv[1:])
