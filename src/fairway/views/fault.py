"""Contained failures, as people see them: what fails for which object, why, and when it is tried again."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairway.state.fault import Fault
from fairway.views import phrases
from fairway.views.table import Column, Page, table


class FaultView(msgspec.Struct, frozen=True):
    """One piece of work on one object that fails and is retried."""

    subject: str
    """`default/mnist-7` for a run, else `service:default/mnist`, `queue:research`, `companion:samples`, `engine`, `store` ..."""
    work: str
    cause: str
    since: float
    tries: int
    retry_at: float


class FaultList(msgspec.Struct, frozen=True):
    """Every fault, the oldest first."""

    faults: tuple[FaultView, ...]


def fault_views(faults: Iterable[Fault]) -> tuple[FaultView, ...]:
    """The faults as they are shown."""
    return tuple(FaultView(one.subject, one.work, one.cause, one.since, one.tries, one.retry_at) for one in faults)


def fault_line(fault: FaultView, now: float) -> str:
    """`route failed: port 8000 is in use; tried 3 times in 7s, again in 4s`."""
    tried = f"tried {phrases.count(fault.tries, 'time')} in {phrases.span(max(0.0, now - fault.since))}"
    wait = max(0.0, fault.retry_at - now)
    again = f"again in {phrases.span(wait)}" if wait >= 1.0 else "again now"
    return f"{fault.work} failed: {fault.cause}; {tried}, {again}"


def faults_text(view: FaultList, now: float, page: Page) -> str:
    """One line a fault."""
    if not view.faults:
        return "nothing fails\n"
    rows = [[one.subject, one.work, str(one.tries), phrases.age(one.since, now), one.cause] for one in view.faults]
    columns = (
        Column("OBJECT"), Column("WORK"), Column("TRIES", right=True), Column("SINCE", right=True), Column("CAUSE", loose=True),
    )  # fmt: skip
    return table(columns, rows, page)
