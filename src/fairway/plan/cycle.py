"""One turn of planning over everything: `plan(snapshot, now)`."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from fairway.plan import elsewhere, queue
from fairway.plan import job as job_plan
from fairway.plan.plan import Draft, Plan
from fairway.state.job import Job, JobKey
from fairway.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Outlook:
    """What was found when a run was looked at last and nothing was to be done; true until the run changes or time comes."""

    wake_at: float | None
    waits: bool
    """Whether it waits to be placed."""

    def holds(self, now: float) -> bool:
        """Whether it still says what a new look would say, the run being as it was."""
        return self.wake_at is None or now < self.wake_at


@dataclass(slots=True)
class Outlooks:
    """Spares the next plan from looking at what did not change. An empty one gives the same plan, later.

    It belongs to one snapshot. Throw it away when a plan that was made with it was not carried out.
    """

    runs: dict[JobKey, Outlook] = field(default_factory=dict)
    waiting: set[JobKey] = field(default_factory=set)
    """Those that wait to be placed."""
    scheduler: queue.Follower | None = None
    tick: int = 0
    """Every change of the snapshot up to this one was seen."""
    forgotten: int | None = None
    """How many runs the snapshot had dropped by then."""

    def keep_to(self, snapshot: Snapshot) -> bool:
        """Whether all runs that were there are there still; what is known of others is dropped."""
        if self.forgotten == snapshot.forgotten:
            return True
        self.forgotten = snapshot.forgotten
        self.runs = {key: outlook for key, outlook in self.runs.items() if key in snapshot.jobs}
        self.waiting.intersection_update(snapshot.jobs)
        return False

    def due(self, snapshot: Snapshot, now: float) -> list[JobKey]:
        """The runs to be looked at, in the order in which they came."""
        found = {key for key, outlook in self.runs.items() if not outlook.holds(now)}
        found.update(snapshot.changed_since(self.tick))
        self.tick = snapshot.tick
        return list(found) if len(found) < 2 else [key for key in snapshot.jobs if key in found]

    def wake_at(self) -> float | None:
        """When the first of the runs is to be looked at again."""
        return min((outlook.wake_at for outlook in self.runs.values() if outlook.wake_at is not None), default=None)


def plan(
    snapshot: Snapshot,
    now: float,
    outlooks: Outlooks | None = None,
    *,
    places: bool = True,
    skip: Set[JobKey] = frozenset(),
) -> Plan:
    """What to remember and what to do next. Pure in effect: the same snapshot and time give the same plan.

    `places` is false where a cluster's scheduler does that, in a process of its own. Runs in `skip` keep what they hold, and
    nothing is decided about them.
    """
    draft = Draft(snapshot, now, cause_within=0.0 if places else elsewhere.CAUSE_WITHIN)
    known = Outlooks() if outlooks is None else outlooks
    all_there = known.keep_to(snapshot)
    looked = known.due(snapshot, now)
    for key in looked:
        if key in skip:
            known.runs.pop(key, None)
            continue
        outlook = _look(draft, snapshot.jobs[key])
        if key in draft.jobs or key in draft.tasks:
            known.runs.pop(key, None)
            if outlook.wake_at is not None:
                draft.wake(outlook.wake_at)
        else:
            known.runs[key] = outlook
        (known.waiting.add if outlook.waits else known.waiting.discard)(key)
    first = known.wake_at()
    if first is not None:
        draft.wake(first)
    if places:
        changed = [*looked, *skip] if all_there else None
        known.scheduler = queue.schedule(draft, known.waiting - skip, changed, known.scheduler)
    else:
        elsewhere.hand_over(draft, sorted(known.waiting - skip))
    return draft.finish().without(skip)


def _look(draft: Draft, job: Job) -> Outlook:
    others, draft.wake_at = draft.wake_at, None
    waits = not job.phase.over and job_plan.advance(draft, job)
    until = draft.job(job.key).not_before if waits else None
    if until is not None and until > draft.now:
        # It backs off, and asks for places when that is over.
        waits = False
        draft.wake(until)
    own, draft.wake_at = draft.wake_at, others
    return Outlook(own, waits)
