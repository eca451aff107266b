"""The HTTP server around the application, and how it ends: nobody who was let in is sent away."""

from __future__ import annotations

import resource
import signal
import socket
import sys
import time
from types import FrameType

from uvicorn.config import Config
from uvicorn.server import Server as UvicornServer

from fairway.serving.replica.asgi import App
from fairway.serving.replica.lane import Lane, receiving, sweep
from fairway.serving.replica.streams import connection as streams

_FILES = 1 << 16
QUIET = 0.5
"""Seconds without a request after which a draining server closes the connections that are open."""

GONE = 0.2
"""Seconds for which a replica without its model answers 503 with `Connection: close`, so that routers drop their connections."""
MOST_GONE = 2.0
"""The same where requests are still under way."""


class Server(UvicornServer):
    """Uvicorn, with another end.

    Promises: after SIGTERM readiness is false at once; what is under way, and what still comes over open connections, is answered
    (with `Connection: close`); then the process ends with 0. A second SIGINT ends it at once.
    """

    def __init__(self, app: App, grace: float, hello: str = "") -> None:
        super().__init__(
            Config(
                app,
                http=Lane,
                loop="uvloop",
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=600,  # the router keeps its connections; it closes them, not we
                timeout_graceful_shutdown=max(1, round(grace)),
            )
        )
        self._app = app
        self._grace = grace
        self._hello = hello
        self._told = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        sys.stderr.write(self._hello)
        sys.stderr.flush()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; the loop's ticks see when it is done."""
        if self._app.draining and sig == signal.SIGINT:
            self.force_exit = self.should_exit = True
        self._app.draining = True
        self._told = self._told or time.perf_counter()

    def give_up(self) -> None:
        """End soon: the model is gone. Requests under way are answered first. May be called from any thread."""
        self._app.draining = self._app.gone = True
        self._told = self._told or time.perf_counter()

    async def on_tick(self, counter: int) -> bool:
        """Whether it is time to end."""
        now = time.perf_counter()
        sweep(now, self._app.bodies.limits.seconds)
        streams.sweep(now, self._app.bodies.limits.seconds, draining=self._app.draining)
        if self._app.draining:
            quiet = (
                not self._app.busy and not (receiving() or streams.receiving()) and now - max(self._told, self._app.last) > QUIET
            )
            self.should_exit = self.should_exit or quiet or now - self._told > self._grace
        if self._app.gone:
            self._leave(now)
        return await super().on_tick(counter)

    def _leave(self, now: float) -> None:
        """Refuse connections at once, and end although requests still come: each of them costs a router a second attempt."""
        for server in self.servers:
            server.close()
        waited = now - self._told
        self.should_exit = self.should_exit or (waited > GONE and not self._app.busy) or waited > MOST_GONE


def raise_file_limit() -> None:
    """As many connections as the system lets this process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and (hard == resource.RLIM_INFINITY or soft < hard):
        wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def listen(host: str, port: int) -> socket.socket:
    """A socket there; 0: a port that the kernel chooses."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    return listener
