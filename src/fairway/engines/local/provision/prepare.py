"""Everything that a run needs before its tasks can start: code, interpreter, environment, data, and our runtime."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairway.app import crash
from fairway.engines.local.folders import Home, make_private
from fairway.engines.local.provision import interpreter
from fairway.engines.local.provision.callers import ENVIRONMENT_FILE as ENVIRONMENT_FILE
from fairway.engines.local.provision.callers import base_environment
from fairway.engines.local.provision.code import CodePlace
from fairway.engines.local.provision.container import ContainerWrap, container_for
from fairway.engines.local.provision.environment import Environments
from fairway.engines.local.provision.inject import provide_runtime
from fairway.engines.local.provision.interpreter import Interpreter
from fairway.engines.local.provision.programs import Say
from fairway.errors import NotFoundError, RefusedError
from fairway.plan.service.replica import SERVICE_LABEL
from fairway.registry.blobs import Blobs
from fairway.registry.dataset import Datasets, is_reference
from fairway.registry.model import Models
from fairway.state.job import Job
from fairway.units import conditions

_LEFTOVERS = (
    *(
        "envs/.*",
        "git/.*",
        "inject/.*",
        "blobs/aside/*",
        "blobs/seen/.*",
        "data/*/.*",
        "jobs/*/*/.code-*",
        "jobs/*/*/.environment*",
    ),
    *("datasets/*/.*", "models/*/.*", "models/*/aliases/.*", "models/*/tags/.*", "model-files/*/.*", "expected-models/.*"),
    "deleted-models/.*",
    "fetched/*",
)
"""Where things are made before they get their names."""

MODEL = "model://"
"""Before a model version, in the data of a run: its files."""
_PYTHONS = frozenset({"python", "python3"})
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.*")


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the tasks of a run start with."""

    work_dir: Path
    """Where commands start."""
    python: str
    """The interpreter that `python` means."""
    env: dict[str, str]
    """The environment before anything that a launch adds."""
    data: dict[str, str] = field(default_factory=dict)
    """Inputs by name: a path or a URI."""
    runtime_dir: Path = Path()
    """Holds `fairway.runtime`; to be put on PYTHONPATH."""
    wrap: ContainerWrap | None = None
    """Set when commands run in a container."""

    def resolved(self, argv: Sequence[str]) -> tuple[str, ...]:
        """The command with `python` replaced by the interpreter; in a container the image's own is meant."""
        if self.wrap is None and argv and argv[0] in _PYTHONS:
            return (self.python, *argv[1:])
        return tuple(argv)


_TRACES = "OTEL_"
"""How the standard variables of OpenTelemetry begin."""


