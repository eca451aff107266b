"""Clamp recorded times of a service that are in the future because the wall clock was set back between two boots.

Otherwise back-offs, steps and holds would last until the clock has caught up. Such a time counts as now.
"""

from __future__ import annotations

from dataclasses import replace

from fairway.plan.service.guard import rollout_guard
from fairway.state.service import ScaleDecision, ServiceRecord, ServiceReplica, ServiceRevision, ServiceRollout


def not_later(record: ServiceRecord, now: float) -> ServiceRecord:
    """Return the record with all times limited to `now`."""
    service = record.service
    return ServiceRecord(
        replace(
            service,
            created=min(service.created, now),
            revisions=tuple(_revision(revision, now) for revision in service.revisions),
            rollout=_rollout(service.rollout, now) if service.rollout else None,
            scale=_scale(service.scale, now),
        ),
        tuple(_replica(replica, now) for replica in record.replicas),
    )


def _revision(revision: ServiceRevision, now: float) -> ServiceRevision:
    return replace(revision, created=min(revision.created, now), failed_at=min(revision.failed_at, now))


def _replica(replica: ServiceReplica, now: float) -> ServiceReplica:
    started = None if replica.started is None else min(replica.started, now)
    return replace(replica, created=min(replica.created, now), since=min(replica.since, now), started=started)


def _rollout(rollout: ServiceRollout, now: float) -> ServiceRollout:
    marks = {name: min(value, now) if name in rollout_guard.TIMES else value for name, value in rollout.marks.items()}
    finished = None if rollout.finished is None else min(rollout.finished, now)
    since, started = min(rollout.step_since, now), min(rollout.started, now)
    return replace(rollout, step_since=since, started=started, finished=finished, marks=marks)


def _scale(scale: ScaleDecision, now: float) -> ScaleDecision:
    at, number = scale.backlogged
    return replace(
        scale,
        recommendations=tuple((min(time, now), wanted) for time, wanted in scale.recommendations),
        backlogged=(min(at, now), number),
        quiet_since=None if scale.quiet_since is None else min(scale.quiet_since, now),
        changed=min(scale.changed, now),
    )
