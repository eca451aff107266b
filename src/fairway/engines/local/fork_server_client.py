"""The daemon's client of the fork server: keeps it running, and starts the supervisors of a gang, all or none."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairway.app.system import crash_point
from fairway.engines.local.supervision import order
from fairway.engines.local.supervision.order import TaskOrder
from fairway.engines.local.supervision.process.process_identity import ProcessIdentity, boot_id

_PATIENCE = 60.0
"""Seconds that a supervisor gets to answer, even on a machine that swaps."""
_SOURCE = str(Path(__file__).resolve().parents[3])
_MAIN = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from fairway.engines.local.supervision.fork_server import main; main(int(sys.argv[2]))"
)


@dataclass(frozen=True, slots=True)
class SpawnAnswer:
    """The result of one order."""

    started: float | None = None
    """When its processes were started; None when they were not, or it is not known."""
    supervisor: ProcessIdentity | None = None
    """The process that supervises them."""
    address: str | None = None
    """`host:port` of the task."""
    problem: str = ""
    """Why the order failed."""


class ForkServerClient:
    """Sends orders to the fork server; starts a new server when it died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def start(self) -> None:
        """Start the fork server if it does not run. It takes orders at once; there is no need to wait for it."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        ours, theirs = socket.socketpair()
        ours.settimeout(_PATIENCE)
        with theirs:
            self._process = subprocess.Popen(
                # Isolated and without site: it starts in a fifth of the time and stays small.
                [sys.executable, "-I", "-S", "-c", _MAIN, _SOURCE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd="/",
                env={},
            )
        self._channel = ours

    def close(self) -> None:
        """Let the fork server end; supervisors live on."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            try:
                self._process.wait(1.0)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGKILL)
                self._process.wait()
            self._process = None

    def kill(self) -> None:
        """Kill a fork server that does not answer; the next order gets a new one."""
        if self._process is not None:
            self._process.kill()
        self.close()

    def stand_by(self, request: TaskOrder) -> socket.socket:
        """Start a spare as the request describes.

        An order sent through the returned socket uses it, closing the socket ends it.
        """
        self.start()
        ours, theirs = socket.socketpair()
        ours.settimeout(_PATIENCE)
        with theirs:
            try:
                if self._channel is not None:
                    order.send(self._channel, order.STANDBY + request.encode(), [theirs.fileno()])
            except OSError:
                # The fork server died; the next gang gets a new one.
                self.close()
        return ours

    async def spawn(
        self, orders: Sequence[tuple[TaskOrder, Sequence[int]]], standbys: Mapping[int, socket.socket] | None = None
    ) -> list[SpawnAnswer]:
        """Start all of the orders or none. The locks of each are sent along and may be closed afterwards.

        An order with a standby, given by its index, goes to that instead of to the fork server. Every supervisor acquires what it
        needs and reports so; one write then lets all of them go on, so that no crash of the daemon can start only a part of a
        gang.
        """
        permission, permit = os.pipe2(os.O_CLOEXEC)
        lines = [_SupervisorPipe() for _ in orders]
        try:
            try:
                self._send(orders, permission, lines, standbys or {})
            finally:
                os.close(permission)
                for line in lines:
                    line.only_listen()
            replies = [await line.next() for line in lines]
            if any(line.timed_out for line in lines):
                self.kill()
            problems = [_problem(word) for word in replies]
            if any(problems):
                return [SpawnAnswer(problem=problem) for problem in problems]
            with crash_point.reach("engine.spawn"):
                os.write(permit, b"+" * len(orders))
            return [_answer(await line.next()) for line in lines]
        finally:
            os.close(permit)
            # No supervisor gets the go-ahead any more; wait until they have released the locks.
            for line in lines:
                await line.close()

    def _send(
        self,
        orders: Sequence[tuple[TaskOrder, Sequence[int]]],
        permission: int,
        lines: Sequence[_SupervisorPipe],
        standbys: Mapping[int, socket.socket],
    ) -> None:
        self.start()
        for place, ((gang_order, locks), line) in enumerate(zip(orders, lines, strict=True)):
            text, descriptors = gang_order.encode(), [permission, line.speak, *locks]
            if place in standbys and _sent(standbys[place], text, descriptors):
                continue
            if self._channel is None:
                return
            try:
                order.send(self._channel, text, descriptors)
            except OSError:
                # The fork server died: this order and the following get no answer, and the next gang gets a new server.
                self.close()


def _sent(standby: socket.socket, text: bytes, descriptors: list[int]) -> bool:
    try:
        order.send(standby, text, descriptors)
    except OSError:
        return False
    return True


class _SupervisorPipe:
    """Receives the messages of one supervisor."""

    def __init__(self) -> None:
        self._listen, self.speak = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._heard = b""
        self._over = False
        self._news: asyncio.Future[None] | None = None
        self.timed_out = False

    def only_listen(self) -> None:
        """Close our copy of the write end, so that the end of the supervisor closes the pipe."""
        os.close(self.speak)
        asyncio.get_running_loop().add_reader(self._listen, self._arrived)

    async def next(self) -> str:
        """Return the next line; empty when there will be none."""
        while b"\n" not in self._heard and not self._over:
            await self._more()
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode(errors="replace")

    async def close(self) -> None:
        """Wait until the other side has closed the pipe."""
        while not self._over:
            self._heard = b""
            await self._more()
        os.close(self._listen)

    async def _more(self) -> None:
        loop = asyncio.get_running_loop()
        self._news = loop.create_future()
        patience = loop.call_later(_PATIENCE, self._lose_patience)
        try:
            await self._news
        finally:
            patience.cancel()
            self._news = None

    def _arrived(self) -> None:
        piece = os.read(self._listen, 4096)
        self._heard += piece
        if not piece:
            self._hang_up()
        self._tell()

    def _lose_patience(self) -> None:
        self.timed_out = True
        self._hang_up()
        self._tell()

    def _hang_up(self) -> None:
        self._over = True
        asyncio.get_running_loop().remove_reader(self._listen)

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


def _problem(word: str) -> str:
    if word == "ready":
        return ""
    return word.removeprefix("error ") if word else "the process that starts tasks died; it is being restarted"


def _answer(word: str) -> SpawnAnswer:
    parts = word.split()
    if parts[:1] == ["started"]:
        return SpawnAnswer(float(parts[2]), ProcessIdentity(int(parts[1]), int(parts[3]), boot_id()) if len(parts) > 3 else None)
    return SpawnAnswer(problem=word.removeprefix("error ") or "its supervisor died while it started the task")
