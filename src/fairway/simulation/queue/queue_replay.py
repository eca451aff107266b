"""Replay a recorded queue: jobs arrive at their recorded times, and a policy decides which run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairway.errors import NeverFitsError, UsageError
from fairway.simulation.queue import ordered_policy, ranked_policy, scheduler_policy, timeshare_policy
from fairway.simulation.queue.free_gpus import EqualNodes
from fairway.simulation.queue.queue_result import CompletedJob, QueueResult, summarise
from fairway.simulation.queue.queue_state import RESTART_COST, QueuePolicy, SimulatedJob, SimulatedQueue
from fairway.simulation.queue.recorded_job import RecordedJob

POLICIES: dict[str, Callable[[], QueuePolicy]] = {
    "fifo": ordered_policy.fifo,
    "fifo-skip": ordered_policy.skip,
    "backfill": ordered_policy.BackfillPolicy,
    "sjf-oracle": ordered_policy.sjf,
    "las": ranked_policy.las,
    "srtf-oracle": ranked_policy.srtf,
    "fairway": scheduler_policy.SchedulerPolicy,
    "timeshare": timeshare_policy.TimesharePolicy,
}
"""Policies by name. `backfill` and those called oracles use the true durations; the others do not.

`fairway` is the scheduler that runs in production; `timeshare` is only its time-sharing rule, on counted places.
"""

Progress = Callable[[int, int], None]
"""Called with the number of jobs that are over, and the total."""


def policy_named(name: str) -> QueuePolicy:
    """Return a new policy of that name."""
    if name not in POLICIES:
        raise UsageError(f'there is no policy "{name}"', fix=f"use one of {', '.join(POLICIES)}")
    return POLICIES[name]()


def replay(
    entries: Sequence[RecordedJob],
    nodes: EqualNodes,
    policy: str = "fairway",
    *,
    restart_cost: float = RESTART_COST,
    progress: Progress | None = None,
) -> QueueResult:
    """Replay the queue to its end. Every preemption costs `restart_cost` seconds, during which the job holds its GPUs."""
    return QueueReplay(entries, nodes, policy_named(policy), restart_cost).run(policy, progress)


class QueueReplay:
    """A replay in progress."""

    def __init__(
        self, entries: Sequence[RecordedJob], nodes: EqualNodes, policy: QueuePolicy, restart_cost: float = RESTART_COST
    ) -> None:
        _check(entries, nodes)
        self.hall = SimulatedQueue(nodes, policy, restart_cost)
        self.records: list[CompletedJob] = []
        self.busy: list[tuple[float, int]] = []
        self._to_come = [SimulatedJob(index, entry, entry.submitted) for index, entry in enumerate(entries)]
        self._to_come.sort(key=lambda job: (job.entry.submitted, job.index), reverse=True)
        self._look: float | None = None

    def step(self) -> list[SimulatedJob] | None:
        """Advance to the next event; return the jobs that have arrived. None: the replay is over."""
        times = [time for time in (self.hall.next_end(), self._look) if time is not None]
        if self._to_come:
            times.append(self._to_come[-1].entry.submitted)
        if not times:
            return None
        now = max(self.hall.now, min(times))
        for job in self.hall.pass_to(now):
            assert job.started is not None
            self.records.append(CompletedJob(job.entry, job.started, now, job.evictions, job.moves))
        arrived: list[SimulatedJob] = []
        while self._to_come and self._to_come[-1].entry.submitted <= now:
            job = self._to_come.pop()
            self.hall.admit(job)
            arrived.append(job)
        self.hall.policy.decide(self.hall)
        self._look = self.hall.policy.next_look(self.hall)
        held = self.hall.floor.nodes.total - self.hall.floor.idle
        if not self.busy or self.busy[-1][1] != held:
            self.busy.append((now, held))
        return arrived

    def run(self, name: str, progress: Progress | None = None) -> QueueResult:
        """Replay to the end."""
        total = len(self._to_come) + len(self.hall.waiting) + len(self.hall.running) + len(self.records)
        reported = -1
        while self.step() is not None:
            if progress is not None and len(self.records) != reported:
                reported = len(self.records)
                progress(reported, total)
        nodes = self.hall.floor.nodes
        return summarise(name, (nodes.count, nodes.gpus), self.records, self.busy)


def _check(entries: Sequence[RecordedJob], nodes: EqualNodes) -> None:
    if not entries:
        raise UsageError("the trace has no jobs", fix="use a trace with at least one line below the header")
    largest = max(entries, key=lambda entry: entry.gpus)
    if nodes.whole(largest.gpus) > nodes.total:
        raise NeverFitsError(
            f"a job of the trace requests {largest.gpus} GPUs; {nodes.count} nodes with {nodes.gpus} each have {nodes.total}",
            fix="use more nodes",
        )
