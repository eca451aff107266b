"""Whether a release changes what clients of a service must send, or get."""

from __future__ import annotations

from fairway.app.service_ports import ModelCatalogue
from fairway.errors import NotFoundError
from fairway.plan.service import signature
from fairway.plan.service.signature import Change
from fairway.state.model import Signature
from fairway.state.service import Revision, Service


def signature_changes(models: ModelCatalogue, before: Service | None, after: Service) -> tuple[Change, ...]:
    """In what the signature of a revision that would be released differs from that of the one that serves."""
    pair = _released(before, after)
    if pair is None:
        return ()
    old, new = (_signature(models, revision.model, after.key.namespace) for revision in pair)
    return signature.changes(old, new)


def check_signature(models: ModelCatalogue, before: Service | None, after: Service) -> None:
    """Raise `RefusedError` when a release would break clients and the document does not consent."""
    pair = _released(before, after)
    if pair is not None and not after.spec.rollout.allow_signature_change:
        signature.check(pair[0].model, pair[1].model, signature_changes(models, before, after))


def _released(before: Service | None, after: Service) -> tuple[Revision, Revision] | None:
    """The revision that serves, and the one that a change of the service would release; None where it releases none."""
    stable = before.revision(before.stable) if before is not None else None
    new = after.revisions[-1] if after.revisions else None
    if before is None or stable is None or new is None or before.revision(new.number) is not None:
        return None
    return (stable, new) if stable.model and new.model else None


def _signature(models: ModelCatalogue, model: str, namespace: str) -> Signature:
    try:
        return models.get(models.meant(model, namespace)).signature
    except NotFoundError:
        return Signature()
