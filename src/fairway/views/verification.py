"""Views of a verification of stored content."""

from __future__ import annotations

from fairway.state.content_check import ContentVerification
from fairway.units import quantity
from fairway.units.notebook_card import NotebookView
from fairway.views.text.table import Column, TextPage, table


class DamagedFileView(NotebookView, frozen=True):
    """A missing or damaged file of a version."""

    version: str
    path: str
    """Empty for the version's manifest itself."""
    problem: str


class ContentVerificationView(NotebookView, frozen=True):
    """The amount of verified content, and the damaged files."""

    versions: int
    files: int
    """Distinct contents: content shared by several versions counts once."""
    size: int
    damaged: tuple[DamagedFileView, ...] = ()


def verification_view(found: ContentVerification) -> ContentVerificationView:
    """Return the view of a result."""
    damaged = tuple(DamagedFileView(damage.version, damage.path, damage.problem) for damage in found.damaged)
    return ContentVerificationView(found.versions, found.files, found.size, damaged)


def verification_text(view: ContentVerificationView, page: TextPage = TextPage()) -> str:
    """Return a table of damaged files; one line if there are none."""
    if not view.damaged:
        versions = "1 version" if view.versions == 1 else f"{view.versions:,} versions"
        files = "1 file" if view.files == 1 else f"{view.files:,} files"
        return f"{versions} intact: {files}, {quantity.show_bytes(view.size)}\n"
    columns = [Column("VERSION"), Column("FILE"), Column("PROBLEM", loose=True)]
    return table(columns, [(damage.version, damage.path or "-", damage.problem) for damage in view.damaged], page)
