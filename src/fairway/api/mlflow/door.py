"""Where MLflow clients knock: a port on loopback that stays the same, and the secret that tokens are proved with.

mlflow/port     the port of the last time; taken again where it is free, so that running tasks find it after a restart
mlflow/secret   32 bytes in hex, for the owner alone
mlflow/env      the owner's own way in, for scripts outside of jobs: `. ~/.local/state/fairway/mlflow/env`
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

from fairway.api.mlflow.token import token_of
from fairway.app.tracking import Speaker
from fairway.launch.tracking import EXPERIMENT, TOKEN, URI
from fairway.state.job import Job

HOST = "127.0.0.1"
FOLDER = "mlflow"
_SECRET_LENGTH = 32


@dataclass(frozen=True, slots=True)
class Door:
    """An open door."""

    listening: socket.socket
    secret: bytes

    @classmethod
    def open(cls, home: Path) -> Door:
        """Listen, at the port of the last time where it is free."""
        folder = home / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        door = cls(_listen(_kept_port(folder)), _kept_secret(folder))
        _keep(folder / "port", f"{door.port}\n")
        own = {URI: door.uri, TOKEN: token_of(door.secret, Speaker("default"))}
        _keep(folder / "env", "".join(f"export {name}='{value}'\n" for name, value in own.items()))
        return door

    @property
    def port(self) -> int:
        """Where it listens."""
        found: int = self.listening.getsockname()[1]
        return found

    @property
    def uri(self) -> str:
        """What clients are told."""
        return f"http://{HOST}:{self.port}"

    def variables(self, job: Job) -> dict[str, str]:
        """The way in for a run."""
        token = token_of(self.secret, Speaker(job.key.namespace, job.key.name))
        # The client would print links to pages that are not there.
        return {URI: self.uri, TOKEN: token, EXPERIMENT: job.series, "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
    except OSError:
        # Somebody else has it by now; those who know the old one have to be started again.
        listening.bind((HOST, 0))
    listening.listen(512)
    listening.setblocking(False)
    return listening


def _kept_port(folder: Path) -> int:
    with contextlib.suppress(FileNotFoundError, ValueError):
        port = int((folder / "port").read_text())
        return port if 0 < port < 65536 else 0
    return 0


def _kept_secret(folder: Path) -> bytes:
    path = folder / "secret"
    with contextlib.suppress(FileNotFoundError, ValueError):
        found = bytes.fromhex(path.read_text())
        if len(found) == _SECRET_LENGTH:
            return found
    made = secrets.token_bytes(_SECRET_LENGTH)
    _keep(path, made.hex())
    return made


def _keep(path: Path, text: str) -> None:
    """Whole or not at all, for the owner alone."""
    aside = path.with_name(f".{path.name}-{secrets.token_hex(6)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
