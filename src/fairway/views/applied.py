"""What an apply did with each document."""

from __future__ import annotations

import msgspec

from fairway.views.table import Page


class AppliedView(msgspec.Struct, frozen=True):
    """One document."""

    kind: str
    namespace: str
    name: str
    """The run."""
    action: str
    """`created` or `unchanged`."""


class AppliedList(msgspec.Struct, frozen=True):
    """All of them, in the order in which they were given."""

    applied: tuple[AppliedView, ...]


def applied_text(applied: AppliedList, page: Page = Page()) -> str:
    """One line a document."""
    return "".join(
        f"{one.kind} {one.name} {page.paint(one.action, 'green' if one.action == 'created' else 'dim')}\n"
        for one in applied.applied
    )
