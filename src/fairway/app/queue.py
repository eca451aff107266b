"""Use cases of queues: list, permissions, defaults for runs, and current usage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairway.app.loop.loop import ReconcileLoop
from fairway.app.port.port import ChangeSet, GroupLookup
from fairway.errors import ConflictError, DeniedError, NotFoundError, RefusedError
from fairway.spec.job import JobSpec
from fairway.spec.queue import EVERYBODY
from fairway.state.event import RunEvent
from fairway.state.job import JobState
from fairway.state.queue import DEFAULT_QUEUE, Queue, QueueUsage, admits, by_name
from fairway.units import quantity, suggestion

_SHOWN = 5
"""Maximum number of runs named in a refusal."""


class QueueUseCases:
    """The use cases of queues, on one loop."""

    def __init__(self, loop: ReconcileLoop, people: GroupLookup) -> None:
        self._loop = loop
        self._people = people
        self.theirs = False
        """Whether another system queues (in a cluster): it validates queue names that are unknown here."""

    def all(self) -> list[Queue]:
        """Return every queue, in order of name."""
        return list(self._known().values())

    def find(self, name: str) -> Queue:
        """Return the queue of that name."""
        return _found(name, self._known())

    def is_kept(self, name: str) -> bool:
        """Return whether a stored document describes the queue; `default` exists without one."""
        return name in self._loop.snapshot.queues and self._loop.snapshot.queues[name] != Queue(DEFAULT_QUEUE)

    def change(self, queue: Queue) -> str:
        """Return the effect of an apply: `created`, `changed` or `unchanged`."""
        current = self._known().get(queue.name)
        if current is None:
            return "created"
        return "unchanged" if current == queue else "changed"

    def changes(self, queues: Iterable[Queue], user: str) -> ChangeSet:
        """Return the changes to store when these queues are applied."""
        now = self._loop.clock.now()
        changed = tuple(queue for queue in queues if self.change(queue) != "unchanged")
        by = user or "an unknown user"
        events = tuple(
            RunEvent(now, subject(queue.name), f"Queue{self.change(queue).capitalize()}", f"by {by}") for queue in changed
        )
        return ChangeSet(queues=changed, events=events)

    def take(self, changes: ChangeSet) -> None:
        """Put committed queues into the snapshot, for the scheduler."""
        merged = {**self._loop.snapshot.queues, **{queue.name: queue for queue in changes.queues}}
        self._loop.snapshot.queues = by_name(queue for name, queue in merged.items() if name not in changes.queues_deleted)
        self._loop.wake()

    async def delete(self, name: str) -> None:
        """Delete a queue in which no run waits or runs; a changed `default` gets its original values."""
        async with self._loop.lock:
            self.check_delete(name)
            event = RunEvent(self._loop.clock.now(), subject(name), "QueueDeleted", "")
            changes = ChangeSet(queues_deleted=(name,), events=(event,))
            self._loop.store.commit(changes)
            self.take(changes)

    def check_delete(self, name: str) -> None:
        """Raise if the queue does not exist or must stay. A queue whose record cannot be read can be deleted by name."""
        if any((bad.kind, bad.key) == ("queue", (name,)) for bad in self._loop.store.unreadable()):
            return
        self.find(name)
        if name == DEFAULT_QUEUE:
            if not self.is_kept(name):
                message = "the queue default cannot be deleted, and has its original settings already"
                raise RefusedError(message, fix="to change it, apply a JobQueue document of that name")
            return
        runs = [job for job in self._loop.snapshot.jobs.values() if job.spec.queue == name]
        if runs:
            names = [job.key.name for job in runs]
            shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
            message = f"the queue {name} is in use: {shown} {'waits or runs' if len(names) == 1 else 'wait or run'} in it"
            raise ConflictError(message, fix=f"wait until they have ended, or: fairway stop {' '.join(names[:_SHOWN])}")

    def admitted(self, series: str, spec: JobSpec, user: str, also: Iterable[Queue] = ()) -> JobSpec:
        """Return a run's spec with the queue's defaults filled in; raise if the queue does not admit the run.

        `also` are queues that are about to be stored.
        """
        queues = {**self._known(), **{queue.name: queue for queue in also}}
        if self.theirs and spec.queue not in queues:
            return spec
        queue = _asked_for(series, spec.queue, queues)
        if not admits(queue, user, () if EVERYBODY in queue.members else self._people.groups_of(user)):
            message = f"{user or 'a user without a name'} may not submit to the queue {queue.name}: {_members(queue)} may"
            raise DeniedError(message, fix=self._others(queue, user))
        filled: dict[str, object] = {}
        if spec.timeout is None and queue.default_timeout is not None:
            filled["timeout"] = _exactly(queue.default_timeout)
        if "priority" not in spec.model_fields_set and queue.default_priority:
            filled["priority"] = queue.default_priority
        _check_limits(series, spec, queue)
        return spec.model_copy(update=filled) if filled else spec

    def standings(self) -> list[QueueUsage]:
        """Return the current usage of each queue, in order of name."""
        return [self._loop.standing(queue.name) for queue in self.all()]

    def check_there(self, jobs: Iterable[JobState], also: Iterable[Queue] = ()) -> None:
        """Raise if the queue of one of these runs was deleted and is not stored together with them."""
        queue_names = {*self._known(), *(queue.name for queue in also)}
        for job in jobs:
            if job.spec.queue not in queue_names and not self.theirs:
                message = f"the queue {job.spec.queue} of {job.key.name} no longer exists"
                raise ConflictError(message, fix="apply its document again, or submit to another queue")

    def _known(self) -> Mapping[str, Queue]:
        return self._loop.snapshot.queues

    def _others(self, queue: Queue, user: str) -> str:
        groups = self._people.groups_of(user)
        open_ones = [other.name for other in self.all() if other != queue and admits(other, user, groups)]
        advice = "ask to be made a member"
        return f"{advice}, or use another queue: {', '.join(open_ones)}" if open_ones else advice


def subject(name: str) -> str:
    """Return the subject of events about a queue; no run can have this name."""
    return f"queue:{name}"


def _found(name: str, known: Mapping[str, Queue]) -> Queue:
    if name in known:
        return known[name]
    message = f"there is no queue {name}"
    raise NotFoundError(message, fix=_which(name, known))


def _asked_for(series: str, name: str, known: Mapping[str, Queue]) -> Queue:
    if name in known:
        return known[name]
    message = f"{series} asks for the queue {name}, which does not exist"
    raise RefusedError(message, fix=_which(name, known))


def _which(name: str, known: Mapping[str, Queue]) -> str:
    return suggestion.did_you_mean(name, known) or f"the queues are {', '.join(known)}; `fairway queue list` describes them"


def _exactly(seconds: float) -> str:
    """Format a duration as in a document, without loss of precision."""
    short = quantity.show_seconds(seconds)
    return short if quantity.seconds(short) == seconds else f"{seconds:f}s"


def _members(queue: Queue) -> str:
    return ", ".join(queue.members)


def _check_limits(series: str, spec: JobSpec, queue: Queue) -> None:
    if queue.timeout is not None and spec.timeout is not None and quantity.seconds(spec.timeout) > queue.timeout:
        longest = quantity.show_seconds(queue.timeout)
        message = f"{series} asks for a timeout of {spec.timeout}; the longest that the queue {queue.name} allows is {longest}"
        raise RefusedError(message, fix=f"write `timeout: {longest}` or less")
    priority = spec.priority if "priority" in spec.model_fields_set else queue.default_priority
    if queue.priority is not None and priority > queue.priority:
        message = f"{series} asks for priority {priority}; the highest that the queue {queue.name} allows is {queue.priority}"
        raise RefusedError(message, fix=f"write `priority: {queue.priority}` or less")
