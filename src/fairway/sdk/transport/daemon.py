"""Connection to the daemon of a home; starts the daemon if it is not running.

Guarantees:
1. Concurrent callers start only one daemon: the start is under a lock.
2. If the daemon dies at its start, the caller gets an error with the end of its log at once, not after a timeout.
3. A daemon that is older than the caller is replaced, and tasks survive that. A newer daemon is left alone.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import time

from fairway.app.system import disk_error
from fairway.errors import UnavailableError
from fairway.sdk.transport import http, local_path
from fairway.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable

    from fairway.sdk.transport.http import Query, SocketReply

START_LIMIT = 60.0
"""Seconds that a daemon may take until it answers; restoring a large home takes a while."""
STOP_LIMIT = 20.0
_SOON = 2.0
"""Seconds after which a start in progress is announced."""
_PAUSE = 0.01
_ALIVE = 9
"""Descriptor that the daemon inherits and does not pass on; when it closes during the start, the daemon has died."""
_NOTHING = "  (it wrote nothing)"
_RECOVERY = " WARNING fairway.recovery "
"""Prefix of log lines about a damaged record and about data that was lost."""
_SIGNALS = (1, 2, 3, 13, 15)
"""Signals reset to their defaults: the daemon and its tasks must not inherit that the caller ignores them (nohup, `&`)."""
_LAUNCH = """
import os, sys
os.setsid()
os.chdir("/")
if os.fork() == 0:
    try:
        os.execv(sys.argv[1], sys.argv[1:])
    except OSError as error:
        sys.exit(f"{sys.argv[1]} cannot be started: {error}")
os._exit(0)
"""
"""Program of an intermediate process that forks the daemon: the caller may have threads and must not fork."""


def _say_nothing(text: str) -> None:
    """Drop the message."""


class DaemonConnection:
    """The daemon of a home, as seen by clients."""

    called = "the daemon"
    patience = 10.0
    """Seconds for which a request whose reply was lost is retried: a daemon that a request kills is not restarted for ever."""

    def __init__(self, home: str = "", *, say: Callable[[str], None] = _say_nothing, command: tuple[str, ...] = ()) -> None:
        self.home = os.path.abspath(home) if home else local_path.find_home()
        self.socket = local_path.find_socket(self.home)
        self.say = say
        self.command = command or (sys.executable, "-m", "fairway.bootstrap", "serve")
        """The command that starts a daemon."""
        self._checked = False

    def request(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: bytes = b"",
        *,
        kind: str = http.JSON,
        start: bool = True,
        timeout: float | None = None,
    ) -> SocketReply:
        """Send a request, starting the daemon if it is not running; an error in the reply is raised.

        Each wait for a part of the reply is limited to `timeout` seconds; then `TimeoutError` is raised.
        """
        connection = self._connect_or_start(start=start)
        connection.settimeout(timeout)
        reply = http.exchange(connection, http.encode_request(method, path, query, body, kind))
        if not self._checked:
            self._checked = True
            if method == "GET" and start and is_older(reply.headers.get(http.VERSION_HEADER, ""), VERSION):
                reply.close()
                self.restart()
                return self.request(method, path, query, body, kind=kind)
        return reply.check()

    def find(self) -> str:
        """Return the socket to connect to: the expected one, else the one that the daemon names in its home."""
        return self.socket if os.path.exists(self.socket) else local_path.read_socket_link(self.home) or self.socket

    def answers(self) -> bool:
        """Whether the daemon listens."""
        try:
            self._connect().close()
        except OSError:
            return False
        return True

    def start(self) -> None:
        """Start the daemon unless it answers; raise `UnavailableError` with the end of its log if that fails."""
        _make_home(self.home)
        local_path.make_runtime_folder(os.path.dirname(self.socket))
        lock = os.open(f"{self.socket}.start", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.answers():
                self._start_alone()
        finally:
            os.close(lock)

    def stop(self, pid: int) -> None:
        """Terminate the daemon and wait until it has ended. Tasks keep running."""
        try:
            os.kill(pid, 15)
        except ProcessLookupError:
            return
        began = time.monotonic()
        while _holds_lock(os.path.join(self.home, local_path.LOCK_NAME)) or self.answers():
            if time.monotonic() - began > STOP_LIMIT:
                message = f"the daemon (pid {pid}) was asked to stop {STOP_LIMIT:.0f} s ago and is still running"
                raise UnavailableError(
                    message,
                    fix=f"see {self.log}; `kill -9 {pid}` loses no task",
                )
            time.sleep(_PAUSE)

    def restart(self) -> None:
        """Replace the daemon by one with the caller's version."""
        import json

        health = json.loads(self.request("GET", "/v1/health", start=False).read())
        self.say(f"the daemon is version {health['version']}, this is {VERSION}: restarting it (tasks keep running)")
        self.stop(int(health["pid"]))
        self.start()

    @property
    def log(self) -> str:
        """The path of the daemon's log."""
        return os.path.join(self.home, local_path.LOG_NAME)

    def _connect(self) -> socket:
        """Connect to the expected socket, else to the one that the daemon names in its home."""
        try:
            return http.connect(self.socket)
        except OSError:
            linked = local_path.read_socket_link(self.home)
            if not linked or linked == self.socket:
                raise
            return http.connect(linked)

    def _connect_or_start(self, *, start: bool) -> socket:
        try:
            return self._connect()
        except OSError as error:
            if not start:
                message = f"no daemon runs for {self.home}"
                raise UnavailableError(message, fix="`fairway daemon start`; every other command starts it by itself") from error
        self.start()
        try:
            return self._connect()
        except OSError as error:
            message = f"the daemon of {self.home} cannot be reached: {error}"
            raise UnavailableError(message, fix=f"look at {self.log}") from error

    def _ended_at_start(self, mark: int) -> UnavailableError:
        """Return the error with the end of the daemon's log; a full disk is reported instead of an empty log."""
        log_end = _read_end(self.log, mark)
        if log_end == _NOTHING and not disk_error.has_room(self.home):
            problem, fix = disk_error.full(self.home)
            return UnavailableError(f"the daemon ended while starting: {problem}", fix=fix)
        return UnavailableError(f"the daemon ended while starting:\n{log_end}", fix=f"the log is {self.log}")

    def _start_alone(self) -> None:
        began = time.monotonic()
        mark = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        alive = _spawn(self.command, self.home, self.log)
        announced = False
        poller = select.poll()
        poller.register(alive)
        try:
            while not self.answers():
                waited = time.monotonic() - began
                if poller.poll(_PAUSE * 1000) and not self.answers():
                    raise self._ended_at_start(mark)
                if waited > _SOON and not announced:
                    announced = True
                    self.say(f"starting the daemon for {self.home} ...")
                if waited > START_LIMIT:
                    message = f"the daemon did not answer within {START_LIMIT:.0f} s:\n{_read_end(self.log, mark)}"
                    raise UnavailableError(
                        message,
                        fix=f"look at {self.log}",
                    )
        finally:
            os.close(alive)
        for line in _told(self.log, mark):
            self.say(line)


