"""Connects the database of a home to the application: recovery, upkeep and condition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fairway.app.application import Application
from fairway.app.ports import Clock
from fairway.app.recovery import Kept, Recoveries, TakeUp
from fairway.state.recovery import Condition
from fairway.stores.sqlite.opening import Opened
from fairway.stores.sqlite.upkeep import Upkeep, clear_suspicion

DATABASE = "fairway.db"
RECOVERIES = "recoveries.json"


def attach(application: Application, opened: Opened, kept: Kept | None, home: Path, clock: Clock) -> Upkeep:
    """Let the application recover the runs that the engine keeps, and report the condition of its database."""
    clear_suspicion(home)
    upkeep = Upkeep(opened, clock)
    recoveries = Recoveries(home / RECOVERIES)
    take_up = None
    if kept is not None:
        take_up = TakeUp(application.store, application.engine, kept, clock, recoveries, opened.recovery)
        take_up.settled = opened.settled
        application.loop.take_up = take_up

    def condition() -> Condition:
        unknown = take_up.look() if take_up is not None else ()
        return replace(upkeep.condition(), recoveries=recoveries.all(), unknown=unknown)

    application.condition = condition
    return upkeep
