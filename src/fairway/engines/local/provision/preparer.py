"""Prepares runs: code, interpreter, environment, data and Fairway's runtime package."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairway.app.system import crash_point
from fairway.engines.local.home import EngineHome, make_private
from fairway.engines.local.provision import interpreter
from fairway.engines.local.provision.caller_environment import ENVIRONMENT_FILE as ENVIRONMENT_FILE
from fairway.engines.local.provision.caller_environment import base_environment
from fairway.engines.local.provision.code_folder import CodeProvider
from fairway.engines.local.provision.container import ContainerCommand, container_for
from fairway.engines.local.provision.interpreter import PythonInterpreter
from fairway.engines.local.provision.program_run import Say
from fairway.engines.local.provision.runtime_copy import provide_runtime
from fairway.engines.local.provision.virtual_environment import VirtualEnvironments
from fairway.errors import NotFoundError, RefusedError
from fairway.plan.service.replica import SERVICE_LABEL
from fairway.registry.blob import BlobStore
from fairway.registry.dataset import DatasetRegistry, is_reference
from fairway.registry.model import ModelRegistry
from fairway.state.job import JobState
from fairway.units import environment_variable

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
"""Where files are created before they are renamed to their final names."""

MODEL = "model://"
"""Prefix of a model version in a run's data; the input is its files."""
_PYTHONS = frozenset({"python", "python3"})
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.*")


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """What the tasks of a run start with."""

    work_dir: Path
    """The working folder of commands."""
    python: str
    """The interpreter that `python` stands for."""
    env: dict[str, str]
    """The environment before anything that a launch adds."""
    data: dict[str, str] = field(default_factory=dict)
    """Inputs by name: a path or a URI."""
    runtime_dir: Path = Path()
    """Holds `fairway.runtime`; to be put on PYTHONPATH."""
    wrap: ContainerCommand | None = None
    """Set when commands run in a container."""

    def resolved(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command with `python` replaced by the interpreter. In a container it stays: the image has its own."""
        if self.wrap is None and argv and argv[0] in _PYTHONS:
            return (self.python, *argv[1:])
        return tuple(argv)


_TRACES = "OTEL_"
"""Prefix of the standard variables of OpenTelemetry."""


class RunPreparer:
    """Prepares runs. It is idempotent: after a crash, or for another attempt, existing results are used."""

    def __init__(self, home: EngineHome, environ: Mapping[str, str] | None = None, blobs: BlobStore | None = None) -> None:
        self._home = home
        environ = os.environ if environ is None else environ
        self._machine = machine_variables(environ)
        self._traces = {name: value for name, value in environ.items() if name.startswith(_TRACES)}
        """Where replicas send their spans: the same place as the router of their service."""
        blobs = blobs or BlobStore(home.path / "blobs")
        self._datasets = DatasetRegistry(home.path, blobs)
        self._models = ModelRegistry(home.path, blobs)
        self._code = CodeProvider(home.path, blobs, self._machine)
        self._environments = VirtualEnvironments(home.path / "envs", self._machine)
        self._runtime_dir: Path | None = None
        self._runtime_lock = asyncio.Lock()
        self._discard_leftovers()

    async def prepare(self, job: JobState, say: Say = lambda _line: None) -> PreparedRun:
        """Prepare a run; `say` receives progress messages. Refusals name the field and the fix."""
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
            return PreparedRun(work_dir, "python", base, data, runtime_dir, wrap)
        python = await self._interpreter(job, work_dir, base, say)
        return PreparedRun(work_dir, python.path, python.variables(base), data, runtime_dir)

    def _discard_leftovers(self) -> None:
        """Move what a crash left unfinished to the trash. No other process creates files yet: a home has one daemon."""
        for pattern in _LEFTOVERS:
            for path in self._home.path.glob(pattern):
                trash = make_private(self._home.path / "trash")
                with crash_point.reach("engine.rename"):
                    os.rename(path, trash / f"{path.name}.{secrets.token_hex(6)}")

    async def _runtime(self) -> Path:
        # Many runs may be prepared at once, and all their threads would hash the same files.
        async with self._runtime_lock:
            if self._runtime_dir is None or not self._runtime_dir.is_dir():
                self._runtime_dir = await asyncio.to_thread(provide_runtime, self._home.path)
            return self._runtime_dir

    def _base_environment(self, job: JobState, folder: Path) -> dict[str, str]:
        variables = self._shell_environment(job, folder)
        return self._traces | variables if SERVICE_LABEL in job.labels else variables

    def _shell_environment(self, job: JobState, folder: Path) -> dict[str, str]:
        if not job.origin.keeps_environment:
            return dict(self._machine)
        return {"PATH": os.defpath} | base_environment(job, folder)

    async def _interpreter(self, job: JobState, work_dir: Path, base: Mapping[str, str], say: Say) -> PythonInterpreter:
        environment = job.spec.environment
        if environment.python:
            python = interpreter.find(environment.python, job.origin.folder or str(work_dir), base.get("PATH", os.defpath))
        else:
            python = interpreter.of(_callers(job))
        if not environment.requirements:
            return python
        requirements = _first_file(environment.requirements, [work_dir, Path(job.origin.folder or "/")])
        built_folder = await self._environments.provide(
            requirements, python.path, say, salt=job.origin.code_digest or str(work_dir)
        )
        return interpreter.of(str(built_folder / "bin" / "python"))

    def _data(self, job: JobState) -> dict[str, str]:
        inputs = RunInputs(self._datasets, self._models)
        return {name: inputs.resolve(f"data.{name}", text, job.origin.folder) for name, text in job.spec.data.items()}


@dataclass(frozen=True, slots=True)
class RunInputs:
    """Resolves the inputs of runs."""

    datasets: DatasetRegistry
    models: ModelRegistry

    def resolve(self, field_name: str, text: str, folder: str) -> str:
        """Return the path or URI of an input, from its text in a document and the caller's folder. Raises when there is none."""
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
    """Return the variables of an environment that belong to the machine, PATH in any case."""
    return {"PATH": os.defpath} | environment_variable.machine_variables(environ)


def _callers(job: JobState) -> str:
    """Return the caller's Python; where it is not known or does not exist any more, the one that runs the daemon."""
    path = job.origin.interpreter
    return path if path and os.access(path, os.X_OK) else sys.executable


def _first_file(name: str, folders: Sequence[Path]) -> Path:
    for folder in folders:
        path = folder / os.path.expanduser(name)
        if path.is_file():
            return path
    message = f"environment.requirements is {name!r}: there is no such file in {' or '.join(str(folder) for folder in folders)}"
    raise NotFoundError(message, fix="name a requirements file, relative to the code's folder")