class Preparer:
    """Prepares runs. Doing it again, after a crash or for another attempt, finds what was made and changes nothing."""

    def __init__(self, home: Home, environ: Mapping[str, str] | None = None, blobs: Blobs | None = None) -> None:
        self._home = home
        environ = os.environ if environ is None else environ
        self._machine = machine_variables(environ)
        self._traces = {name: value for name, value in environ.items() if name.startswith(_TRACES)}
        """Where replicas send their spans: the router of their service sends there too."""
        blobs = blobs or Blobs(home.path / "blobs")
        self._datasets = Datasets(home.path, blobs)
        self._models = Models(home.path, blobs)
        self._code = CodePlace(home.path, blobs, self._machine)
        self._environments = Environments(home.path / "envs", self._machine)
        self._runtime_dir: Path | None = None
        self._runtime_lock = asyncio.Lock()
        self._discard_leftovers()

    async def prepare(self, job: Job, say: Say = lambda _line: None) -> Prepared:
        """Make everything ready; `say` hears what is being done. Refusals name the field and the fix."""
        folder = self._home.make_job(job.key)
        work_dir = await self._code.provide(job, folder, say)
        base = self._base_environment(job, folder)
        data = await asyncio.to_thread(self._data, job) if job.spec.data else {}
        runtime_dir = await self._runtime()
        wrap = container_for(
            job.spec.environment,
            mounts=list(dict.fromkeys((str(folder), str(work_dir)))),
            read_only=[str(runtime_dir), *(path for path in data.values() if path.startswith("/"))],
            search=base.get("PATH"),
            user=os.getuid(),
            group=os.getgid(),
        )
        if wrap is not None:
            return Prepared(work_dir, "python", base, data, runtime_dir, wrap)
        python = await self._interpreter(job, work_dir, base, say)
        return Prepared(work_dir, python.path, python.variables(base), data, runtime_dir)

    def _discard_leftovers(self) -> None:
        """What a crash left half made goes to the trash. Nobody else makes anything yet: the home has one daemon."""
        for pattern in _LEFTOVERS:
            for path in self._home.path.glob(pattern):
                trash = make_private(self._home.path / "trash")
                with crash.reach("engine.rename"):
                    os.rename(path, trash / f"{path.name}.{secrets.token_hex(6)}")

    async def _runtime(self) -> Path:
        # Many runs may be prepared at once, and all their threads would hash the same files.
        async with self._runtime_lock:
            if self._runtime_dir is None or not self._runtime_dir.is_dir():
                self._runtime_dir = await asyncio.to_thread(provide_runtime, self._home.path)
            return self._runtime_dir

    def _base_environment(self, job: Job, folder: Path) -> dict[str, str]:
        found = self._shell_environment(job, folder)
        return self._traces | found if SERVICE_LABEL in job.labels else found

    def _shell_environment(self, job: Job, folder: Path) -> dict[str, str]:
        if not job.origin.keeps_environment:
            return dict(self._machine)
        return {"PATH": os.defpath} | base_environment(job, folder)

    async def _interpreter(self, job: Job, work_dir: Path, base: Mapping[str, str], say: Say) -> Interpreter:
        asked = job.spec.environment
        if asked.python:
            found = interpreter.find(asked.python, job.origin.folder or str(work_dir), base.get("PATH", os.defpath))
        else:
            found = interpreter.of(_callers(job))
        if not asked.requirements:
            return found
        requirements = _first_file(asked.requirements, [work_dir, Path(job.origin.folder or "/")])
        built = await self._environments.provide(requirements, found.path, say, salt=job.origin.code_digest or str(work_dir))
        return interpreter.of(str(built / "bin" / "python"))

    def _data(self, job: Job) -> dict[str, str]:
        inputs = Inputs(self._datasets, self._models)
        return {name: inputs.resolve(f"data.{name}", text, job.origin.folder) for name, text in job.spec.data.items()}


@dataclass(frozen=True, slots=True)
class Inputs:
    """Where the inputs of runs lie."""

    datasets: Datasets
    models: Models

    def resolve(self, field_name: str, text: str, folder: str) -> str:
        """The path or URI of an input, from its text in a document and the caller's folder. Raises when there is none."""
        if text.startswith("pvc://"):
            message = f"{field_name} is {text!r}: volume claims exist on a cluster only"
            raise RefusedError(message, fix="name a path or a dataset here, or submit to the cluster with --context")
        if text.startswith(MODEL):
            return str(self.models.folder(self.models.get(text.removeprefix(MODEL))))
        if _URI.fullmatch(text):
            return text
        path = Path(folder or "/", os.path.expanduser(text))
        if is_reference(text) and not path.exists():
            return self.datasets.locate(text)
        if not path.exists():
            message = f"{field_name} is {text!r}: there is no {path}"
            raise NotFoundError(message, fix="name a path that exists, a URI, or a dataset version such as mnist@3")
        return os.path.abspath(path)


def machine_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that belongs to the machine, with a path in any case."""
    return {"PATH": os.defpath} | conditions.machine_variables(environ)


def _callers(job: Job) -> str:
    """The caller's Python; where nobody said which, or it is gone, the one that runs us."""
    given = job.origin.interpreter
    return given if given and os.access(given, os.X_OK) else sys.executable


def _first_file(name: str, folders: Sequence[Path]) -> Path:
    for folder in folders:
        path = folder / os.path.expanduser(name)
        if path.is_file():
            return path
    message = f"environment.requirements is {name!r}: there is no such file in {' or '.join(str(folder) for folder in folders)}"
    raise NotFoundError(message, fix="name a requirements file, relative to the code's folder")
