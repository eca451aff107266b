"""Determines the Python with which a task runs, and the variables that activate its environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fairway.errors import RefusedError


@dataclass(frozen=True, slots=True)
class PythonInterpreter:
    """A Python interpreter, and the environment that it belongs to."""

    path: str
    prefix: str = ""
    """The folder of its virtual or conda environment; empty when it belongs to none."""
    conda: bool = False

    def variables(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of `base`, changed as activating the environment would."""
        env = dict(base)
        if not self.prefix:
            return env
        programs = os.path.dirname(self.path)
        old = [part for part in env.get("PATH", os.defpath).split(os.pathsep) if part and part != programs]
        env["PATH"] = os.pathsep.join([programs, *old])
        env["CONDA_PREFIX" if self.conda else "VIRTUAL_ENV"] = self.prefix
        if not self.conda:
            # It would point any Python to another standard library.
            env.pop("PYTHONHOME", None)
        return env


def find(asked: str, folder: str, search: str) -> PythonInterpreter:
    """Return the Python that a document names: by the folder of an environment, a file, or a program on the path."""
    place = Path(folder, os.path.expanduser(asked))
    if place.is_dir():
        for name in ("bin/python", "bin/python3"):
            if os.access(place / name, os.X_OK):
                return of(str(place / name))
        message = f"environment.python is {asked!r}: {place} holds no bin/python"
        raise RefusedError(message, fix="name the folder of a virtual environment, or an interpreter")
    if place.is_file():
        if not os.access(place, os.X_OK):
            message = f"environment.python is {asked!r}: {place} is not executable"
            raise RefusedError(message, fix=f"chmod +x {place}, or name another interpreter")
        return of(str(place))
    program = shutil.which(asked, path=search) if "/" not in asked else None
    if program is None:
        message = f"environment.python is {asked!r}: there is no such file or folder ({place}), and no such program on the path"
        raise RefusedError(message, fix="name an interpreter or a virtual environment; python -m venv .venv makes one")
    return of(program)


def of(path: str) -> PythonInterpreter:
    """Return the interpreter with its environment. Symbolic links stay unresolved: resolving them would leave the environment."""
    path = os.path.abspath(path)
    prefix = os.path.dirname(os.path.dirname(path))
    if os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
        return PythonInterpreter(path, prefix)
    if os.path.isdir(os.path.join(prefix, "conda-meta")):
        return PythonInterpreter(path, prefix, conda=True)
    return PythonInterpreter(path)
