"""Callers as the API server identifies them: those of requests, and those that objects name as their submitters."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

from fairway.engines.kubernetes import annotation

_GROUP = "group:"
"""Prefix of groups in a queue's members."""


@dataclass(frozen=True, slots=True)
class ClusterCaller:
    """A user as the API server identifies them."""

    user: str
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


CALLER: ContextVar[ClusterCaller] = ContextVar("CALLER")
"""The caller of the request that is being handled."""


class ClusterGroups:
    """The `People` port.

    Groups are those that the API server reported for the current caller; the operator's machine has none.
    """

    def groups_of(self, user: str) -> tuple[str, ...]:
        """Return the groups of the current caller if it is this user; otherwise none."""
        caller = CALLER.get(None)
        return caller.groups if caller is not None and caller.user == user else ()


def named_by(annotations: Mapping[str, str]) -> ClusterCaller:
    """Return the user that an object names. Only the operator may write it (`install/submitter_policy.py`)."""
    try:
        groups = json.loads(annotations.get(annotation.GROUPS) or "[]")
    except ValueError:
        groups = []
    return ClusterCaller(
        annotations.get(annotation.USER, ""), tuple(str(group) for group in groups) if isinstance(groups, list) else ()
    )


def noted(caller: ClusterCaller, members: Collection[str], needed: Collection[str] = ()) -> dict[str, str]:
    """Return annotations that name the submitter: of the groups, only `members` of some queue, or those in `needed`."""
    groups = sorted(group for group in caller.groups if f"{_GROUP}{group}" in members or group in needed)
    return {annotation.USER: caller.user, **({annotation.GROUPS: json.dumps(groups)} if groups else {})}
