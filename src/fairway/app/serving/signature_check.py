"""Detect whether a release changes what clients of a service must send or receive."""

from __future__ import annotations

from fairway.app.port.serving import ModelResolver
from fairway.errors import NotFoundError
from fairway.plan.service import signature
from fairway.plan.service.signature import SignatureChange
from fairway.state.model import ModelSignature
from fairway.state.service import ServiceRevision, ServiceState


def signature_changes(models: ModelResolver, before: ServiceState | None, after: ServiceState) -> tuple[SignatureChange, ...]:
    """Return the differences between the signatures of the serving revision and of a revision to be released."""
    pair = _released(before, after)
    if pair is None:
        return ()
    old, new = (_signature(models, revision.model, after.key.namespace) for revision in pair)
    return signature.changes(old, new)


def check_signature(models: ModelResolver, before: ServiceState | None, after: ServiceState) -> None:
    """Raise `RefusedError` if a release would break clients and the document does not allow it."""
    pair = _released(before, after)
    if pair is not None and not after.spec.rollout.allow_signature_change:
        signature.check(pair[0].model, pair[1].model, signature_changes(models, before, after))


def _released(before: ServiceState | None, after: ServiceState) -> tuple[ServiceRevision, ServiceRevision] | None:
    """Return the serving revision and the one that a change would release; None if it releases none."""
    stable = before.revision(before.stable) if before is not None else None
    new = after.revisions[-1] if after.revisions else None
    if before is None or stable is None or new is None or before.revision(new.number) is not None:
        return None
    return (stable, new) if stable.model and new.model else None


def _signature(models: ModelResolver, model: str, namespace: str) -> ModelSignature:
    try:
        return models.get(models.meant(model, namespace)).signature
    except NotFoundError:
        return ModelSignature()
