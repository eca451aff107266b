"""Commands that change a service: each returns the new value or raises the reason for refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fairway.errors import ConflictError, RefusedError
from fairway.plan.service import rollout as releases
from fairway.plan.service.guard.rollout_guard import PAUSED_AT
from fairway.spec.service import ServiceSpec
from fairway.state.job import SubmissionOrigin
from fairway.state.service import RolloutPhase, ServiceKey, ServiceRevision, ServiceRollout, ServiceState

HISTORY = 20
"""Maximum number of past releases kept."""
REVISIONS = 10
"""Number of recent revisions kept in addition to those in use."""
UNDONE = "undone by user request"
"""Reason recorded when a user undoes a release."""

NOT_SERVED = frozenset(
    {"model", "follow", "replicas", "objective", "scaling", "traffic", "rollout", "port", "endpoint", "hold", "grace", "logs"}
    | {"metrics"},
)
"""Fields that do not affect a replica. The model is compared by its pinned version."""


def applied(
    service: ServiceState | None,
    key: ServiceKey,
    spec: ServiceSpec,
    model: str,
    model_format: str,
    origin: SubmissionOrigin,
    labels: Mapping[str, str],
    now: float,
) -> ServiceState:
    """Return the service for the document, with a new revision and release only when the served content changed."""
    if service is None:
        service = ServiceState(key=key, spec=spec, created=now)
    if service.deleting:
        message = f"service {key} is being deleted"
        raise ConflictError(message, fix="wait until it is gone, then apply again")
    old = service
    service = replace(service, spec=spec, origin=origin, labels=dict(labels), followed=model if spec.follow else "")
    newest = _served(old)
    if newest and _same(newest, spec, model, model_format, origin):
        return service
    stable, under_way = old.revision(old.stable), old.rollout
    if stable and under_way and releases.is_active(under_way) and _same(stable, spec, model, model_format, origin):
        return replace(service, rollout=_ended(under_way, f"the document asks for r{stable.number} again", now))
    number = 1 + max((revision.number for revision in old.revisions), default=0)
    revision = ServiceRevision(number, spec, model, model_format, origin=origin, created=now)
    return _released(replace(service, revisions=(*service.revisions, revision)), number, f"superseded by r{number}", now)


def _served(service: ServiceState) -> ServiceRevision | None:
    """Return the revision that serves or is being released."""
    rollout = service.rollout
    return service.revision(rollout.target if rollout and releases.is_active(rollout) else service.stable)


def _same(revision: ServiceRevision, spec: ServiceSpec, model: str, model_format: str, origin: SubmissionOrigin) -> bool:
    """Return whether the document would give the same replicas as this revision."""
    if (revision.model, revision.model_format) != (model, model_format):
        return False
    recorded = (revision.origin.code_digest, revision.origin.interpreter)
    if spec.command and recorded != (origin.code_digest, origin.interpreter):
        return False
    fields = set(ServiceSpec.model_fields) - NOT_SERVED
    return all(getattr(revision.spec, name) == getattr(spec, name) for name in fields)


def _released(service: ServiceState, target: int, because: str, now: float) -> ServiceState:
    """Start a release to an existing revision; end a release under way."""
    history = service.history
    old = service.rollout
    if old is not None:
        ended = _ended(old, because, now) if releases.is_active(old) else old
        history = (*history, ended)[-HISTORY:]
    release = ServiceRollout(source=service.stable, target=target, step_since=now, started=now)
    return _forgetting(replace(service, rollout=release, history=history))


def _ended(rollout: ServiceRollout, because: str, now: float) -> ServiceRollout:
    """Return a release ended by a user; its revision is not marked bad."""
    return replace(rollout, phase=RolloutPhase.ROLLED_BACK, finished=now, reason=because)


def _forgetting(service: ServiceState) -> ServiceState:
    """Return the service without revisions that are neither in use nor recent."""
    rollout = service.rollout
    used = {service.stable, *((rollout.source, rollout.target) if rollout else ())}
    recent = {revision.number for revision in service.revisions[-REVISIONS:]}
    kept = tuple(revision for revision in service.revisions if revision.number in used | recent)
    return replace(service, revisions=kept)


def scaled(service: ServiceState, floor: int) -> ServiceState:
    """Set the minimum number of replicas; 0 removes the minimum."""
    most = service.spec.replicas.max
    if floor < 0 or floor > most:
        message = f"service {service.key}: {floor} replicas are not allowed; the document allows 0 to {most}"
        raise RefusedError(message, fix="apply the document with a larger `replicas.max`")
    return replace(service, floor=floor)


def paused(service: ServiceState, now: float) -> ServiceState:
    """Pause the release; its guards continue."""
    rollout = _under_way(service, "pause")
    if rollout.phase is RolloutPhase.PAUSED:
        return service
    return replace(service, rollout=replace(rollout, phase=RolloutPhase.PAUSED, marks={**rollout.marks, PAUSED_AT: now}))


def resumed(service: ServiceState, now: float) -> ServiceState:
    """Resume the release; the time of the pause does not count."""
    rollout = _under_way(service, "resume")
    if rollout.phase is not RolloutPhase.PAUSED:
        message = f"service {service.key}: the release to r{rollout.target} is not paused"
        raise ConflictError(message, fix="nothing to resume; `fairway rollout status` shows its state")
    marks = dict(rollout.marks)
    pause_seconds = now - marks.pop(PAUSED_AT, now)
    phase = RolloutPhase.STARTING if rollout.step < 0 else RolloutPhase.STEPPING
    started, step_since = rollout.started + pause_seconds, rollout.step_since + pause_seconds
    return replace(service, rollout=replace(rollout, phase=phase, marks=marks, started=started, step_since=step_since, reason=""))


def undone(service: ServiceState, now: float) -> ServiceState:
    """Return to the revision that served before: end the release under way, or revert the last one.

    Either way all traffic moves as fast as replicas of that revision become ready, without the steps and guards of a release.
    """
    rollout = service.rollout
    if rollout is None or not rollout.source or rollout.phase is RolloutPhase.ROLLED_BACK:
        message = f"service {service.key} has no release that could be undone"
        raise RefusedError(message, fix="`fairway rollout history` shows the earlier releases; apply the document that you want")
    back = service.revision(rollout.source)
    if back is None:
        message = f"service {service.key}: r{rollout.source} is no longer kept"
        raise RefusedError(message, fix="apply the document that you want")
    unserved_fields = {name: getattr(service.spec, name) for name in NOT_SERVED - {"model", "follow"}}
    service = replace(service, spec=back.spec.model_copy(update=unserved_fields), origin=back.origin)
    if releases.is_active(rollout):
        return replace(service, rollout=_ended(rollout, UNDONE, now))
    undo_release = ServiceRollout(service.stable, back.number, RolloutPhase.DONE, started=now, finished=now, reason=UNDONE)
    history = (*service.history, rollout)[-HISTORY:]
    return _forgetting(replace(service, stable=back.number, rollout=undo_release, history=history))


def deleted(service: ServiceState) -> ServiceState:
    """Mark the service for deletion: its replicas are drained and stopped, then it is removed."""
    return replace(service, deleting=True)


def _under_way(service: ServiceState, verb: str) -> ServiceRollout:
    rollout = service.rollout
    if rollout is None or not releases.is_active(rollout):
        message = f"service {service.key} has no release under way to {verb}"
        raise ConflictError(message, fix="`fairway rollout history` shows the earlier ones")
    return rollout
