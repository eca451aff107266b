"""Holds the listening socket of one service and sees to it that a router serves it. Standard library only.

    python -m fairway.serving.router.keeper FOLDER SOCKETS HOST PORT [LIMITS]

prints the port once the socket listens, or `error ...`, and leaves the keeper behind in a session of its own: neither the
daemon's end nor the router's closes the socket, and connections wait in its backlog until the next router takes them.
There is one keeper a folder: it holds a lock on `lock` there, in which its process id stands. When it is killed, its router
goes on, and the next keeper gets the socket from that.

SIGHUP: start another router and let the one before finish. SIGTERM: close the socket, let the router end, end. The same
when the folder is gone.
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
"""How often it is looked whether the folder is still there."""
_SHORT_LIFE = 5.0
"""A router that lived shorter than this, twice in a row, is started again with a growing delay."""
_LONGEST_DELAY = 2.0
_END_SECONDS = 15.0
_PATIENCE = 2.0
"""How long a router may take from its start until it can hand the socket over."""
_RETRY_SECONDS = 0.02

_Found = TypeVar("_Found")


class Keeper:
    """One keeper at work."""

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
        self._signals, heard = os.pipe()
        os.set_blocking(self._signals, False)
        os.set_blocking(heard, False)
        signal.set_wakeup_fd(heard)
        for each in (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM):
            signal.signal(each, lambda *_: None)

    def run(self) -> None:
        """Keep a router going until told to end."""
        while True:
            if self._current is None and time.monotonic() >= self._due:
                self._start()
            heard = self._wait()
            if signal.SIGTERM in heard or _identity(self._lock) != self._identity:
                self._end()
                return
            self._reap()
            if signal.SIGHUP in heard and self._current is not None:
                self._old.append(self._current)
                self._current = None

    def _wait(self) -> bytes:
        """The signals that came; returns when there is something to look at."""
        patience = _LOOK_SECONDS if self._current is not None else max(0.0, self._due - time.monotonic())
        watched = [self._signals, self._ready] if self._ready >= 0 else [self._signals]
        readable, _, _ = select.select(watched, [], [], patience)
        if self._ready in readable:
            self._take_over()
        return os.read(self._signals, 4096) if self._signals in readable else b""

    def _start(self) -> None:
        """Start a router. Those before it go on until it is ready."""
        self._close_ready()
        self._ready, said = os.pipe()
        self._started = time.monotonic()
        number = self._listener.fileno()
        command = [sys.executable, "-P", "-m", "fairway.serving.router.process", str(number), str(said)]
        with open(os.path.join(self._folder, LOG), "ab") as log:
            if log.tell() > _LOG_LIMIT:
                log.truncate(0)
            self._current = subprocess.Popen(
                [*command, self._folder, self._sockets, *self._limits],
                pass_fds=(number, said),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        os.close(said)

    def _take_over(self) -> None:
        """The new router serves: the others finish. Or it has died: then they go on."""
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
        """Close the socket and let the routers answer what they have."""
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
        """The router of a keeper that died is no child of ours; it has the name of its socket for a proof that it lives."""
        if self._orphan and os.path.exists(os.path.join(self._sockets, f"{self._orphan}.sock")):
            try:
                os.kill(self._orphan, what)
            except ProcessLookupError:
                self._orphan = 0


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def take_lock(folder: str) -> int:
    """The lock of the folder as a descriptor; `BlockingIOError` when another keeper has it."""
    lock = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def inherit(sockets: str, port: int) -> tuple[socket.socket | None, int]:
    """The listening socket of a router whose keeper died, and the process id of that router."""
    for name in sorted(os.listdir(sockets)):
        if name.endswith(".sock"):
            found = _ask_for_listener(os.path.join(sockets, name))
            if found is not None and port in (0, found.getsockname()[1]):
                return found, int(name.removesuffix(".sock"))
    return None, 0


def _ask_for_listener(path: str) -> socket.socket | None:
    with socket.socket(socket.AF_UNIX) as control:
        control.settimeout(5.0)
        try:
            control.connect(path)
            control.sendall(b"listener\n")
            said, carried, _, _ = control.recvmsg(1, socket.CMSG_SPACE(4))
        except ConnectionRefusedError:
            os.unlink(path)
            return None
        except OSError:
            return None
    for level, kind, data in carried:
        if said == b"+" and level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            return socket.socket(fileno=array.array("i", data)[0])
    return None


def bind(host: str, port: int) -> socket.socket:
    """A new listening socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == "::":
            # All addresses of the machine, those of IPv4 included.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _listen(sockets: str, host: str, port: int) -> tuple[socket.socket, int]:
    """The socket of a router whose keeper died, with that router's process id; else a new one, and 0."""
    inherited, orphan = inherit(sockets, port)
    return (inherited, orphan) if inherited is not None else (bind(host, port), 0)


def _patiently(attempt: Callable[[], _Found], problem: int) -> _Found:
    """What the attempt gives, tried again for a moment while it has this problem.

    A router that a dead keeper has just started holds the port before it can hand the socket over. A look at the lock takes it.
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
    """Take lock and socket, then go on as a process of its own."""
    folder, sockets, host, port, *limits = arguments
    try:
        lock = _patiently(lambda: take_lock(folder), errno.EWOULDBLOCK)
        listener, orphan = _patiently(lambda: _listen(sockets, host, int(port)), errno.EADDRINUSE)
    except OSError as problem:
        sys.stdout.write(f"error {problem}\n")
        return 1
    if os.fork():
        # Without this the child would write what is buffered a second time.
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
    Keeper(listener, orphan, folder, sockets, limits).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
