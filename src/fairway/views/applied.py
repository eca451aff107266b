"""What an apply did with each document."""

from __future__ import annotations

import msgspec

from fairway.units.card import View
from fairway.views.table import Page


class AppliedView(View, frozen=True):
    """One document."""

    kind: str
    namespace: str
    """Empty for what belongs to none."""
    name: str
    """The run, or the queue."""
    action: str
    """`created`, `changed` or `unchanged`."""


class AppliedList(msgspec.Struct, frozen=True):
    """All of them, in the order in which they were given."""

    applied: tuple[AppliedView, ...]


def applied_text(applied: AppliedList, page: Page = Page()) -> str:
    """One line a document."""
    return "".join(
        f"{one.kind} {one.name} {page.paint(one.action, 'dim' if one.action == 'unchanged' else 'green')}\n"
        for one in applied.applied
    )
