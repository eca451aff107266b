"""The processes of one task, as their supervisor tracks them. Standard library only."""

from __future__ import annotations

import os


class TaskProcess:
    """One process of the order."""

    __slots__ = ("code", "number", "pid", "signal", "words")

    def __init__(self, number: int, pid: int) -> None:
        self.number = number
        self.pid = pid
        self.code: int | None = None
        self.signal: int | None = None
        self.words = ""
        """Why it could not be started."""

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.code is not None or self.signal is not None

    @property
    def failed(self) -> bool:
        """Whether it ended in any way other than with exit code 0."""
        return self.over and self.code != 0

    def ended(self, status: int) -> None:
        """Record the status that `waitpid` returned."""
        if os.WIFSIGNALED(status):
            self.signal = os.WTERMSIG(status)
        else:
            self.code = os.WEXITSTATUS(status)

    def as_dict(self) -> dict[str, object]:
        """Return plain data, for the record."""
        return {"rank": self.number, "pid": self.pid, "code": self.code, "signal": self.signal}


class TaskProcesses:
    """All processes of the task, and the one that decided how the task ended: the first that failed."""

    def __init__(self) -> None:
        self._all: dict[int, TaskProcess] = {}
        self.culprit: TaskProcess | None = None

    def add(self, rank: TaskProcess) -> None:
        """Add a process."""
        self._all[rank.pid] = rank

    def reaped(self, pid: int, status: int) -> None:
        """Record that a child ended. It may be an adopted orphan, which does not count."""
        rank = self._all.get(pid)
        if rank is None:
            return
        rank.ended(status)
        if rank.failed and self.culprit is None:
            self.culprit = rank

    @property
    def everyone(self) -> list[TaskProcess]:
        """All processes, in order of number."""
        return list(self._all.values())

    @property
    def left(self) -> list[TaskProcess]:
        """The processes that still run."""
        return [rank for rank in self._all.values() if not rank.over]

    @property
    def decisive(self) -> TaskProcess:
        """The process whose end counts as the task's."""
        return self.culprit or next(iter(self._all.values()))
