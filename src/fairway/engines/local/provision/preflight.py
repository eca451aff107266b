"""Finds what a run would miss when it starts: at planning and submission instead of at the failure."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from fairway.app.submission import Submission
from fairway.engines.local.provision import framework, interpreter
from fairway.errors import FairwayError, RefusedError
from fairway.spec.job import ContainerUse, JobSpec, TaskRole
from fairway.state.job import SubmissionOrigin

_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs", "-o", "-O"})
_ENVIRONMENT_PROGRAM = re.compile(r"(?<![\w/.-])(?:\./)?((?:[\w.-]+/)*[\w.-]+)/bin/[\w.-]+")
_BUILT_IN = frozenset({"."})

Resolve = Callable[[str, str, str], str]
"""Resolves an input from the field, its text and the caller's folder; raises when there is none."""


def refuse_without_code(spec: JobSpec, origin: SubmissionOrigin) -> None:
    """Refuse a command that names a file next to a document that has no `code`."""
    if spec.code.path or spec.code.git or spec.code.in_place or not origin.folder or _in_container(spec):
        return
    for name, role in spec.roles.items():
        for word in files_of(role.command):
            if not os.path.isabs(word) and os.path.isfile(os.path.join(origin.folder, word)):
                message = (
                    f"the command of {name} names {word}, which lies in {origin.folder}; the document has no `code:`, so the run "
                    "would start in an empty folder"
                )
                raise RefusedError(message, fix="add `code: .` to the document, or run it with --in-place")


def missing(submission: Submission, machine: Mapping[str, str], resolve: Resolve) -> list[str]:
    """Return messages about what does not exist, each with its fix: code, interpreter, requirements, inputs, programs.

    Only names are checked, no content.
    """
    spec, origin = submission.document.spec, submission.origin
    findings = _PreflightFindings()
    findings.try_to(lambda: refuse_without_code(spec, origin))
    for name, text in spec.data.items():
        findings.try_to(lambda name=name, text=text: resolve(f"data.{name}", text, origin.folder))  # type: ignore[misc]
    folder = _folder(spec, origin, findings)
    if _in_container(spec):
        return findings.said
    base = submission.environment if submission.environment is not None else machine
    search = _search(spec, origin, base.get("PATH", os.defpath), findings)
    if spec.environment.requirements and folder is not None:
        _check_requirements(spec.environment.requirements, (folder, Path(origin.folder or "/")), findings)
    for name, role in spec.roles.items():
        findings.said.extend(_commands(name, role, folder, search))
        if not spec.environment.requirements:
            findings.said.extend(framework.missing_packages(role.command, search))
    return findings.said


def taken_port(port: int) -> str:
    """Return what is wrong with the port that a service requests; empty when it is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return f"port is {port}: it cannot be used ({error.strerror}); fix: name another port, or none for a free one"
    return ""


def environments_of(spec: JobSpec, source: Path) -> list[str]:
    """Return virtual environments below the code's folder whose programs the commands name, such as `.venv`."""
    texts = [text for role in spec.roles.values() for text in (*role.command, role.script)]
    named = {os.path.normpath(match) for text in texts for match in _ENVIRONMENT_PROGRAM.findall(text)}
    return sorted(name for name in named if not name.startswith("..") and (source / name / "pyvenv.cfg").is_file())


def files_of(command: Sequence[str]) -> list[str]:
    """Return the files that a command starts by name: a program with a slash, and what an interpreter is given to run."""
    if not command or "{{" in command[0]:
        return []
    program = os.path.basename(command[0])
    program_files = [command[0]] if "/" in command[0] else []
    if not _PYTHON.fullmatch(program) and program not in _SHELLS:
        return program_files
    at = 1
    while at < len(command) and command[at].startswith("-"):
        if command[at] in ("-m", "-") or (not command[at].startswith("--") and command[at].endswith("c")):
            return program_files
        at += 2 if command[at] in _WITH_VALUE else 1
    return [*program_files, command[at]] if at < len(command) and "{{" not in command[at] else program_files


class _PreflightFindings:
    def __init__(self) -> None:
        self.said: list[str] = []

    def try_to(self, act: Callable[[], object]) -> None:
        """Call the function; when it raises, keep the message and the fix."""
        try:
            act()
        except FairwayError as error:
            self.said.append(f"{error.message}; fix: {error.fix}" if error.fix else error.message)
        except OSError as error:
            self.said.append(str(error))


def _in_container(spec: JobSpec) -> bool:
    return spec.environment.container is ContainerUse.ALWAYS


def _folder(spec: JobSpec, origin: SubmissionOrigin, found: _PreflightFindings) -> Path | None:
    """Return the folder that the commands will see, or the source of its copy; None when that is not known here."""
    if spec.code.git is not None:
        return None
    if not spec.code.path and not spec.code.in_place:
        return Path("/nonexistent") if origin.folder else None
    folder = Path(origin.folder, spec.code.path or ".")
    if folder.is_dir():
        return folder
    if not origin.code_digest:
        found.said.append(f"code.path is {spec.code.path!r}: there is no folder {folder}; fix: name a folder that exists")
    return None


def _search(spec: JobSpec, origin: SubmissionOrigin, path: str, found: _PreflightFindings) -> str:
    """Return the search path for programs, as the run will have it."""
    wanted_python = spec.environment.python
    if not wanted_python:
        folder = os.path.dirname(origin.interpreter)
        return os.pathsep.join([folder, path]) if folder else path
    python: list[str] = []
    found.try_to(lambda: python.append(interpreter.find(wanted_python, origin.folder or "/", path).path))
    return os.pathsep.join([*map(os.path.dirname, python), path])


def _check_requirements(name: str, folders: Sequence[Path], found: _PreflightFindings) -> None:
    if not any((folder / os.path.expanduser(name)).is_file() for folder in folders):
        searched = " or ".join(dict.fromkeys(str(folder) for folder in folders if folder.is_dir()))
        where = f" in {searched}" if searched else ""
        fix = "name a requirements file, relative to the code's folder"
        found.said.append(f"environment.requirements is {name!r}: there is no such file{where}; fix: {fix}")


def _commands(name: str, role: TaskRole, folder: Path | None, search: str) -> Iterator[str]:
    if not role.command or "{{" in role.command[0]:
        return
    program = role.command[0]
    is_builtin = program in _BUILT_IN or _PYTHON.fullmatch(program)
    if "/" not in program and not is_builtin and shutil.which(program, path=search) is None:
        fix = _fix_program(program, folder)
        yield f"the command of {name} starts {program!r}, and there is no such program on the path; fix: {fix}"
    for word in files_of(role.command):
        place = Path(word) if os.path.isabs(word) else folder / word if folder is not None else None
        if place is None:
            continue
        if not place.exists():
            where = f" in {folder}" if folder is not None and folder.is_dir() and not os.path.isabs(word) else ""
            yield f"the command of {name} names {word}, and there is no such file{where}; fix: name a file that exists"
        elif word == program and not os.access(place, os.X_OK):
            yield f"the command of {name} starts {word}, which is not executable; fix: chmod +x {place}"


def _fix_program(program: str, folder: Path | None) -> str:
    if folder is not None and (folder / program).is_file():
        return f"write ./{program}"
    return "install it, name it with its path, or choose the environment that has it with --python"
