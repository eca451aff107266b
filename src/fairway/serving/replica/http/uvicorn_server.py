"""The HTTP server of the application, with a graceful shutdown that answers every accepted request."""

from __future__ import annotations

import resource
import signal
import socket
import sys
import time
from types import FrameType

from uvicorn.config import Config
from uvicorn.server import Server as UvicornServer

from fairway.serving.replica.http.application import ReplicaApplication
from fairway.serving.replica.http.fast_path import FastPathConnection, receiving, sweep
from fairway.serving.replica.http.http2 import http2_connection as streams

_FILES = 1 << 16
QUIET = 0.5
"""Seconds without a request after which a draining server closes its open connections."""

GONE = 0.2
"""Seconds for which a replica without its model answers 503 with `Connection: close`, so that routers drop their connections."""
MOST_GONE = 2.0
"""The same while requests are in flight."""


class ReplicaServer(UvicornServer):
    """Uvicorn with a different shutdown.

    Promises: after SIGTERM readiness is false at once. Requests in flight, and those that still arrive over open connections, are
    answered (with `Connection: close`); then the process ends with 0. A second SIGINT ends it at once.
    """

    def __init__(self, app: ReplicaApplication, grace: float, hello: str = "") -> None:
        super().__init__(
            Config(
                app,
                http=FastPathConnection,
                loop="uvloop",
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=600,  # the router keeps its connections alive and is the one to close them
                timeout_graceful_shutdown=max(1, round(grace)),
            )
        )
        self._app = app
        self._grace = grace
        self._hello = hello
        self._told = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and print the greeting."""
        await super().startup(sockets)
        sys.stderr.write(self._hello)
        sys.stderr.flush()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start draining; `on_tick` detects when it is done."""
        if self._app.draining and sig == signal.SIGINT:
            self.force_exit = self.should_exit = True
        self._app.draining = True
        self._told = self._told or time.perf_counter()

    def give_up(self) -> None:
        """End soon because the model is gone; requests in flight are answered first.

        May be called from any thread.
        """
        self._app.draining = self._app.gone = True
        self._told = self._told or time.perf_counter()

    async def on_tick(self, counter: int) -> bool:
        """Return whether the server should end."""
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
        """Refuse connections at once, and end even if requests still arrive.

        Each of those costs a router a retry.
        """
        for server in self.servers:
            server.close()
        waited = now - self._told
        self.should_exit = self.should_exit or (waited > GONE and not self._app.busy) or waited > MOST_GONE


def raise_file_limit() -> None:
    """Raise the limit of open files, and so of connections, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and (hard == resource.RLIM_INFINITY or soft < hard):
        target = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, target), hard))


def listen(host: str, port: int) -> socket.socket:
    """Return a socket bound to this address; with port 0 the kernel chooses the port."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    return listener
