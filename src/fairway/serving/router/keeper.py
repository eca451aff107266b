"""Holds the listening socket of one service and keeps one router running. Standard library only.

    python -m fairway.serving.router.keeper FOLDER SOCKETS HOST PORT [LIMITS]

prints the port once the socket listens, or `error ...`, and leaves the keeper running in a session of its own. Neither the
daemon's end nor the router's closes the socket; connections wait in its backlog until the next router accepts them. There is
one keeper per folder: it holds a lock on the file `lock` there, which contains its process id. If the keeper is killed, its
router keeps serving, and the next keeper gets the socket from that router.

SIGHUP: start another router and let the previous one finish. SIGTERM: close the socket, let the router finish, exit. The keeper
does the same when its folder is deleted.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

LOCK = "lock"
LOG = "router.log"
_LOG_LIMIT = 1024 * 1024
_BACKLOG = 4096
_LOOK_SECONDS = 2.0
"""Interval at which the keeper checks that its folder exists, in seconds."""
_SHORT_LIFE = 5.0
"""A router that ends sooner than this, twice in a row, is restarted with a growing delay."""
_LONGEST_DELAY = 2.0
_END_SECONDS = 15.0
_PATIENCE = 2.0
"""How long a router may take from its start until it can hand over the socket."""
_RETRY_SECONDS = 0.02

_Found = TypeVar("_Found")


class RouterKeeper:
    """The keeper process: holds the listening socket and keeps one router running."""

    def __init__(self, listener: socket.socket, orphan: int, folder: str, sockets: str, limits: list[str]) -> None:
        self._listener = listener
        self._orphan = orphan
        self._folder = folder
        self._sockets = sockets
        self._limits = limits
        self._lock = os.path.join(folder, LOCK)
        self._identity = _identity(self._lock)
        self._current: subprocess.Popen[bytes] | None = None
        self._old: list[subprocess.Popen[bytes]] = []
        self._started = 0.0
        self._due = 0.0
        self._short_lives = 0
        self._ready = -1
        self._signals, write_end = os.pipe()
        os.set_blocking(self._signals, False)
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end)
        for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, lambda *_: None)

    def run(self) -> None:
        """Keep a router running until SIGTERM arrives or the folder is deleted."""
        while True:
            if self._current is None and time.monotonic() >= self._due:
                self._start()
            signals = self._wait()
            if signal.SIGTERM in signals or _identity(self._lock) != self._identity:
                self._end()
                return
            self._reap()
            if signal.SIGHUP in signals and self._current is not None:
                self._old.append(self._current)
                self._current = None

    def _wait(self) -> bytes:
        """Wait until a signal arrives, the router is ready or the interval has passed; return the pending signals."""
        patience = _LOOK_SECONDS if self._current is not None else max(0.0, self._due - time.monotonic())
        watched = [self._signals, self._ready] if self._ready >= 0 else [self._signals]
        readable, _, _ = select.select(watched, [], [], patience)
        if self._ready in readable:
            self._take_over()
        return os.read(self._signals, 4096) if self._signals in readable else b""

    def _start(self) -> None:
        """Start a router. The previous ones keep serving until it is ready."""
        self._close_ready()
        self._ready, write_end = os.pipe()
        self._started = time.monotonic()
        number = self._listener.fileno()
        command = [sys.executable, "-P", "-m", "fairway.serving.router.process", str(number), str(write_end)]
        with open(os.path.join(self._folder, LOG), "ab") as log:
            if log.tell() > _LOG_LIMIT:
                log.truncate(0)
            self._current = subprocess.Popen(
                [*command, self._folder, self._sockets, *self._limits],
                pass_fds=(number, write_end),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        os.close(write_end)

    def _take_over(self) -> None:
        """Let the previous routers finish if the new one serves; if it has died instead, they go on."""
        served = os.read(self._ready, 1) == b"+"
        self._close_ready()
        if served:
            for old in self._old:
                old.send_signal(signal.SIGTERM)
            self._tell_orphan(signal.SIGTERM)

    def _close_ready(self) -> None:
        if self._ready >= 0:
            os.close(self._ready)
            self._ready = -1

    def _reap(self) -> None:
        self._old = [old for old in self._old if not self._has_ended(old)]
        if self._current is None or not self._has_ended(self._current):
            return
        self._current = None
        now = time.monotonic()
        self._short_lives = self._short_lives + 1 if now - self._started < _SHORT_LIFE else 0
        if self._short_lives > 1:
            self._due = now + min(_LONGEST_DELAY, 0.1 * 2.0 ** min(self._short_lives, 10))

    def _has_ended(self, router: subprocess.Popen[bytes]) -> bool:
        if router.poll() is None:
            return False
        try:
            os.unlink(os.path.join(self._sockets, f"{router.pid}.sock"))
        except OSError:
            pass
        return True

    def _end(self) -> None:
        """Close the socket and let the routers finish their requests."""
        self._listener.close()
        routers = [*self._old, *([self._current] if self._current is not None else [])]
        for router in routers:
            router.send_signal(signal.SIGUSR1)
        self._tell_orphan(signal.SIGUSR1)
        deadline = time.monotonic() + _END_SECONDS
        for router in routers:
            try:
                router.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                router.kill()
                router.wait()
            self._has_ended(router)

    def _tell_orphan(self, what: int) -> None:
        """Signal the router of a keeper that died. It is not a child process; the name of its socket proves that it is alive."""
        if self._orphan and os.path.exists(os.path.join(self._sockets, f"{self._orphan}.sock")):
            try:
                os.kill(self._orphan, what)
            except ProcessLookupError:
                self._orphan = 0


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def take_lock(folder: str) -> int:
    """Take the folder's lock and return its descriptor; raise `BlockingIOError` if another keeper holds it."""
    lock = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def inherit(sockets: str, port: int) -> tuple[socket.socket | None, int]:
    """Return the listening socket of a router whose keeper died, and that router's process id; None and 0 if there is none."""
    for name in sorted(os.listdir(sockets)):
        if name.endswith(".sock"):
            listener = _ask_for_listener(os.path.join(sockets, name))
            if listener is not None and port in (0, listener.getsockname()[1]):
                return listener, int(name.removesuffix(".sock"))
    return None, 0


