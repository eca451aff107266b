"""Recognises launchers, programs that start the ranks of a task themselves, by how they are called."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Launcher(StrEnum):
    """A launcher: a program that starts other processes as ranks."""

    TORCHRUN = "torchrun"
    ACCELERATE = "accelerate"
    MPI = "mpi"
    DEEPSPEED = "deepspeed"


_BY_NAME = {
    "torchrun": Launcher.TORCHRUN,
    "accelerate-launch": Launcher.ACCELERATE,
    "mpirun": Launcher.MPI,
    "mpiexec": Launcher.MPI,
    "mpiexec.hydra": Launcher.MPI,
    "mpirun.openmpi": Launcher.MPI,
    "mpiexec.openmpi": Launcher.MPI,
    "mpirun.mpich": Launcher.MPI,
    "mpiexec.mpich": Launcher.MPI,
    "orterun": Launcher.MPI,
    "prterun": Launcher.MPI,
    "deepspeed": Launcher.DEEPSPEED,
}
_BY_MODULE = {
    "torch.distributed.run": Launcher.TORCHRUN,
    "torch.distributed.launch": Launcher.TORCHRUN,
    "accelerate.commands.launch": Launcher.ACCELERATE,
    "deepspeed": Launcher.DEEPSPEED,
    "deepspeed.launcher.runner": Launcher.DEEPSPEED,
}

_PYTHON = re.compile(r"(python|pypy)[0-9.]*|\$\{?\w*(?i:python)\w*(:?-[^}]*)?\}?")
"""An interpreter by name, or by a variable of a script that is named after one: `$PYTHON`, `${PYTHON:-python3}`."""
_PYTHON_OPTIONS_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
_SHELL_OPTIONS_WITH_VALUE = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})
_KEYWORDS = frozenset({"if", "then", "else", "elif", "do", "while", "until", "!", "{"})
"""Words of bash before a command."""
_RUNNERS = frozenset({"uv", "poetry", "pipenv", "pixi", "pdm", "hatch", "rye", "conda", "mamba", "micromamba"})
"""Programs whose second word is `run`: `uv run torchrun ...`."""
_WRAPPER_VALUES = {
    "env": frozenset({"-u", "--unset", "-C", "--chdir"}),
    "nice": frozenset({"-n", "--adjustment"}),
    "ionice": frozenset({"-c", "-n", "-p"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "numactl": frozenset({"-N", "-m", "-C", "-i", "-p"}),
    "time": frozenset({"-f", "-o"}),
    "timeout": frozenset({"-k", "-s"}),
    "taskset": frozenset[str](),
    "nohup": frozenset[str](),
    "setsid": frozenset[str](),
    "exec": frozenset[str](),
    "xvfb-run": frozenset({"-n", "-s", "-e", "-f"}),
}
"""Programs that run another one, and those of their options that take a value."""
_WRAPPER_OPERANDS = {"timeout": 1, "taskset": 1}
"""Number of their own operands before the program."""
_RUNNER_VALUES = frozenset(
    ["-n", "--name", "-p", "--prefix", "--with", "--python", "--extra", "--group", "--project", "-e", "--environment"]
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


def starter_of(argv: Sequence[str]) -> Launcher | None:
    """Return which launcher this command calls, also behind `env`, `nice`, `uv run`, `bash -c` and the like; None when none."""
    match = starter_at(argv)
    return match[0] if match else None


def starter_at(argv: Sequence[str]) -> tuple[Launcher, int] | None:
    """Return the launcher that the command calls, and the position at which the launcher's own arguments begin.

    The position is `len(argv)` when the call is inside the text of a `bash -c`, where nothing can be inserted.
    """
    position = 0
    while position < len(argv):
        name = argv[position].rpartition("/")[2]
        if name in _BY_NAME:
            return _BY_NAME[name], position + 1
        if name == "accelerate":
            return (Launcher.ACCELERATE, position + 2) if _word(argv, position + 1) == "launch" else None
        if _PYTHON.fullmatch(name):
            return _behind_python(argv, position + 1)
        if name in _SHELLS:
            return _behind_shell(argv, position + 1)
        following = _behind_wrapper(argv, position, name)
        if following is None:
            return None
        position = following
    return None


@dataclass(frozen=True, slots=True)
class LauncherCall:
    """A call of a launcher: which one, and the words after its name."""

    starter: Launcher
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LauncherScript:
    """A file that a command runs as a script."""

    path: str
    by_shell: bool
    """Whether a shell runs it by name; otherwise its first line names the interpreter."""


Read = Callable[[LauncherScript], str | None]
"""Returns the text of a shell script; None when there is none, or when the file is no shell script."""


def starter_in_script(text: str) -> Launcher | None:
    """Return the first launcher that a bash script calls by a plain command; None when there is none."""
    call = call_in_script(text)
    return call.starter if call else None


def call_of(argv: Sequence[str]) -> LauncherCall | None:
    """Return a command's call of a launcher, also inside the text of a `bash -c`; None when there is none."""
    match = starter_at(argv)
    if match is None:
        return None
    starter, position = match
    if position < len(argv) or not _has_shell_text(argv):
        return LauncherCall(starter, tuple(argv[position:]))
    return next((call for word in argv if (call := call_in_script(word)) and call.starter is starter), LauncherCall(starter))


