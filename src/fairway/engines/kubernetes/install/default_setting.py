"""Chooses settings that the administrator left out, by what the cluster has. Pure."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from fairway.engines.kubernetes.install.discovering import ClusterFindings
from fairway.engines.kubernetes.operator.installation import InstallationSettings
from fairway.errors import RefusedError

LOST = "history and models are lost with the operator's pod"
VOLUME_FIX = (
    "name a claim in the settings (`record: {persistentVolumeClaim: {claimName: NAME}}`), "
    f"or set `record: {{emptyDir: {{}}}}`, with which {LOST}"
)


def choose(
    said: InstallationSettings, given: Collection[str], ground: ClusterFindings | None
) -> tuple[InstallationSettings, list[str]]:
    """Return the installation with all choices made, and messages about them.

    `given`: names of the settings that were given; `ground`: None when no cluster was examined.

    Raises:
        RefusedError: the record would have no volume.
    """
    messages = [f"warning: the record is in an emptyDir: {LOST}"] if "emptyDir" in said.record else []
    if ground is None:
        return said, messages
    neighbours = ground.neighbours
    chosen: dict[str, object] = {}
    if "scheduler" not in given and "queueing" not in given and neighbours.queueing:
        chosen |= {"scheduler": "", "queueing": neighbours.queueing}
    elif not said.scheduler and "queueing" not in given:
        chosen |= {"queueing": neighbours.queueing}
    if "monitoring" not in given:
        chosen |= {"monitoring": neighbours.prometheus}
    if not said.record and not ground.makes_volumes:
        message = "the cluster has no default storage class, so that the claim for the operator's record would never get a volume"
        raise RefusedError(message, fix=VOLUME_FIX)
    decided = msgspec.structs.replace(said, **chosen)
    return decided, [*messages, *neighbours.said(theirs=not decided.scheduler)]
