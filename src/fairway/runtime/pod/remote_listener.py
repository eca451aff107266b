"""Run programs in this pod on request of another pod of the same run.

Only pods of MPI runs listen. A program started this way has the task's own environment, and lives no longer than the connection
that requested it. Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import IO

from fairway.runtime.pod import remote_channel
from fairway.runtime.pod.remote_channel import RemoteChannel

PATIENCE = 10.0
"""Seconds that a caller has to authenticate itself."""
LAST_CHANCE = 5.0
"""Seconds between SIGTERM and SIGKILL for a program whose caller is gone."""
WAITING = 256
"""Maximum number of concurrent callers, authenticated or not."""
CHUNK = 1 << 16


class RemoteSession:
    """One program, run for one caller."""

    def __init__(self, channel: RemoteChannel, handle: subprocess.Popen[bytes]) -> None:
        self.channel = channel
        self.handle = handle
        self.ended = threading.Event()
        self.status = 0
        self.outputs: list[threading.Thread] = []

    def tell(self, number: int) -> None:
        """Send a signal to the program's process group."""
        if not self.ended.is_set():
            try:
                os.killpg(self.handle.pid, number)
            except ProcessLookupError:
                return

    def end(self) -> None:
        """Stop the program, because its caller is gone: SIGTERM first, then SIGKILL."""
        self.tell(signal.SIGTERM)
        if not self.ended.wait(LAST_CHANCE):
            self.tell(signal.SIGKILL)


class RemoteListener:
    """Listens on one port, from `start` to the end of the process."""

    def __init__(self, port: int, key: bytes, environment: dict[str, str], cwd: str) -> None:
        self._key = key
        self._environment = environment
        self._cwd = cwd
        self._sessions: dict[int, RemoteSession] = {}
        self._lock = threading.Lock()
        self._ends = False
        self._room = threading.BoundedSemaphore(WAITING)
        self._socket = _listening(port)
        self.port = self._socket.getsockname()[1]

    def start(self) -> None:
        """Start to accept connections."""
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether programs of other pods are running."""
        return bool(self._sessions)

    def tell(self, number: int) -> None:
        """Send a signal to every program of other pods: this pod ends, and the callers must notice that it does."""
        self._ends = True
        for session in list(self._sessions.values()):
            session.tell(number)

    def reaped(self, pid: int, status: int) -> None:
        """Record that a program has ended; called by the code that reaps children."""
        with self._lock:  # it may have ended before it was registered
            session = self._sessions.pop(pid, None)
        if session is not None:
            session.status = status
            session.handle.returncode = os.waitstatus_to_exitcode(status)
            session.ended.set()

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(PATIENCE)
            remote_channel.keep_alive(connection)
            channel = remote_channel.accept(connection, self._key)
            request = channel.receive()
            connection.settimeout(None)
            if request is not None and request[0] == remote_channel.START:
                self._run(channel, json.loads(request[1])["command"])
        except (remote_channel.AuthenticationError, OSError, ValueError, KeyError) as error:
            sys.stderr.write(f"fairway: a request of another pod to start a program here was rejected: {error}\n")
        finally:
            connection.close()
            self._room.release()

    def _run(self, channel: RemoteChannel, command: str) -> None:
        with self._lock:
            handle = subprocess.Popen(
                ["/bin/sh", "-c", command],
                cwd=self._cwd,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            session = RemoteSession(channel, handle)
            self._sessions[handle.pid] = session
        for stream, kind in ((handle.stdout, remote_channel.OUTPUT), (handle.stderr, remote_channel.ERRORS)):
            assert stream is not None
            pump = threading.Thread(target=_pass_on, args=(stream, channel, kind), daemon=True)
            pump.start()
            session.outputs.append(pump)
        request_thread = threading.Thread(target=_obey, args=(session,), daemon=True)
        request_thread.start()
        session.ended.wait()
        for pump in session.outputs:
            pump.join(timeout=1.0)  # processes that it left running may hold the pipe for ever
        if self._ends:
            return  # its caller must see a lost pod, not a failed program
        try:
            channel.send(remote_channel.EXIT, json.dumps(_end(session.status)).encode())
            channel.finish()
        except OSError:
            return  # the caller is gone
        # Data from the caller must be read before the end, or the network would discard the last frame with it.
        request_thread.join(timeout=PATIENCE)


def _listening(port: int) -> socket.socket:
    """Open a socket for other pods on all addresses of this one."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
    return socket.create_server(("", port), backlog=128)


def _end(status: int) -> dict[str, int | None]:
    killed = os.WIFSIGNALED(status)
    return {"code": None if killed else os.WEXITSTATUS(status), "signal": os.WTERMSIG(status) if killed else None}


def _pass_on(stream: IO[bytes], channel: RemoteChannel, kind: int) -> None:
    while True:
        data = os.read(stream.fileno(), CHUNK)
        if not data:
            return
        try:
            channel.send(kind, data)
        except OSError:
            return


def _obey(session: RemoteSession) -> None:
    """Execute the caller's requests until it is gone; then stop the program."""
    stdin = session.handle.stdin
    assert stdin is not None
    try:
        while True:
            frame = session.channel.receive()
            if frame is None:
                break
            kind, data = frame
            if kind == remote_channel.INPUT:
                _write(stdin, data)
            elif kind == remote_channel.INPUT_END:
                stdin.close()
            elif kind == remote_channel.SIGNAL:
                session.tell(data[0])
    except (remote_channel.AuthenticationError, OSError) as error:
        sys.stderr.write(f"fairway: a connection from another pod was closed: {error}\n")
    session.end()


def _write(stdin: IO[bytes], data: bytes) -> None:
    try:
        stdin.write(data)
        stdin.flush()
    except (BrokenPipeError, ValueError):
        return  # the program no longer reads its input