def call_in_script(text: str) -> LauncherCall | None:
    """Return the first call of a launcher in a bash script; None when there is none."""
    return next((call for words in _script_commands(text) if (call := call_of(words) or _assigned_call(words))), None)


def call_behind(argv: Sequence[str], text: str, read: Read) -> LauncherCall | None:
    """Return the call of a launcher by a command or by the `text` of a script.

    Script files that these run are searched, too, and files that those run.
    """
    result = call_of(argv) or call_in_script(text)
    if result:
        return result
    for file in [*_files(argv), *_files_in(text)]:
        inner = read(file) or ""
        result = call_in_script(inner) or next(
            (call for other in _files_in(inner) if (call := call_in_script(read(other) or ""))), None
        )
        if result:
            return result
    return None


def _script_commands(text: str) -> Iterator[list[str]]:
    for line in text.replace("\\\n", " ").splitlines():
        yield from _commands(line)


def _assigned_call(words: Sequence[str]) -> LauncherCall | None:
    """Return the call that a variable holds: `LAUNCHER="torchrun --nnodes 2"`."""
    for word in words:
        if not _ASSIGNMENT.fullmatch(word):
            return None
        call = call_of(word.partition("=")[2].split())
        if call:
            return call
    return None


def _files(argv: Sequence[str]) -> list[LauncherScript]:
    """Return the script file that a command runs; empty when it runs none."""
    position = 0
    while position < len(argv):
        name = argv[position].rpartition("/")[2]
        if name in _SHELLS or argv[position] in ("source", "."):
            return _operand(argv, position + 1)
        if "/" in argv[position] or name.endswith((".sh", ".bash")):
            return [LauncherScript(argv[position], by_shell=False)]
        following = _behind_wrapper(argv, position, name)
        if following is None:
            return []
        position = following
    return []


def _operand(argv: Sequence[str], at: int) -> list[LauncherScript]:
    while at < len(argv) and argv[at][:1] in ("-", "+"):
        if not argv[at].startswith("--") and argv[at].endswith("c"):
            return _files_in(_word(argv, at + 1))
        at += 2 if argv[at] in _SHELL_OPTIONS_WITH_VALUE else 1
    return [LauncherScript(argv[at], by_shell=True)] if at < len(argv) else []


def _files_in(text: str) -> list[LauncherScript]:
    return [file for words in _script_commands(text) for file in _files(words)]


def _has_shell_text(argv: Sequence[str]) -> bool:
    return any(word.rpartition("/")[2] in _SHELLS for word in argv)


def _commands(line: str) -> Iterator[list[str]]:
    """Yield the simple commands of a line of bash without preceding assignments.

    A line of assignments alone is yielded as it is.
    """
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();&|")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        # A quote that continues on the next line: launchers are not called that way.
        return
    for is_separator, command in itertools.groupby(words, lambda word: set(word) <= set("();&|")):
        if is_separator:
            continue
        assigned = list(itertools.dropwhile(_KEYWORDS.__contains__, command))
        called = list(itertools.dropwhile(_ASSIGNMENT.fullmatch, assigned))
        yield called or assigned


def _word(argv: Sequence[str], at: int) -> str:
    return argv[at] if at < len(argv) else ""


def _behind_python(argv: Sequence[str], at: int) -> tuple[Launcher, int] | None:
    while at < len(argv) and argv[at].startswith("-"):
        if argv[at] == "-m":
            module = _word(argv, at + 1)
            if module == "accelerate" and _word(argv, at + 2) == "launch":
                return Launcher.ACCELERATE, at + 3
            return (_BY_MODULE[module], at + 2) if module in _BY_MODULE else None
        if argv[at] == "-c":
            return None
        at += 2 if argv[at] in _PYTHON_OPTIONS_WITH_VALUE else 1
    if at < len(argv) and argv[at].rpartition("/")[2] in _BY_NAME:
        # `python /venv/bin/torchrun`: the launcher's own script.
        return _BY_NAME[argv[at].rpartition("/")[2]], at + 1
    return None


def _behind_shell(argv: Sequence[str], at: int) -> tuple[Launcher, int] | None:
    while at < len(argv) and argv[at].startswith("-"):
        if not argv[at].startswith("--") and argv[at].endswith("c"):
            starter = starter_in_script(_word(argv, at + 1))
            return (starter, len(argv)) if starter else None
        at += 2 if argv[at] in _SHELL_OPTIONS_WITH_VALUE else 1
    return None


def _behind_wrapper(argv: Sequence[str], at: int, name: str) -> int | None:
    """Return the position of the wrapped program; None when `name` is no wrapper."""
    if name in _RUNNERS and _word(argv, at + 1) == "run":
        return _behind_options(argv, at + 2, _RUNNER_VALUES)
    if name not in _WRAPPER_VALUES:
        return None
    position = _behind_options(argv, at + 1, _WRAPPER_VALUES[name])
    while name == "env" and _ASSIGNMENT.fullmatch(_word(argv, position)):
        position += 1
    return position + _WRAPPER_OPERANDS.get(name, 0)


def _behind_options(argv: Sequence[str], at: int, with_value: frozenset[str]) -> int:
    while at < len(argv) and argv[at].startswith("-"):
        if argv[at] == "--":
            return at + 1
        at += 2 if argv[at] in with_value else 1
    return at
