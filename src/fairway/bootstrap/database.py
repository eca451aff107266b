"""Connects the database of a home to the application: recovery, upkeep and condition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fairway.app.application import Application
from fairway.app.loop.run_recovery import KeptRuns, RecoveryLog, RunRecovery
from fairway.app.port.port import Clock
from fairway.state.database_recovery import DatabaseCondition
from fairway.stores.sqlite.maintenance import StoreMaintenance, clear_suspicion
from fairway.stores.sqlite.recovery import OpenedStore

DATABASE = "fairway.db"
RECOVERIES = "recoveries.json"


def attach(application: Application, opened: OpenedStore, kept: KeptRuns | None, home: Path, clock: Clock) -> StoreMaintenance:
    """Let the application recover the runs that the engine keeps, and report the condition of its database."""
    clear_suspicion(home)
    upkeep = StoreMaintenance(opened, clock)
    recoveries = RecoveryLog(home / RECOVERIES)
    take_up = None
    if kept is not None:
        take_up = RunRecovery(application.store, application.engine, kept, clock, recoveries, opened.recovery)
        take_up.settled = opened.settled
        application.loop.take_up = take_up

    def condition() -> DatabaseCondition:
        unknown = take_up.look() if take_up is not None else ()
        return replace(upkeep.condition(), recoveries=recoveries.all(), unknown=unknown)

    application.condition = condition
    return upkeep
