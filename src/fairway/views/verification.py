"""What a verification of kept content has found, as people see it."""

from __future__ import annotations

from fairway.state.content import Verified
from fairway.units import quantity
from fairway.units.card import View
from fairway.views.table import Column, Page, table


class DamageView(View, frozen=True):
    """One file of a version that is missing or damaged."""

    version: str
    path: str
    """Empty: the list of the version's files itself."""
    problem: str


class VerificationView(View, frozen=True):
    """What was compared with its digests, and what differs."""

    versions: int
    files: int
    """Distinct contents: what several versions share counts once."""
    size: int
    damaged: tuple[DamageView, ...] = ()


def verification_view(found: Verified) -> VerificationView:
    """The view of a result."""
    damaged = tuple(DamageView(each.version, each.path, each.problem) for each in found.damaged)
    return VerificationView(found.versions, found.files, found.size, damaged)


def verification_text(view: VerificationView, page: Page = Page()) -> str:
    """A table of what is damaged; one line when nothing is."""
    if not view.damaged:
        versions = "1 version" if view.versions == 1 else f"{view.versions:,} versions"
        files = "1 file" if view.files == 1 else f"{view.files:,} files"
        return f"{versions} intact: {files}, {quantity.show_bytes(view.size)}\n"
    columns = [Column("VERSION"), Column("FILE"), Column("PROBLEM", loose=True)]
    return table(columns, [(each.version, each.path or "-", each.problem) for each in view.damaged], page)
