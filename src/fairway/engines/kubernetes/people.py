"""Who asks, as the API server knows them: the caller of a request, or whom an object names that was made for one."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

from fairway.engines.kubernetes import marks

_GROUP = "group:"
"""How queues name their members that are groups."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody whom the API server knows."""

    user: str
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


CALLER: ContextVar[Caller] = ContextVar("CALLER")
"""Who asks for what is being done now."""


class ClusterPeople:
    """The `People` port: groups are those that the API server has told of whoever asks now. The operator's machine has none."""

    def groups_of(self, user: str) -> tuple[str, ...]:
        """The groups of whoever asks, when this is who asks."""
        caller = CALLER.get(None)
        return caller.groups if caller is not None and caller.user == user else ()


def named_by(annotations: Mapping[str, str]) -> Caller:
    """Whom an object names. An admission policy lets nobody but the operator write this (`install/vouching.py`)."""
    try:
        groups = json.loads(annotations.get(marks.GROUPS) or "[]")
    except ValueError:
        groups = []
    return Caller(annotations.get(marks.USER, ""), tuple(str(one) for one in groups) if isinstance(groups, list) else ())


def noted(caller: Caller, members: Collection[str], needed: Collection[str] = ()) -> dict[str, str]:
    """What an object says of its submitter: of many groups only those that are `members` of some queue, or `needed` otherwise."""
    groups = sorted(one for one in caller.groups if f"{_GROUP}{one}" in members or one in needed)
    return {marks.USER: caller.user, **({marks.GROUPS: json.dumps(groups)} if groups else {})}
