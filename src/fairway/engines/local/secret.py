"""Secrets of this home: one file per name, readable by the owner only."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from fairway.app.system import crash_point
from fairway.errors import NotFoundError, UsageError
from fairway.units.names import check_variable

VALUE_LIMIT = 64 * 1024
"""Limit in bytes; a secret becomes an environment variable, and the kernel takes no more than twice this for one."""

_ASIDE = ".aside-"


class FileSecrets:
    """Stores secrets under `secrets/` of a home.

    Promises:

    1. A value is never seen half written, and a put that returned survives a crash.
    2. Files are 0600 in a folder that is 0700, whatever the umask.
    3. No name reaches outside the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        """Return the names, sorted; never the values."""
        try:
            return sorted(name for name in os.listdir(self._folder) if not name.startswith("."))
        except FileNotFoundError:
            return []

    def put(self, name: str, value: str) -> None:
        """Store a value; an existing one is replaced."""
        data = _checked_value(name, value)
        path = self._path(name)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self._folder, 0o700)
        aside = self._folder / f"{_ASIDE}{secrets.token_hex(8)}"
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                os.fchmod(handle, 0o600)
                file.write(data)
                file.flush()
                os.fsync(handle)
            with crash_point.reach("secret.rename"):
                os.rename(aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        _sync_folder(self._folder)

    def delete(self, name: str) -> None:
        """Delete a secret. Raises `NotFoundError` where there is none."""
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            raise self._missing([name]) from None
        _sync_folder(self._folder)

    def reveal(self, names: Iterable[str]) -> dict[str, str]:
        """Return the values by name. Raises `NotFoundError` naming every missing secret."""
        values: dict[str, str] = {}
        missing: list[str] = []
        for name in names:
            try:
                values[name] = self._path(name).read_bytes().decode()
            except FileNotFoundError:
                missing.append(name)
        if missing:
            raise self._missing(missing)
        return values

    def _path(self, name: str) -> Path:
        try:
            return self._folder / check_variable(name)
        except ValueError as error:
            message = f"secret {name!r} {error}"
            raise UsageError(message, fix="a secret becomes an environment variable: name it like HF_TOKEN") from None

    def _missing(self, names: list[str]) -> NotFoundError:
        known = ", ".join(self.names()) or "none"
        what = f"secret {names[0]}" if len(names) == 1 else f"secrets {', '.join(names)}"
        message = f"there is no {what} here (known: {known})"
        return NotFoundError(message, fix=f"set it with: fairway secret set {names[0]}")


def _checked_value(name: str, value: str) -> bytes:
    data = value.encode()
    if not data:
        message = f"secret {name} is empty"
        raise UsageError(message, fix="give it a value, or delete it")
    if b"\0" in data:
        message = f"secret {name} contains a NUL byte, which an environment variable cannot hold"
        raise UsageError(message, fix="encode it, for example with base64")
    if len(data) > VALUE_LIMIT:
        message = f"secret {name} has {len(data)} bytes; an environment variable takes at most {VALUE_LIMIT}"
        raise UsageError(message, fix="keep large material in a file and refer to it under data:")
    return data


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
