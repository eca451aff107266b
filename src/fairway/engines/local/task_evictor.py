"""Ends tasks: by a request to their supervisor, or by signals when it does not answer."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from fairway.app.port.port import Clock
from fairway.app.system import crash_point
from fairway.engines.local import file_lock
from fairway.engines.local.home import LOCK, EngineHome
from fairway.engines.local.supervision import attempt_record, control_socket
from fairway.engines.local.supervision.process.process_identity import ProcessIdentity
from fairway.engines.local.task_observer import TaskObserver, over_report
from fairway.plan.action import EvictTask, NudgeTask
from fairway.runtime.task_contract import STOP_FILE
from fairway.state.job import JobKey
from fairway.state.phase import TaskPhase
from fairway.state.task import TaskKey, TaskReport

CANNOT_RUN = 126
"""The exit code that shells use for a program that could not be started."""
_ANSWER_PATIENCE = 3.0
"""Seconds that a supervisor gets to answer before it gets a signal."""
_END_PATIENCE = 30.0
"""Seconds to wait for a killed task to end before its folder is removed."""


class TaskEvictor:
    """Ends tasks. The supervisor does the steps from SIGTERM to SIGKILL, so that they continue when the daemon dies."""

    def __init__(self, home: EngineHome, observer: TaskObserver, clock: Clock) -> None:
        self._home = home
        self._observer = observer
        self._clock = clock

    async def evict(self, action: EvictTask) -> TaskReport:
        """Begin to end the task; return its state. A task that was never started is recorded as stopped."""
        sight = await self._observer.look(action.key)
        if sight.report.phase is TaskPhase.PENDING:
            return self._cancel(action)
        if not sight.report.phase.over:
            await asyncio.to_thread(self._stop, action, sight.supervisor)
        return sight.report

    def nudge(self, action: NudgeTask) -> None:
        """Create the stop file, which the task reads when it likes."""
        folder = self._home.attempt(action.key)
        if folder.is_dir():
            aside = folder / f".{STOP_FILE}"
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(f"{action.reason}\n")
            with crash_point.reach("engine.rename"):
                aside.rename(folder / STOP_FILE)

    def give_up(self, key: TaskKey, words: str) -> TaskReport:
        """Record that the task cannot be started as requested, and never will be."""
        content: dict[str, object] = {"code": CANNOT_RUN, "words": words, "finished": self._clock.now()}
        return self._settle(key, content)

    async def end_for_good(self, key: TaskKey) -> None:
        """Kill the task and wait until it has ended, or until the deadline."""
        deadline = time.monotonic() + _END_PATIENCE
        while time.monotonic() < deadline:
            sight = await self._observer.look(key)
            if sight.report.phase.over or sight.report.phase is TaskPhase.PENDING:
                return
            await asyncio.to_thread(self._stop, EvictTask(key, 0.0, "the run is deleted"), sight.supervisor)
            await asyncio.sleep(0.01)

    def anything_runs(self, key: JobKey) -> bool:
        """Return whether any task of the run has a supervisor."""
        return any(_is_held(str(self._home.attempt(attempt) / LOCK)) for attempt in self._home.attempts_of(key))

    def _cancel(self, action: EvictTask) -> TaskReport:
        """Record that the task was stopped before it started, so that it never starts."""
        content: dict[str, object] = {"by_us": True, "finished": self._clock.now(), "said": f"never started: {action.reason}"}
        return self._settle(action.key, content)

    def _settle(self, key: TaskKey, content: dict[str, object]) -> TaskReport:
        """Write the end record of a task that was never started."""
        folder = self._home.attempt(key)
        lock = file_lock.take(folder / LOCK)
        if lock is None:
            # A supervisor waits for the go-ahead; without it the supervisor exits.
            return TaskReport(key, TaskPhase.PENDING, message="it is being started or cancelled")
        try:
            if (folder / attempt_record.STARTED).exists():
                return TaskReport(key, TaskPhase.RUNNING)
            with crash_point.reach("engine.rename"):
                attempt_record.write_record(str(folder), attempt_record.EXIT, content)
        finally:
            file_lock.release(lock)
        return over_report(key, content)

    def _stop(self, action: EvictTask, supervisor: ProcessIdentity | None) -> None:
        folder = str(self._home.attempt(action.key))
        request: control_socket.Request = {"op": "stop", "grace": action.grace, "reason": action.reason, "ask": action.ask}
        try:
            with crash_point.reach("engine.signal"):
                answer = control_socket.ask(folder, request, _ANSWER_PATIENCE)
            if answer.get("ok"):
                return
        except OSError:
            pass
        if supervisor is not None:
            with crash_point.reach("engine.signal"):
                # A supervisor that was stopped by SIGSTOP resumes and receives the signal.
                supervisor.send(signal.SIGCONT)
                supervisor.send(signal.SIGUSR1 if action.grace > 0 else signal.SIGUSR2)


def _is_held(path: str) -> bool:
    """Return whether a supervisor holds the lock. Anything else that a task put in its place is no lock."""
    try:
        return file_lock.is_held(path)
    except OSError:
        return False
