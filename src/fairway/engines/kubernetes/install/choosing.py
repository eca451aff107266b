"""What an administrator did not say is decided by what the cluster has. Pure."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from fairway.engines.kubernetes.install.discovering import Ground
from fairway.engines.kubernetes.operator.installation import Installation
from fairway.errors import RefusedError

LOST = "history and models are lost with the operator's pod"
VOLUME_FIX = (
    "name a claim in the settings (`record: {persistentVolumeClaim: {claimName: NAME}}`), "
    f"or say `record: {{emptyDir: {{}}}}`: {LOST} then"
)


def choose(said: Installation, given: Collection[str], ground: Ground | None) -> tuple[Installation, list[str]]:
    """The installation, and in words what was decided. `given`: settings that were said; `ground`: None when nobody was asked.

    Raises:
        RefusedError: the record would have no volume.
    """
    words = [f"warning: the record lies in an emptyDir: {LOST}"] if "emptyDir" in said.record else []
    if ground is None:
        return said, words
    found = ground.neighbours
    chosen: dict[str, object] = {}
    if "scheduler" not in given and "queueing" not in given and found.queueing:
        chosen |= {"scheduler": "", "queueing": found.queueing}
    elif not said.scheduler and "queueing" not in given:
        chosen |= {"queueing": found.queueing}
    if "monitoring" not in given:
        chosen |= {"monitoring": found.prometheus}
    if not said.record and not ground.makes_volumes:
        message = "the cluster has no default storage class, so that the claim for the operator's record would never get a volume"
        raise RefusedError(message, fix=VOLUME_FIX)
    decided = msgspec.structs.replace(said, **chosen)
    return decided, [*words, *found.said(theirs=not decided.scheduler)]
