"""A proxy before a daemon's socket that loses responses: it cuts them, cuts requests, and kills the daemon, by a seed."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import threading
from collections import Counter
from pathlib import Path

from daemon_home import DaemonHome, kill

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_KEY = re.compile(rb"[?&]key=([^& ]+)")
MOST_FAULTS = 3
"""For one idempotency key: a client tries four times."""
KINDS = ("cut-answer", "cut-request", "no-answer", "kill-before", "kill-during", "kill-after")


class CuttingProxy:
    """Listens on a separate path and forwards requests, some with faults; one at a time, so that a seed is reproducible."""

    def __init__(self, home: DaemonHome, path: Path, seed: int, *, harm: bytes, kills: int, part: float = 0.75) -> None:
        self.home, self.path, self.harm, self.kills, self.part = home, path, harm, kills, part
        self.done: Counter[str] = Counter()
        """The faults that were injected, by kind."""
        self._random = random.Random(seed)
        self._faults: Counter[bytes] = Counter()
        self._upstream = str(home.status()["socket"])
        self._pid = int(home.status()["pid"])
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)
        self.path.unlink(missing_ok=True)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                request = _read_request(client)
                if request:
                    self._pass(client, request)

    def _pass(self, client: socket.socket, request: bytes) -> None:
        kind = self._choose(request)
        self.done[kind] += 1
        if kind == "kill-before":
            self._kill()
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
            daemon.connect(self._upstream)
            if kind == "cut-request":
                daemon.sendall(request[: self._random.randrange(len(request))])
                return
            daemon.sendall(request)
            if kind == "kill-during":
                self._kill()
                return
            answer = _read_all(daemon)
        if kind == "kill-after":
            self._kill()
        if kind in ("kill-after", "no-answer"):
            return
        client.sendall(answer[: self._random.randrange(len(answer))] if kind == "cut-answer" else answer)

    def _choose(self, request: bytes) -> str:
        key = _KEY.search(request)
        if not request.startswith(self.harm) or key is None:
            return "other"
        if self._faults[key[1]] >= MOST_FAULTS or self._random.random() > self.part:
            return "whole"
        self._faults[key[1]] += 1
        kinds = [kind for kind in KINDS if not kind.startswith("kill")]
        if self.kills and self._random.random() < 0.1:
            self.kills -= 1
            kinds = [kind for kind in KINDS if kind.startswith("kill")]
        return self._random.choice(kinds)

    def _kill(self) -> None:
        """Kill the daemon, and start another one."""
        kill(self._pid)
        self._pid = self.home.start_daemon()


def _read_request(client: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(65536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    missing = int(length[1]) - len(body) if length else 0
    while missing > 0:
        more = client.recv(65536)
        if not more:
            return b""
        data += more
        missing -= len(more)
    return data


def _read_all(daemon: socket.socket) -> bytes:
    found = []
    while data := daemon.recv(65536):
        found.append(data)
    return b"".join(found)
