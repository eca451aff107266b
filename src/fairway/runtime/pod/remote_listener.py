"""Runs in this pod what another pod of the same run asks for. Standard library only, Python 3.9 and newer.

Only pods of MPI runs listen. A program that was started this way has the task's own environment, and lives no longer than
the connection that asked for it.
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

from fairway.runtime.pod import remote
from fairway.runtime.pod.remote import Channel

PATIENCE = 10.0
"""Seconds for a caller to prove who it is."""
LAST_CHANCE = 5.0
"""Seconds between SIGTERM and SIGKILL for a program whose caller is gone."""
WAITING = 256
"""Callers at the same time, proved or not."""
CHUNK = 1 << 16


class Session:
    """One program, for one caller."""

    def __init__(self, channel: Channel, handle: subprocess.Popen[bytes]) -> None:
        self.channel = channel
        self.handle = handle
        self.ended = threading.Event()
        self.status = 0
        self.outputs: list[threading.Thread] = []

    def tell(self, number: int) -> None:
        """Send a signal to the program and what it has started."""
        if not self.ended.is_set():
            try:
                os.killpg(self.handle.pid, number)
            except ProcessLookupError:
                return

    def end(self) -> None:
        """Nobody waits for it any more: ask it to end, then make it."""
        self.tell(signal.SIGTERM)
        if not self.ended.wait(LAST_CHANCE):
            self.tell(signal.SIGKILL)


class Listener:
    """Listens on one port, from `start` to the end of the process."""

    def __init__(self, port: int, key: bytes, environment: dict[str, str], cwd: str) -> None:
        self._key = key
        self._environment = environment
        self._cwd = cwd
        self._sessions: dict[int, Session] = {}
        self._lock = threading.Lock()
        self._ends = False
        self._room = threading.BoundedSemaphore(WAITING)
        self._socket = _listening(port)
        self.port = self._socket.getsockname()[1]

    def start(self) -> None:
        """Begin to listen."""
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether programs run that others asked for."""
        return bool(self._sessions)

    def tell(self, number: int) -> None:
        """Send a signal to every program that others asked for: this pod ends, and their callers must see that it does."""
        self._ends = True
        for session in list(self._sessions.values()):
            session.tell(number)

    def reaped(self, pid: int, status: int) -> None:
        """Told by whoever waits for children: a program has ended."""
        with self._lock:  # it may have ended before it was written down
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
            remote.keep_alive(connection)
            channel = remote.accept(connection, self._key)
            asked = channel.receive()
            connection.settimeout(None)
            if asked is not None and asked[0] == remote.START:
                self._run(channel, json.loads(asked[1])["command"])
        except (remote.RefusedError, OSError, ValueError, KeyError) as error:
            sys.stderr.write(f"fairway: somebody who wanted to start a program here was turned away: {error}\n")
        finally:
            connection.close()
            self._room.release()

    def _run(self, channel: Channel, command: str) -> None:
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
            session = Session(channel, handle)
            self._sessions[handle.pid] = session
        for stream, kind in ((handle.stdout, remote.OUTPUT), (handle.stderr, remote.ERRORS)):
            assert stream is not None
            pump = threading.Thread(target=_pass_on, args=(stream, channel, kind), daemon=True)
            pump.start()
            session.outputs.append(pump)
        obeying = threading.Thread(target=_obey, args=(session,), daemon=True)
        obeying.start()
        session.ended.wait()
        for pump in session.outputs:
            pump.join(timeout=1.0)  # what it has left running may hold the pipe for ever
        if self._ends:
            return  # its caller is to see a pod that is lost, not a program that failed
        try:
            channel.send(remote.EXIT, json.dumps(_end(session.status)).encode())
            channel.finish()
        except OSError:
            return  # nobody is there to hear it
        # What the caller has sent must be read before the end, or the network would throw away our last frame with it.
        obeying.join(timeout=PATIENCE)


def _listening(port: int) -> socket.socket:
    """For other pods, on every address that this one has."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
    return socket.create_server(("", port), backlog=128)


def _end(status: int) -> dict[str, int | None]:
    killed = os.WIFSIGNALED(status)
    return {"code": None if killed else os.WEXITSTATUS(status), "signal": os.WTERMSIG(status) if killed else None}


def _pass_on(stream: IO[bytes], channel: Channel, kind: int) -> None:
    while True:
        data = os.read(stream.fileno(), CHUNK)
        if not data:
            return
        try:
            channel.send(kind, data)
        except OSError:
            return


def _obey(session: Session) -> None:
    """Do what the caller says until it is gone; then end the program."""
    stdin = session.handle.stdin
    assert stdin is not None
    try:
        while True:
            frame = session.channel.receive()
            if frame is None:
                break
            kind, data = frame
            if kind == remote.INPUT:
                _write(stdin, data)
            elif kind == remote.INPUT_END:
                stdin.close()
            elif kind == remote.SIGNAL:
                session.tell(data[0])
    except (remote.RefusedError, OSError) as error:
        sys.stderr.write(f"fairway: a connection from another pod is given up: {error}\n")
    session.end()


def _write(stdin: IO[bytes], data: bytes) -> None:
    try:
        stdin.write(data)
        stdin.flush()
    except (BrokenPipeError, ValueError):
        return  # it reads no more
