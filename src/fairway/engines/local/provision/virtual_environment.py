"""Builds virtual environments from requirements: each once, aside, and stored under the digest of its inputs."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fairway.app.system import crash_point
from fairway.engines.local.provision import program_run
from fairway.engines.local.provision.program_run import Say
from fairway.errors import RefusedError
from fairway.runtime.pod.environment import LOCAL, move_in, with_includes

_ASK = "import sys, sysconfig; print(sys.implementation.cache_tag, *sys.version_info[:3], sysconfig.get_platform())"


@dataclass(frozen=True, slots=True)
class _EnvironmentCommands:
    """The commands that build one environment."""

    make: tuple[str, ...]
    install: tuple[str, ...]
    name: str


class VirtualEnvironments:
    """The built environments of a home.

    Promises:

    1. An environment that has a name is complete. A build that fails, or a crash, leaves none.
    2. However many runs want the same one at the same time, it is built once.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._folder = folder
        self._variables = dict(variables)
        self._building: dict[str, asyncio.Lock] = {}
        self._versions: dict[tuple[str, int, int], str] = {}
        """Versions that interpreters reported, by path and by the file behind it."""

    async def provide(self, requirements: Path, interpreter: str, say: Say, salt: str = "") -> Path:
        """Return the folder of an environment with these requirements for this Python; build it when there is none.

        `salt` tells code apart when the requirements name local folders.
        """
        text = _text_of(requirements)
        version = await self._version(interpreter)
        local = salt if LOCAL.search(text) else ""
        digest = hashlib.sha256("\0".join((text, version, local)).encode()).hexdigest()[:24]
        target = self._folder / digest
        async with self._building.setdefault(digest, asyncio.Lock()):
            if not target.is_dir():
                await self._build(target, requirements, interpreter, say)
        return target

    async def _version(self, interpreter: str) -> str:
        """Return a text that differs between Pythons that need different packages."""
        try:
            state = os.stat(interpreter)
        except OSError as error:
            message = f"there is no interpreter {interpreter} ({error.strerror})"
            raise RefusedError(message, fix="name a working interpreter under environment.python") from None
        key = (interpreter, state.st_ino, state.st_mtime_ns)
        if key not in self._versions:
            self._versions[key] = await self._asked_version(interpreter)
        return self._versions[key]

    async def _asked_version(self, interpreter: str) -> str:
        code, lines = await program_run.run([interpreter, "-I", "-c", _ASK], cwd=Path("/"), env=self._variables, say=_nobody)
        if code != 0 or not lines:
            message = f"{interpreter} does not run: {' '.join(lines) or f'exit code {code}'}"
            raise RefusedError(message, fix="name a working interpreter under environment.python")
        return lines[-1]

    async def _build(self, target: Path, requirements: Path, interpreter: str, say: Say) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = self._folder / f".{target.name}-{secrets.token_hex(4)}"
        tools = _tools(interpreter, aside, requirements)
        say(f"building an environment from {requirements.name} with {tools.name}")
        try:
            for argv in (tools.make, tools.install):
                code, tail = await program_run.run(argv, cwd=requirements.parent, env=self._variables, say=say)
                if code != 0:
                    raise _failed(requirements, tools, code, tail)
            await asyncio.to_thread(move_in, str(aside), str(target))
            with crash_point.reach("registry.rename"):
                os.rename(aside, target)
        finally:
            await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)
        say("the environment is ready")


def _tools(interpreter: str, aside: Path, requirements: Path) -> _EnvironmentCommands:
    python = str(aside / "bin" / "python")
    uv = _uv()
    if uv:
        return _EnvironmentCommands(
            (uv, "venv", "--quiet", "--no-project", "--python", interpreter, str(aside)),
            (uv, "pip", "install", "--python", python, "--requirement", str(requirements)),
            "uv",
        )
    return _EnvironmentCommands(
        (interpreter, "-m", "venv", str(aside)),
        (python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--requirement", str(requirements)),
        "pip",
    )


def _uv() -> str:
    """Return the path of uv, the faster installer: from the path, or from Fairway's own environment; empty without one."""
    own = os.path.join(os.path.dirname(sys.executable), "uv")
    return shutil.which("uv") or (own if os.access(own, os.X_OK) else "")


def _failed(requirements: Path, tools: _EnvironmentCommands, code: int, tail: list[str]) -> RefusedError:
    lines = "\n  ".join(tail)
    message = f"no environment could be built from {requirements.name}: {tools.name} ended with exit code {code}\n  {lines}"
    return RefusedError(message, fix=f"correct {requirements.name}, or name an environment of your own under environment.python")


def _nobody(_line: str) -> None:
    """Ignore the line."""


def _text_of(requirements: Path) -> str:
    try:
        return with_includes(str(requirements))
    except OSError as error:
        message = f"environment.requirements: {error.filename} cannot be read ({error.strerror})"
        raise RefusedError(message, fix="name a requirements file, relative to the code's folder") from None
