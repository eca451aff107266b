"""Programs that start the ranks of a task themselves, recognised by how they are called."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from enum import StrEnum


class Starter(StrEnum):
    """A program that starts other processes as ranks."""

    TORCHRUN = "torchrun"
    ACCELERATE = "accelerate"
    MPI = "mpi"
    DEEPSPEED = "deepspeed"


_BY_NAME = {
    "torchrun": Starter.TORCHRUN,
    "accelerate-launch": Starter.ACCELERATE,
    "mpirun": Starter.MPI,
    "mpiexec": Starter.MPI,
    "mpiexec.hydra": Starter.MPI,
    "mpirun.openmpi": Starter.MPI,
    "mpiexec.openmpi": Starter.MPI,
    "mpirun.mpich": Starter.MPI,
    "mpiexec.mpich": Starter.MPI,
    "orterun": Starter.MPI,
    "prterun": Starter.MPI,
    "deepspeed": Starter.DEEPSPEED,
}
_BY_MODULE = {
    "torch.distributed.run": Starter.TORCHRUN,
    "torch.distributed.launch": Starter.TORCHRUN,
    "accelerate.commands.launch": Starter.ACCELERATE,
    "deepspeed": Starter.DEEPSPEED,
    "deepspeed.launcher.runner": Starter.DEEPSPEED,
}

_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_PYTHON_OPTIONS_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
_RUNNERS = frozenset({"uv", "poetry", "pipenv", "pixi", "pdm", "hatch", "rye", "conda", "mamba", "micromamba"})
"""`uv run torchrun ...`: their second word is `run`."""
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
"""Words of their own before the program."""
_RUNNER_VALUES = frozenset(
    ["-n", "--name", "-p", "--prefix", "--with", "--python", "--extra", "--group", "--project", "-e", "--environment"]
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


def starter_of(argv: Sequence[str]) -> Starter | None:
    """Which starter this command calls, also behind `env`, `nice`, `uv run`, `bash -c` and their like; None when none."""
    found = starter_at(argv)
    return found[0] if found else None


def starter_at(argv: Sequence[str]) -> tuple[Starter, int] | None:
    """The starter that the command calls, and where its own arguments begin.

    The place is `len(argv)` when the call lies inside the text of a `bash -c`, where nothing can be inserted.
    """
    at = 0
    while at < len(argv):
        name = argv[at].rpartition("/")[2]
        if name in _BY_NAME:
            return _BY_NAME[name], at + 1
        if name == "accelerate":
            return (Starter.ACCELERATE, at + 2) if _word(argv, at + 1) == "launch" else None
        if _PYTHON.fullmatch(name):
            return _behind_python(argv, at + 1)
        if name in _SHELLS:
            return _behind_shell(argv, at + 1)
        following = _behind_wrapper(argv, at, name)
        if following is None:
            return None
        at = following
    return None


def starts_its_own_processes(argv: Sequence[str]) -> bool:
    """Whether the command starts a replica's ranks itself, so that the engine must start it once only."""
    return starter_of(argv) is not None


def starter_in_script(text: str) -> Starter | None:
    """The first starter that a bash script calls by a plain command; None when none."""
    for line in text.replace("\\\n", " ").splitlines():
        for words in _commands(line):
            found = starter_of(words)
            if found:
                return found
    return None


def _commands(line: str) -> Iterator[list[str]]:
    """The simple commands of one line of bash, without the assignments in front of them."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();&|")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        # A quote that goes on in the next line: no starter is called that way.
        return
    for apart, command in itertools.groupby(words, lambda word: set(word) <= set("();&|")):
        if not apart:
            yield list(itertools.dropwhile(_ASSIGNMENT.fullmatch, command))


def _word(argv: Sequence[str], at: int) -> str:
    return argv[at] if at < len(argv) else ""


def _behind_python(argv: Sequence[str], at: int) -> tuple[Starter, int] | None:
    while at < len(argv) and argv[at].startswith("-"):
        if argv[at] == "-m":
            module = _word(argv, at + 1)
            if module == "accelerate" and _word(argv, at + 2) == "launch":
                return Starter.ACCELERATE, at + 3
            return (_BY_MODULE[module], at + 2) if module in _BY_MODULE else None
        if argv[at] == "-c":
            return None
        at += 2 if argv[at] in _PYTHON_OPTIONS_WITH_VALUE else 1
    if at < len(argv) and argv[at].rpartition("/")[2] in _BY_NAME:
        # `python /venv/bin/torchrun`: the starter's own script.
        return _BY_NAME[argv[at].rpartition("/")[2]], at + 1
    return None


def _behind_shell(argv: Sequence[str], at: int) -> tuple[Starter, int] | None:
    while at < len(argv) and argv[at].startswith("-"):
        if not argv[at].startswith("--") and argv[at].endswith("c"):
            found = starter_in_script(_word(argv, at + 1))
            return (found, len(argv)) if found else None
        at += 1
    return None


def _behind_wrapper(argv: Sequence[str], at: int, name: str) -> int | None:
    """Where the wrapped program stands; None when `name` wraps nothing."""
    if name in _RUNNERS and _word(argv, at + 1) == "run":
        return _behind_options(argv, at + 2, _RUNNER_VALUES)
    if name not in _WRAPPER_VALUES:
        return None
    place = _behind_options(argv, at + 1, _WRAPPER_VALUES[name])
    while name == "env" and _ASSIGNMENT.fullmatch(_word(argv, place)):
        place += 1
    return place + _WRAPPER_OPERANDS.get(name, 0)


def _behind_options(argv: Sequence[str], at: int, with_value: frozenset[str]) -> int:
    while at < len(argv) and argv[at].startswith("-"):
        if argv[at] == "--":
            return at + 1
        at += 2 if argv[at] in with_value else 1
    return at
