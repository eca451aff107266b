"""Find the error of the failed rank in the last part of a task's output. Standard library only.

A launcher prints its own traceback last, other ranks report that they lost their peer, and lines of all ranks are mixed. The
result is the exception that the failed rank itself raised, or the message of the shell, the C++ runtime or the kernel.
"""

from __future__ import annotations

import json
import re
import signal as signals

from fairway.runtime.failure import launcher_report
from fairway.runtime.failure.peer import PEER
from fairway.runtime.failure.traceback import LONGEST, PrintedTraceback, lines_of, name_of, tracebacks

REACH = 64 * 1024
"""Number of characters at the end of a text that are examined."""
_USAGE = 2
_OWN_DOING = frozenset({signals.SIGABRT, signals.SIGSEGV, signals.SIGBUS, signals.SIGILL, signals.SIGFPE})
"""Signals caused by the program itself, often with a message about the reason."""
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
"""Patterns of error messages other than Python tracebacks, most reliable first."""
_THROWN = re.compile(r"terminate called after throwing an instance of '(?P<type>[^']+)'(?:\s+what\(\):\s*(?P<what>[^\n]*))?")
_VARIES = re.compile(r"0x[0-9a-fA-F]+|\d+")


class FailureCause:
    """The cause of a failure."""

    __slots__ = ("code", "digest", "error", "rank", "signal")

    def __init__(
        self, error: str = "", rank: int | None = None, *, code: int | None = None, signal: int | None = None, digest: str = ""
    ) -> None:
        self.error = error
        """`RuntimeError: shape mismatch`; empty if no error was found."""
        self.rank = rank
        """The failed rank among all ranks of the run, if the text has it."""
        self.code = code
        """Exit code of the rank, if a launcher reports it."""
        self.signal = signal
        self.digest = digest
        """Fingerprint of the error, used to recognise it; empty if no error was found."""


def find(text: str, error_file: str = "") -> FailureCause:
    """Find out why the program failed, from the end of its output and from torchrun's error file, if there is one."""
    text = text[-REACH:]
    lines = lines_of(text)
    plain = "\n".join(line for _, line in lines)
    report = launcher_report.report_of(plain)
    rank = report.rank if report is not None else None
    if report is not None and report.signal is not None:
        return _killed(report.signal, rank, lines, plain)
    chosen = _chosen(lines, rank, error_file)
    code = report.code if report is not None else None
    if chosen is not None and not (code == _USAGE and _is_peer(chosen)):
        return FailureCause(chosen.error, chosen.rank if rank is None else rank, code=code, digest=chosen.digest)
    error = _words(lines, plain)
    digest = name_of([_VARIES.sub("0", error)]) if error else ""
    if not error and report is not None:
        error = f"MPI_ABORT with code {code}" if report.abort else f"exit code {code}" if code is not None else ""
        digest = name_of([error]) if report.abort else ""
    return FailureCause(error, rank, code=code, digest=digest)


def _killed(number: int, rank: int | None, lines: list[tuple[int | None, str]], plain: str) -> FailureCause:
    try:
        name = signals.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    own_error = _words(lines, plain) if number in _OWN_DOING else ""
    digest = name_of([_VARIES.sub("0", own_error)]) if own_error else ""
    return FailureCause(f"{own_error} ({name})" if own_error else f"killed by {name}", rank, signal=number, digest=digest)


def _chosen(lines: list[tuple[int | None, str]], rank: int | None, error_file: str) -> PrintedTraceback | None:
    """Return the traceback that explains the failure.

    It is from the rank that the launcher names, and not from a rank that lost its peer.
    """
    own_tracebacks = [candidate for candidate in tracebacks(lines) if not launcher_report.OWN.search(candidate.type)]
    from_file = _filed(error_file)
    of_rank = [candidate for candidate in own_tracebacks if candidate.rank == rank] if rank is not None else []
    named = of_rank or ([from_file] if from_file is not None else [])
    unnamed = [candidate for candidate in own_tracebacks if candidate.rank is None] if rank is not None else own_tracebacks
    candidates = named or unnamed
    first_hand = [candidate for candidate in candidates if not _is_peer(candidate)]
    if rank is not None and not named and not first_hand:
        return None
    return (first_hand or candidates or [None])[-1]  # type: ignore[list-item]


def _filed(text: str) -> PrintedTraceback | None:
    """Return the traceback in torchrun's error file; None if there is none, or if the file holds anything else."""
    try:
        message = json.loads(text)["message"]
        stack = message["extraInfo"]["py_callstack"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    parsed = tracebacks(lines_of(stack)) if isinstance(stack, str) else []
    return parsed[-1] if parsed else None


def _is_peer(one: PrintedTraceback) -> bool:
    return bool(PEER.search(one.error))


def _words(lines: list[tuple[int | None, str]], plain: str) -> str:
    """Return the message of a failure without a traceback; empty if none matches."""
    thrown = list(_THROWN.finditer(plain))
    if thrown:
        last = thrown[-1]
        return f"{last['type']}: {last['what']}"[:LONGEST].rstrip() if last["what"] else last["type"][:LONGEST]
    relevant = [line for _, line in lines if line.strip() and not launcher_report.is_noise(line) and not PEER.search(line)]
    for pattern in _KNOWN:
        for line in reversed(relevant):
            match = pattern.match(line)
            if match:
                return match["error"].strip()[:LONGEST]
    return ""


def last_line(text: str) -> str:
    """Return the last line that is not empty and not from a launcher; empty if there is none."""
    relevant = [line for _, line in lines_of(text[-REACH:]) if line.strip() and not launcher_report.is_noise(line)]
    return relevant[-1].strip()[:LONGEST] if relevant else ""
