"""Views of faults: operations that fail for an object, the cause, and the time of the next retry."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairway.state.fault import WorkFault
from fairway.views.text import phrase
from fairway.views.text.table import Column, TextPage, table


class FaultView(msgspec.Struct, frozen=True):
    """An operation on an object that fails and is retried."""

    subject: str
    """`default/mnist-7` for a run, else `service:default/mnist`, `queue:research`, `companion:samples`, `engine`, `store` ..."""
    work: str
    cause: str
    since: float
    tries: int
    retry_at: float


class FaultList(msgspec.Struct, frozen=True):
    """All faults, oldest first."""

    faults: tuple[FaultView, ...]


def fault_views(faults: Iterable[WorkFault]) -> tuple[FaultView, ...]:
    """Return the views of faults."""
    return tuple(FaultView(fault.subject, fault.work, fault.cause, fault.since, fault.tries, fault.retry_at) for fault in faults)


def fault_line(fault: FaultView, now: float) -> str:
    """Return a line such as `route failed: port 8000 is in use; tried 3 times in 7s, again in 4s`."""
    attempts = f"tried {phrase.count(fault.tries, 'time')} in {phrase.span(max(0.0, now - fault.since))}"
    wait = max(0.0, fault.retry_at - now)
    next_try = f"again in {phrase.span(wait)}" if wait >= 1.0 else "again now"
    return f"{fault.work} failed: {fault.cause}; {attempts}, {next_try}"


def faults_text(view: FaultList, now: float, page: TextPage) -> str:
    """Return a table with one line per fault."""
    if not view.faults:
        return "nothing fails\n"
    rows = [[fault.subject, fault.work, str(fault.tries), phrase.age(fault.since, now), fault.cause] for fault in view.faults]
    columns = (
        Column("OBJECT"), Column("WORK"), Column("TRIES", right=True), Column("SINCE", right=True), Column("CAUSE", loose=True),
    )  # fmt: skip
    return table(columns, rows, page)
