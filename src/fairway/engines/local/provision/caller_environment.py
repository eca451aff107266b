"""The caller's environment of a run in place: complete until the run has ended for good, and reduced after that.

    environment.json          all variables, from the submission to the end of the run
    environment-resume.json   what `fairway resume` starts with

The reduced environment has what locates programs, libraries and devices, and what the document mentions (`$NAME`). Variables
whose name or value looks like a secret are never in it: a run that needs one when it is resumed names it under `secrets:`.

Both files are readable by their owner only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from fairway.app.system import crash_point
from fairway.engines.local.home import EngineHome
from fairway.errors import RefusedError
from fairway.state.job import JobKey, JobState

ENVIRONMENT_FILE = "environment.json"
RESUME_FILE = "environment-resume.json"

_KEPT = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|TERM|MANPATH|PKG_CONFIG_PATH|XDG_(CACHE|CONFIG|DATA)_HOME|FAIRWAY_HOME"
    r"|VIRTUAL_ENV|CONDA\w*|_CE_\w+|MAMBA\w*|PYENV\w*|PYTHON\w*|LD_\w+|LIBRARY_PATH|CPATH"
    r"|(CUDA|CUDNN|NVIDIA|NCCL|ROCR?|HIP|HSA|GLOO|UCX|OMP|KMP|MKL|OPENBLAS|NUMEXPR|OMPI|MPI|PMIX)_\w+"
    r"|(TORCH|PYTORCH|TF|XLA|JAX|TPU|KERAS|MXNET|TRITON|HF|TRANSFORMERS)_\w+"
    r"|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|(?i:https?_proxy|no_proxy|all_proxy)|(PIP|UV)_\w+"
)
_SECRET_NAME = re.compile(r"(?i)token|secret|passw|passphrase|credential|(^|_)(key|auth|pat|pwd)($|_)|api_?key|access_?key")
_SECRET_VALUE = re.compile(r"://[^/\s@]*:[^/\s@]*@")
"""A password within a URL."""
_MENTIONED = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")


def base_environment(job: JobState, folder: Path) -> dict[str, str]:
    """Return the variables with which a run in place starts: the caller's, or after its end the reduced ones."""
    path = folder / ENVIRONMENT_FILE
    try:
        environment = _read(path)
    except FileNotFoundError:
        path = folder / RESUME_FILE
        environment = None
    except (OSError, ValueError) as error:
        raise _unreadable(job, path, error) from None
    if environment is not None:
        _write(folder / RESUME_FILE, resumable(environment, mentioned(job)))
        return environment
    try:
        return _read(path)
    except (OSError, ValueError) as error:
        raise _unreadable(job, path, error) from None


def resumable(environment: Mapping[str, str], names: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the part of an environment that is kept after the end of its run."""
    return {
        name: value
        for name, value in environment.items()
        if (_KEPT.fullmatch(name) or name in names) and not _SECRET_NAME.search(name) and not _SECRET_VALUE.search(value)
    }


def mentioned(job: JobState) -> frozenset[str]:
    """Return the variables that the run's document mentions, such as `$DATA` in a script."""
    return frozenset(_MENTIONED.findall(job.spec.model_dump_json()))


def forget_environment(folder: Path) -> None:
    """Remove the caller's environment of a finished run, except what resuming it needs."""
    path = folder / ENVIRONMENT_FILE
    if not os.path.lexists(path):
        return
    with contextlib.suppress(OSError, ValueError):
        if not (folder / RESUME_FILE).exists():
            # The run never started, so that the reduced file does not exist yet.
            _write(folder / RESUME_FILE, resumable(_read(path)))
    with contextlib.suppress(OSError):
        path.unlink()


def forget_environments(home: EngineHome, is_over: Callable[[JobKey], bool]) -> None:
    """Do the same for all runs that ended while no daemon ran, or under an earlier version. Call it before any submission."""
    for key in home.jobs():
        if is_over(key):
            forget_environment(home.job(key))


def _read(path: Path) -> dict[str, str]:
    document = json.loads(path.read_bytes())
    if not isinstance(document, dict):
        message = "it does not hold a JSON object"
        raise ValueError(message)  # noqa: TRY004 - as for other damage of the file
    return {str(name): str(value) for name, value in document.items()}


def _write(path: Path, environment: Mapping[str, str]) -> None:
    aside = path.with_name(f".{path.name}-{secrets.token_hex(6)}")
    descriptor = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(environment, file)
    with crash_point.reach("engine.rename"):
        aside.replace(path)


def _unreadable(job: JobState, path: Path, error: Exception) -> RefusedError:
    message = f"the caller's environment of {job.key} cannot be read from {path}: {error}"
    return RefusedError(message, fix="submit the run again")
