"""Engine calls that contain the failure of one object: when a call for all objects fails, it is repeated object by object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairway.app.loop.fault_register import ENGINE, FaultRegister
from fairway.app.port.port import Engine, Observation
from fairway.plan.action import Action, run_of
from fairway.state.job import JobKey, JobState
from fairway.state.node import ClusterNode
from fairway.state.task import TaskKey, TaskReport


class ContainedEngine:
    """An engine that never raises for one object.

    The failure becomes a fault of the object, and all other results are returned.
    """

    def __init__(self, engine: Engine, faults: FaultRegister) -> None:
        self._engine = engine
        self._faults = faults

    async def nodes(self, before: tuple[ClusterNode, ...]) -> tuple[ClusterNode, ...]:
        """Return the current nodes, or those of before if they cannot be listed."""
        if self._faults.due(ENGINE, "list nodes"):
            with self._faults.contain(ENGINE, "list nodes"):
                return await self._engine.nodes()
        return before

    async def observe(self, keys: Iterable[TaskKey]) -> list[TaskReport]:
        """Return reports about these tasks, leaving out runs that cannot be observed now."""
        runs: dict[JobKey, list[TaskKey]] = {}
        for key in keys:
            runs.setdefault(key.run, []).append(key)
        failing = [run for run in runs if not self._is_well(run, "observe")]
        try:
            reports = await self._engine.observe(
                [key for run, run_keys in runs.items() if run not in failing for key in run_keys]
            )
        except Exception:  # noqa: BLE001 - the calls below find out which run it is.
            reports, failing = [], list(runs)
        for run in failing:
            if self._faults.due(str(run), "observe"):
                with self._faults.contain(str(run), "observe"):
                    reports += await self._engine.observe(runs[run])
        return reports

    async def measure(self, jobs: Iterable[JobState]) -> list[Observation]:
        """Return new metrics and checkpoints of these runs, leaving out runs that cannot be measured now."""
        jobs = list(jobs)
        failing = [job for job in jobs if not self._is_well(job.key, "measure")]
        try:
            observations = await self._engine.measure([job for job in jobs if job not in failing])
        except Exception:  # noqa: BLE001 - as above.
            observations, failing = [], jobs
        for job in failing:
            if self._faults.due(str(job.key), "measure"):
                with self._faults.contain(str(job.key), "measure"):
                    observations += await self._engine.measure([job])
        return observations

    async def perform(self, actions: Sequence[Action]) -> tuple[list[TaskReport], set[JobKey]]:
        """Perform the actions in order. If one fails, the remaining actions of its run are skipped.

        Returns the reports, and the runs with a failed action. Repeating an action is safe: actions are idempotent.
        """
        try:
            return await self._engine.perform(actions), set()
        except Exception:  # noqa: BLE001 - as above.
            reports: list[TaskReport] = []
        failed: set[JobKey] = set()
        for action in actions:
            run = run_of(action)
            if run in failed:
                continue
            try:
                reports += await self._engine.perform([action])
            except Exception as problem:  # noqa: BLE001 - it becomes a fault of the run.
                self._faults.fail(str(run), "perform", problem)
                failed.add(run)
        return reports, failed

    def _is_well(self, run: JobKey, work: str) -> bool:
        return all(fault.work != work for fault in self._faults.of(str(run)))
