"""The error of the rank that failed, found in the last part of what a task printed. Standard library only.

A launcher prints its own traceback last, other ranks tell that they lost their peer, and lines of all of them are mixed. What is
wanted is the exception that the failed rank itself raised, or the words of the shell, the C++ runtime or the kernel.
"""

from __future__ import annotations

import json
import re
import signal as signals

from fairway.runtime.failure import launcher
from fairway.runtime.failure.peer import PEER
from fairway.runtime.failure.traceback import LONGEST, Traceback, lines_of, name_of, tracebacks

REACH = 64 * 1024
"""Characters at the end of a text that are looked at."""
_USAGE = 2
_OWN_DOING = frozenset({signals.SIGABRT, signals.SIGSEGV, signals.SIGBUS, signals.SIGILL, signals.SIGFPE})
"""Signals that a program brings upon itself, often with a word about why."""
_KNOWN = (
    re.compile(r"^(?P<error>\S+: error: .+)"),
    re.compile(r"^(?P<error>Fatal Python error: .+)"),
    re.compile(r"^(?P<error>.*\b(?:command not found|: not found))$"),
    re.compile(r"^(?P<error>\S*python[\d.]*: (?:can't open file .+|No module named .+))"),
    re.compile(
        r"^(?P<error>\S+: (?:line \d+: )?.*"
        r"(?:No such file or directory|Permission denied|No space left on device|syntax error.*))$"
    ),
    re.compile(r"^(?:.*line \d+: +\d+ +)?(?P<error>(?:Segmentation fault|Bus error|Aborted|Killed|Illegal instruction)\b.*)"),
    re.compile(r"^(?P<error>(?:\S+ )?(?:[Ff]atal|FATAL|[Ee]rror|ERROR|panic)\b ?[:\]].*)"),
)
"""Words of an end that is no Python traceback, the surest first."""
_THROWN = re.compile(r"terminate called after throwing an instance of '(?P<type>[^']+)'(?:\s+what\(\):\s*(?P<what>[^\n]*))?")
_VARIES = re.compile(r"0x[0-9a-fA-F]+|\d+")


class Cause:
    """What is known of the failure."""

    __slots__ = ("code", "digest", "error", "rank", "signal")

    def __init__(
        self, error: str = "", rank: int | None = None, *, code: int | None = None, signal: int | None = None, digest: str = ""
    ) -> None:
        self.error = error
        """`RuntimeError: shape mismatch`; empty when nothing was found."""
        self.rank = rank
        """Among all ranks of the run, where the text says it."""
        self.code = code
        """With what the rank exited, where a launcher says it."""
        self.signal = signal
        self.digest = digest
        """Names the mistake, so that it is recognised; empty when no error was recognised."""


def find(text: str, error_file: str = "") -> Cause:
    """Why the program failed, from the end of what it printed and from torchrun's error file, where there is one."""
    text = text[-REACH:]
    lines = lines_of(text)
    plain = "\n".join(line for _, line in lines)
    told = launcher.report_of(plain)
    rank = told.rank if told is not None else None
    if told is not None and told.signal is not None:
        return _killed(told.signal, rank, lines, plain)
    chosen = _chosen(lines, rank, error_file)
    code = told.code if told is not None else None
    if chosen is not None and not (code == _USAGE and _is_peer(chosen)):
        return Cause(chosen.error, chosen.rank if rank is None else rank, code=code, digest=chosen.digest)
    error = _words(lines, plain)
    digest = name_of([_VARIES.sub("0", error)]) if error else ""
    if not error and told is not None:
        error = f"MPI_ABORT with code {code}" if told.abort else f"exit code {code}" if code is not None else ""
        digest = name_of([error]) if told.abort else ""
    return Cause(error, rank, code=code, digest=digest)


def _killed(number: int, rank: int | None, lines: list[tuple[int | None, str]], plain: str) -> Cause:
    try:
        name = signals.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    own = _words(lines, plain) if number in _OWN_DOING else ""
    digest = name_of([_VARIES.sub("0", own)]) if own else ""
    return Cause(f"{own} ({name})" if own else f"killed by {name}", rank, signal=number, digest=digest)


def _chosen(lines: list[tuple[int | None, str]], rank: int | None, error_file: str) -> Traceback | None:
    """The traceback that explains the end: of the rank that the launcher names, and none of a rank that lost its peer."""
    own = [one for one in tracebacks(lines) if not launcher.OWN.search(one.type)]
    filed = _filed(error_file)
    of_rank = [one for one in own if one.rank == rank] if rank is not None else []
    named = of_rank or ([filed] if filed is not None else [])
    unnamed = [one for one in own if one.rank is None] if rank is not None else own
    candidates = named or unnamed
    first_hand = [one for one in candidates if not _is_peer(one)]
    if rank is not None and not named and not first_hand:
        return None
    return (first_hand or candidates or [None])[-1]  # type: ignore[list-item]


def _filed(text: str) -> Traceback | None:
    """The traceback in torchrun's error file; None when there is none, or when the file holds anything else."""
    try:
        message = json.loads(text)["message"]
        stack = message["extraInfo"]["py_callstack"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    found = tracebacks(lines_of(stack)) if isinstance(stack, str) else []
    return found[-1] if found else None


def _is_peer(one: Traceback) -> bool:
    return bool(PEER.search(one.error))


def _words(lines: list[tuple[int | None, str]], plain: str) -> str:
    """The words of an end without a traceback; empty when none is known."""
    thrown = list(_THROWN.finditer(plain))
    if thrown:
        last = thrown[-1]
        return f"{last['type']}: {last['what']}"[:LONGEST].rstrip() if last["what"] else last["type"][:LONGEST]
    shown = [line for _, line in lines if line.strip() and not launcher.is_noise(line) and not PEER.search(line)]
    for pattern in _KNOWN:
        for line in reversed(shown):
            found = pattern.match(line)
            if found:
                return found["error"].strip()[:LONGEST]
    return ""


def last_line(text: str) -> str:
    """The last line that says anything and is no launcher's; empty when there is none."""
    shown = [line for _, line in lines_of(text[-REACH:]) if line.strip() and not launcher.is_noise(line)]
    return shown[-1].strip()[:LONGEST] if shown else ""