def is_older(one: str, other: str) -> bool:
    """Whether a version is lower than another; False if either is not a version."""
    try:
        return [int(part) for part in one.split(".")] < [int(part) for part in other.split(".")]
    except ValueError:
        return False


def _make_home(home: str) -> None:
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
    except OSError as error:
        reason, fix = disk_error.explain(error, home) or (error.strerror, "set FAIRWAY_HOME to a folder that you can write to")
        message = f"the home {home} cannot be created: {reason}"
        raise UnavailableError(message, fix=fix) from error


def _spawn(command: tuple[str, ...], home: str, log: str) -> int:
    """Start the daemon detached, in its own session. Returns a descriptor that becomes readable when the daemon ends."""
    read, write = os.pipe()
    actions: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
        (os.POSIX_SPAWN_DUP2, write, _ALIVE),
    ]
    try:
        child = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", _LAUNCH, *command],
            {**os.environ, local_path.HOME: home},
            file_actions=actions,
            setsigmask=[],
            setsigdef=_SIGNALS,
        )
        os.waitpid(child, 0)
    except OSError as error:
        os.close(read)
        explanation = disk_error.explain(error, home)
        if explanation is not None and not _can_write(log):
            message = f"the daemon cannot write its log {log}: {explanation[0]}"
            raise UnavailableError(message, fix=explanation[1]) from error
        message = f"{sys.executable} cannot be started: {error.strerror}"
        raise UnavailableError(message, fix="reinstall fairway, or use another interpreter") from error
    finally:
        os.close(write)
    return read


def _can_write(log: str) -> bool:
    try:
        os.close(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600))
    except OSError:
        return False
    return True


def _holds_lock(path: str) -> bool:
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _told(log: str, mark: int) -> list[str]:
    """Return the messages about the recovery of the record that the daemon logged since `mark`, for the user."""
    try:
        with open(log, "rb") as file:
            file.seek(mark)
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line.partition(_RECOVERY)[2] for line in text.splitlines() if _RECOVERY in line]


def _read_end(log: str, mark: int) -> str:
    """Return the last lines that were written to the log since `mark`."""
    try:
        with open(log, "rb") as file:
            file.seek(mark)
            text = file.read().decode("utf-8", "replace")
    except OSError as error:
        return f"  (its log cannot be read: {error})"
    return "\n".join(f"  {line}" for line in text.splitlines()[-15:]) or _NOTHING
