"""Launchers' reports about the rank that failed first: torchrun, accelerate, mpirun, deepspeed, spawn. Standard library only."""

from __future__ import annotations

import re
import signal as signals

OWN = re.compile(
    r"(^|\.)(ChildFailedError|SignalException|CalledProcessError|ProcessExitedException|ProcessRaisedException|LaunchError)$"
)
"""Exceptions of launchers: they state that a rank failed, but not why."""
_TORCHRUN = re.compile(
    r"Root Cause \(first observed failure\):\s*\n\[\d+\]:\s*\n(?:.*\n)*?"
    r"\s+rank\s+:\s*(?P<rank>\d+).*\n\s+exitcode\s+:\s*(?P<code>-?\d+)"
)
_SIGNALLED = re.compile(
    r"noticed that process rank (?P<rank>\d+) with PID \d+ on node\s+\S+\s+exited\s+on\s+signal (?P<signal>\d+)"
)
_EXITED = re.compile(r"Process name:\s*\[\S*?,(?P<rank>\d+)\]\s+Exit code:\s*(?P<code>\d+)")
_ABORTED = re.compile(r"MPI_ABORT was invoked on rank (?P<rank>\d+)(?:.|\n){0,200}?[Ee]rror ?code:?\s+(?P<code>-?\d+)")
_HYDRA = re.compile(
    r"RANK (?P<rank>\d+) PID \d+ RUNNING AT .*\n"
    r"(?:.*KILLED BY SIGNAL:\s*(?P<signal>\d+)|.*EXIT (?:CODE|STATUS):\s*(?P<code>\d+))?"
)
_SPAWNED = re.compile(r"process (?P<rank>\d+) terminated with (?:signal (?P<name>SIG\w+)|exit code (?P<code>\d+))")
_DEEPSPEED = re.compile(r"exits with return code = (?P<code>-?\d+)")
_REPORTS = (_TORCHRUN, _SIGNALLED, _EXITED, _ABORTED, _HYDRA, _SPAWNED, _DEEPSPEED)
_NOISE = re.compile(
    r"^([WEI]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+\] ?|\[[^\]]{1,60}:\d+\] |-{3,}$|={3,}$|\*{3,}$|NOTE: invoking MPI_ABORT)"
    r"|^(prterun|mpirun|mpiexec|prun) |^\s+(time|host|rank|exitcode|error_file|traceback) +:"
    r"|^(Failures:|Root Cause|\[\d+\]:|.* FAILED$)"
    r"|^Abort is in progress"
)
"""Lines of launchers that are not errors of the program."""


class LauncherReport:
    """The failed rank according to a launcher, and how it ended."""

    __slots__ = ("abort", "code", "rank", "signal")

    def __init__(self, rank: int | None, code: int | None, signal: int | None, abort: bool) -> None:
        self.rank = rank
        self.code = code
        self.signal = signal
        self.abort = abort
        """Whether the rank called MPI_Abort."""


def report_of(text: str) -> LauncherReport | None:
    """Return the last report of a launcher in the text; None if there is none."""
    reports = [(match.start(), pattern, match) for pattern in _REPORTS for match in pattern.finditer(text)]
    if not reports:
        return None
    # After an abort, mpirun stops the other ranks and reports that too: the abort is the cause.
    aborts = [report for report in reports if report[1] is _ABORTED]
    _, pattern, match = aborts[-1] if aborts else max(reports, key=lambda report: report[0])
    parts = match.groupdict()
    code = int(parts["code"]) if parts.get("code") else None
    number = int(parts["signal"]) if parts.get("signal") else _number(parts.get("name") or "")
    if code is not None and code < 0 and pattern is not _ABORTED:
        number, code = -code, None
    return LauncherReport(int(parts["rank"]) if parts.get("rank") else None, code, number, pattern is _ABORTED)


def is_noise(line: str) -> bool:
    """Return whether the line is from a launcher."""
    return bool(_NOISE.search(line))


def _number(name: str) -> int | None:
    return int(signals.Signals[name]) if name in signals.Signals.__members__ else None
