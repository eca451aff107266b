"""The endpoint for MLflow clients: a persistent port on loopback, and the secret that signs tokens.

mlflow/port     the last port; reused if it is free, so that running tasks find it after a restart mlflow/secret   32 bytes in
hex, readable only by the owner mlflow/boot     the boot of the machine in which the secret was used mlflow/held-N   locked by all
holders of port N: the daemon, and the supervisor of each task mlflow/env      the owner's own address and token, for scripts
outside of jobs: `. ~/.local/state/fairway/mlflow/env`

Clients send their token to this port without verifying the listener. Guarantees:
1. While a task runs, no other user can listen on its port, even if the daemon was killed: the supervisor of each task
   holds a second socket that is bound to the port and never listens. The kernel lets only the same user bind it again.
2. A token sent to the port while neither a daemon nor a task held it becomes void: the next daemon creates a new secret.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

from fairway.api.mlflow.token import token_of
from fairway.app.tracking.run import TokenCaller
from fairway.launch.mlflow import EXPERIMENT, TOKEN, URI
from fairway.state.job import JobState

HOST = "127.0.0.1"
FOLDER = "mlflow"
_SECRET_LENGTH = 32
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_EARLIER = "earlier"
"""Marks a boot in which tasks of an earlier version may run, whose supervisors do not hold the port."""


@dataclass(frozen=True, slots=True)
class MlflowEndpoint:
    """The port on which the daemon listens."""

    listening: socket.socket
    reservation: socket.socket
    """Bound to the same port, never listening."""
    lock: int
    """Proves to the next daemon that the port was held all the time."""
    secret: bytes

    @classmethod
    def open(cls, home: Path) -> MlflowEndpoint:
        """Listen, on the last port if it is free."""
        folder = home / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        last_port, earlier = _kept_port(folder), _is_earlier(folder, _boot_id())
        listening = _listen(last_port)
        port: int = listening.getsockname()[1]
        reservation = _reserve(port)
        lock, unbroken = _hold(folder, port)
        if port != last_port or not (unbroken or earlier):
            # Another user may have listened there and received tokens.
            (folder / "secret").unlink(missing_ok=True)
        door = cls(listening, reservation, lock, _kept_secret(folder))
        _keep(folder / "port", f"{door.port}\n")
        own = {URI: door.uri, TOKEN: token_of(door.secret, TokenCaller("default"))}
        _keep(folder / "env", "".join(f"export {name}='{value}'\n" for name, value in own.items()))
        return door

    @property
    def port(self) -> int:
        """The port on which it listens."""
        number: int = self.listening.getsockname()[1]
        return number

    @property
    def uri(self) -> str:
        """The address for clients."""
        return f"http://{HOST}:{self.port}"

    @property
    def held(self) -> tuple[int, ...]:
        """File descriptors that the supervisor of each task must hold."""
        return (self.reservation.fileno(), self.lock)

    def close(self) -> None:
        """Release the port, unless a task holds it."""
        self.listening.close()
        self.reservation.close()
        os.close(self.lock)

    def variables(self, job: JobState) -> dict[str, str]:
        """Return the variables with address and token for a run."""
        token = token_of(self.secret, TokenCaller(job.key.namespace, job.key.name))
        # The client would print links to pages that do not exist.
        return {URI: self.uri, TOKEN: token, EXPERIMENT: job.series, "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # SO_REUSEADDR: old connections do not block the address. SO_REUSEPORT: neither do our own sockets that hold the port.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listening.bind((HOST, port))
        listening.listen(512)
    except OSError:
        # Another user has taken the port; tasks that use the old address have to be restarted.
        listening.close()
        if not port:
            raise
        return _listen(0)
    listening.setblocking(False)
    return listening


def _reserve(port: int) -> socket.socket:
    """Bind the port a second time. Without SO_REUSEADDR, which would let every user bind a port that has no listener."""
    reservation = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        reservation.bind((HOST, port))
    except OSError:
        # For a minute, old connections of an earlier version prevent this.
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind((HOST, port))
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    return reservation


def _hold(folder: Path, port: int) -> tuple[int, bool]:
    """Lock the file of the port's holders; return the lock, and whether the port was held all the time, by another holder."""
    path = folder / f"held-{port}"
    for other in folder.glob("held-*"):
        if other != path:
            other.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    unbroken = False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        unbroken = True
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor, unbroken


def _is_earlier(folder: Path, boot: str) -> bool:
    """Return whether tasks of an earlier version, which do not hold the port, may run: their tokens stay valid in this boot."""
    try:
        recorded = (folder / "boot").read_text().split()
    except OSError:
        recorded = [boot, _EARLIER] if (folder / "secret").exists() else [boot]
    _keep(folder / "boot", " ".join([boot, *recorded[1:]] if recorded[:1] == [boot] else [boot]) + "\n")
    return recorded == [boot, _EARLIER]


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"


def _kept_port(folder: Path) -> int:
    with contextlib.suppress(FileNotFoundError, ValueError):
        port = int((folder / "port").read_text())
        return port if 0 < port < 65536 else 0
    return 0


def _kept_secret(folder: Path) -> bytes:
    path = folder / "secret"
    with contextlib.suppress(FileNotFoundError, ValueError):
        stored = bytes.fromhex(path.read_text())
        if len(stored) == _SECRET_LENGTH:
            return stored
    secret = secrets.token_bytes(_SECRET_LENGTH)
    _keep(path, secret.hex())
    return secret


def _keep(path: Path, text: str) -> None:
    """Write a file atomically, readable only by the owner."""
    aside = path.with_name(f".{path.name}-{secrets.token_hex(6)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
