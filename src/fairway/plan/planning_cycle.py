"""One planning cycle over all runs: `plan(snapshot, now)`."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from fairway.plan import external_scheduler, scheduler_sync
from fairway.plan import job as job_plan
from fairway.plan.plan import EnginePlan, EnginePlanDraft
from fairway.state.job import JobKey, JobState
from fairway.state.snapshot import PlannerSnapshot


@dataclass(frozen=True, slots=True)
class RunPlanCacheEntry:
    """The cached result of the last look at a run that needed no change; valid until the run changes or `wake_at` is reached."""

    wake_at: float | None
    waits: bool
    """Whether the run waits for a placement."""

    def holds(self, now: float) -> bool:
        """Return whether the cached result is still valid for an unchanged run."""
        return self.wake_at is None or now < self.wake_at


@dataclass(slots=True)
class RunPlanCache:
    """Cache that lets the next plan skip unchanged runs. An empty cache gives the same plan, more slowly.

    It belongs to one snapshot. Discard it when a plan that was made with it was not carried out.
    """

    runs: dict[JobKey, RunPlanCacheEntry] = field(default_factory=dict)
    waiting: set[JobKey] = field(default_factory=set)
    """Runs that wait for a placement."""
    scheduler: scheduler_sync.SchedulerSync | None = None
    tick: int = 0
    """Snapshot changes up to this tick have been processed."""
    forgotten: int | None = None
    """`PlannerSnapshot.forgotten` (the number of removed runs) at that time."""

    def keep_to(self, snapshot: PlannerSnapshot) -> bool:
        """Drop the entries of removed runs; return whether no run has been removed since the last call."""
        if self.forgotten == snapshot.forgotten:
            return True
        self.forgotten = snapshot.forgotten
        self.runs = {key: outlook for key, outlook in self.runs.items() if key in snapshot.jobs}
        self.waiting.intersection_update(snapshot.jobs)
        return False

    def due(self, snapshot: PlannerSnapshot, now: float) -> list[JobKey]:
        """Return the runs to examine, in the snapshot's order."""
        due_runs = {key for key, outlook in self.runs.items() if not outlook.holds(now)}
        due_runs.update(snapshot.changed_since(self.tick))
        self.tick = snapshot.tick
        return list(due_runs) if len(due_runs) < 2 else [key for key in snapshot.jobs if key in due_runs]

    def wake_at(self) -> float | None:
        """Return the earliest time at which an unchanged run must be examined again."""
        return min((outlook.wake_at for outlook in self.runs.values() if outlook.wake_at is not None), default=None)


def plan(
    snapshot: PlannerSnapshot,
    now: float,
    outlooks: RunPlanCache | None = None,
    *,
    places: bool = True,
    skip: Set[JobKey] = frozenset(),
) -> EnginePlan:
    """Return the state to record and the actions to perform next. The same snapshot and time give the same plan.

    `places` is false where a cluster's own scheduler process places the tasks. Runs in `skip` keep the resources they hold,
    and nothing is decided about them.
    """
    draft = EnginePlanDraft(snapshot, now, cause_within=0.0 if places else external_scheduler.CAUSE_WITHIN)
    cache = RunPlanCache() if outlooks is None else outlooks
    none_removed = cache.keep_to(snapshot)
    examined = cache.due(snapshot, now)
    for key in examined:
        if key in skip:
            cache.runs.pop(key, None)
            continue
        outlook = _look(draft, snapshot.jobs[key])
        if key in draft.jobs or key in draft.tasks:
            cache.runs.pop(key, None)
            if outlook.wake_at is not None:
                draft.wake(outlook.wake_at)
        else:
            cache.runs[key] = outlook
        (cache.waiting.add if outlook.waits else cache.waiting.discard)(key)
    next_wake = cache.wake_at()
    if next_wake is not None:
        draft.wake(next_wake)
    if places:
        changed = [*examined, *skip] if none_removed else None
        cache.scheduler = scheduler_sync.schedule(draft, cache.waiting - skip, changed, cache.scheduler)
    else:
        external_scheduler.hand_over(draft, sorted(cache.waiting - skip))
    return draft.finish().without(skip)


def _look(draft: EnginePlanDraft, job: JobState) -> RunPlanCacheEntry:
    others, draft.wake_at = draft.wake_at, None
    is_waiting = not job.phase.over and job_plan.advance(draft, job)
    until = draft.job(job.key).not_before if is_waiting else None
    if until is not None and until > draft.now:
        # The run is in its restart back-off; it requests a placement when that has elapsed.
        is_waiting = False
        draft.wake(until)
    own, draft.wake_at = draft.wake_at, others
    return RunPlanCacheEntry(own, is_waiting)