def _ask_for_listener(path: str) -> socket.socket | None:
    with socket.socket(socket.AF_UNIX) as control:
        control.settimeout(5.0)
        try:
            control.connect(path)
            control.sendall(b"listener\n")
            answer, ancillary, _, _ = control.recvmsg(1, socket.CMSG_SPACE(4))
        except ConnectionRefusedError:
            os.unlink(path)
            return None
        except OSError:
            return None
    for level, kind, data in ancillary:
        if answer == b"+" and level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            return socket.socket(fileno=array.array("i", data)[0])
    return None


def bind(host: str, port: int) -> socket.socket:
    """Return a new listening socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == "::":
            # Listen on all addresses of the machine, including IPv4.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _listen(sockets: str, host: str, port: int) -> tuple[socket.socket, int]:
    """Return the socket of a router whose keeper died, with that router's process id; otherwise a new socket and 0."""
    inherited, orphan = inherit(sockets, port)
    return (inherited, orphan) if inherited is not None else (bind(host, port), 0)


def _patiently(attempt: Callable[[], _Found], problem: int) -> _Found:
    """Return the result of `attempt`, which is retried for a moment while it fails with this error.

    A router that a dead keeper has just started holds the port before it can hand over the socket, and a check whether the lock
    is held takes the lock for a moment.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return attempt()
        except OSError as error:
            if error.errno != problem or time.monotonic() > deadline:
                raise
        time.sleep(_RETRY_SECONDS)


def main(arguments: list[str]) -> int:
    """Take the lock and the socket, then continue as a process of its own."""
    folder, sockets, host, port, *limits = arguments
    try:
        lock = _patiently(lambda: take_lock(folder), errno.EWOULDBLOCK)
        listener, orphan = _patiently(lambda: _listen(sockets, host, int(port)), errno.EADDRINUSE)
    except OSError as problem:
        sys.stdout.write(f"error {problem}\n")
        return 1
    if os.fork():
        # Do not flush: the child would write the buffered output a second time.
        os._exit(0)
    os.setsid()
    os.truncate(lock, 0)
    os.write(lock, b"%d\n" % os.getpid())
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    with open(os.devnull, "r+b") as nothing, open(os.path.join(folder, LOG), "ab") as log:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
        os.dup2(log.fileno(), 2)
    RouterKeeper(listener, orphan, folder, sockets, limits).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
