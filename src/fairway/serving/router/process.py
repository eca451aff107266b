"""The router process of one service: `python -m fairway.serving.router.process`, started by its keeper.

It gets the listening socket as a descriptor, takes the plan from the file and then from the control socket, and serves.
SIGTERM: another one takes over; accept nothing more, finish what there is. SIGUSR1: the service goes; the same, and those
who wait for a backend are told so at once.
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

from fairway.app.system import SystemClock
from fairway.serving.router.access.acceptor import Acceptor
from fairway.serving.router.client import ClientConnection
from fairway.serving.router.control import Control
from fairway.serving.router.desk import Desk, Limits
from fairway.serving.router.home import ACCESS, outcome_token, read_plan
from fairway.serving.router.observe.access_log import RequestLog, RotatedFile
from fairway.serving.router.observe.observer import ServiceObserver
from fairway.serving.spans import tracer_of

_SWEEP_SECONDS = 1.0
_END_SECONDS = 10.0
"""How long requests under way have when the service goes."""
_ENDING_SECONDS = 0.02
"""How often it is looked whether the last connection has gone."""


class Process:
    """One router at work."""

    def __init__(self, listener: socket.socket, folder: Path, sockets: Path, limits: Limits) -> None:
        self._folder = folder
        self._sockets = sockets
        self._ended = asyncio.Event()
        self._control: Control
        self._desk = Desk(secrets.token_hex(6), limits, self._wake)
        log = RequestLog(1.0, RotatedFile(folder / ACCESS).write, SystemClock().now, secrets.randbelow(1000) / 1000)
        self._observer = self._desk.observer = ServiceObserver(self._desk, log, tracer_of(os.environ, "fairway-router"))
        self._desk.at_loopback = True
        self._desk.outcome_token = self._outcome_token
        self._token = ""
        self._control = Control(self._desk, listener)
        self._acceptor = Acceptor(listener, self._connection)
        self._desk.followed = self._acceptor.follow

    async def run(self, ready: int) -> None:
        """Serve until told to end; a byte goes to `ready` once connections are accepted."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._drain)
        loop.add_signal_handler(signal.SIGUSR1, self._end)
        self._read_plan()
        path = self._sockets / f"{os.getpid()}.sock"
        await self._control.start(path)
        await self._acceptor.start()
        with suppress(BrokenPipeError):
            # Where the keeper was killed meanwhile, the next one gets the socket from here.
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

    def _connection(self) -> ClientConnection:
        return ClientConnection(self._desk)

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
        """Another router has taken over."""
        self._stop_accepting(self._desk.limits.drain)
        self._desk.drain()

    def _end(self) -> None:
        """The service goes."""
        self._stop_accepting(_END_SECONDS)
        self._desk.refuse_all("the service was deleted")
        self._desk.close_idle()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self._desk.sweep()
            self._acceptor.files.look()
            if not self._desk.draining and not self._folder.exists():
                # The service's folder is gone, and its keeper too, or it would have said so.
                self._end()

    def _look_for_the_last(self) -> None:
        """End with the last connection."""
        if self._desk.guests or self._acceptor.pending:
            asyncio.get_running_loop().call_later(_ENDING_SECONDS, self._look_for_the_last)
        else:
            self._ended.set()


def main(arguments: list[str]) -> None:
    """`LISTENER READY FOLDER SOCKETS [LIMITS]`: two descriptors, two folders, and limits other than usual as JSON."""
    listener, ready, folder, sockets, *rest = arguments
    # Every request under way takes two descriptors; the usual limit of 1024 is for programs that use `select`.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    limits = msgspec.json.decode(rest[0], type=Limits) if rest else Limits()

    async def serve() -> None:
        await Process(socket.socket(fileno=int(listener)), Path(folder), Path(sockets), limits).run(int(ready))

    uvloop.run(serve())


if __name__ == "__main__":
    main(sys.argv[1:])
