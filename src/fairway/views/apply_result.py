"""Views of the result of an apply."""

from __future__ import annotations

import msgspec

from fairway.units.notebook_card import NotebookView
from fairway.views.text.table import TextPage


class ApplyResultView(NotebookView, frozen=True):
    """The result for one document."""

    kind: str
    namespace: str
    """Empty for kinds without a namespace."""
    name: str
    """Name of the run, queue or service."""
    action: str
    """`created`, `changed` or `unchanged`."""


class ApplyResultList(msgspec.Struct, frozen=True):
    """The results, in the order of the documents."""

    applied: tuple[ApplyResultView, ...]


def applied_text(applied: ApplyResultList, page: TextPage = TextPage()) -> str:
    """Return one line per document."""
    return "".join(
        f"{result.kind} {result.name} {page.paint(result.action, 'dim' if result.action == 'unchanged' else 'green')}\n"
        for result in applied.applied
    )
