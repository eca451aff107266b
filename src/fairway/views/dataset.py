"""Views of dataset versions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairway.state.dataset import DatasetFile, DatasetVersion
from fairway.units import quantity
from fairway.units.notebook_card import NotebookView
from fairway.views.text import phrase
from fairway.views.text.table import Column, TextPage, table

_FILES_SHOWN = 12
_CHANGES_SHOWN = 40


class DatasetFileView(msgspec.Struct, frozen=True):
    """A file of a version."""

    path: str
    size: int
    sha256: str
    """Empty if the content was not read."""


class DatasetView(NotebookView, frozen=True):
    """A version of a dataset."""

    name: str
    version: int
    digest: str
    files: int
    size: int
    created: float
    reference: str = ""
    """Location of content that was not copied."""
    run: str = ""
    """The run that made it; empty if a user added it."""
    services: tuple[str, ...] = ()
    """The services whose requests were recorded in it; empty for other content."""
    models: tuple[str, ...] = ()
    """The model versions that served these requests."""
    contents: tuple[DatasetFileView, ...] | msgspec.UnsetType = msgspec.UNSET
    """Its files; unset in lists."""

    def __str__(self) -> str:
        """`mnist@3`."""
        return f"{self.name}@{self.version}"


class DatasetList(msgspec.Struct, frozen=True):
    """Versions of datasets, by name and number."""

    datasets: tuple[DatasetView, ...]


class DatasetFileChangeView(msgspec.Struct, frozen=True):
    """A file that differs between two versions."""

    path: str
    change: str
    """`added`, `removed` or `changed`."""
    before: int = 0
    after: int = 0
    """Sizes in bytes."""


class DatasetDiffView(msgspec.Struct, frozen=True):
    """The differences between two versions."""

    before: str
    after: str
    same: int
    """Number of files that are equal in both."""
    changes: tuple[DatasetFileChangeView, ...]


def dataset_view(version: DatasetVersion, files: Sequence[DatasetFile] | None = None) -> DatasetView:
    """Return the view of a version."""
    return DatasetView(
        version.name,
        version.version,
        version.digest,
        version.files,
        version.size,
        version.created,
        version.reference,
        version.run,
        version.services,
        version.models,
        msgspec.UNSET if files is None else tuple(DatasetFileView(file.path, file.size, file.sha256) for file in files),
    )


def dataset_text(dataset: DatasetView, now: float, page: TextPage = TextPage()) -> str:
    """Return the text of `fairway data get`."""
    origin = _origin(dataset)
    files, size = phrase.count(dataset.files, "file"), quantity.show_bytes(dataset.size)
    lines = [page.paint(str(dataset), "bold"), f"  {files}, {size}, {origin}, added {phrase.ago(dataset.created, now)}"]
    contents = dataset.contents if isinstance(dataset.contents, tuple) else ()
    shown = contents if page.wide else contents[:_FILES_SHOWN]
    lines += ["", *(f"  {file.path}  {quantity.show_bytes(file.size)}  {file.sha256[:12]}".rstrip() for file in shown)]
    if len(contents) > len(shown):
        lines.append(f"  and {len(contents) - len(shown):,} more (-o wide)")
    hint = f"data: {{train: {dataset}}} in a document"
    if dataset.models:
        hint = f"fairway predict {dataset.models[-1].partition('@')[0]} --data {dataset} --out NAME"
    return "\n".join([*lines, "", f"{page.paint('next:', 'dim')} {hint}"]) + "\n"


def _origin(dataset: DatasetView) -> str:
    if dataset.reference:
        return f"by reference to {dataset.reference}"
    if dataset.services:
        return f"requests to {' and '.join(dataset.services)} that {' and '.join(dataset.models)} answered"
    return f"made by {dataset.run}" if dataset.run else "copied"


def dataset_diff(
    before: DatasetVersion, after: DatasetVersion, files_before: Sequence[DatasetFile], files_after: Sequence[DatasetFile]
) -> DatasetDiffView:
    """Return the files that were added, removed and changed."""
    old = {file.path: file for file in files_before}
    new = {file.path: file for file in files_after}
    changes = []
    for path in sorted({*old, *new}):
        if path not in old:
            changes.append(DatasetFileChangeView(path, "added", 0, new[path].size))
        elif path not in new:
            changes.append(DatasetFileChangeView(path, "removed", old[path].size, 0))
        elif not _same(old[path], new[path]):
            changes.append(DatasetFileChangeView(path, "changed", old[path].size, new[path].size))
    same = len(old) - sum(1 for change in changes if change.change != "added")
    return DatasetDiffView(str(before), str(after), same, tuple(changes))


def dataset_diff_text(diff: DatasetDiffView, page: TextPage = TextPage()) -> str:
    """Return the text of `fairway data diff`."""
    same = f"{phrase.count(diff.same, 'file')} the same in {diff.before} and {diff.after}\n"
    if not diff.changes:
        return same
    columns = (
        Column("FILE", always=True, loose=True),
        Column("CHANGE"),
        Column("BEFORE", right=True),
        Column("AFTER", right=True),
    )
    shown = diff.changes if page.wide else diff.changes[:_CHANGES_SHOWN]
    rows = [
        [
            change.path,
            change.change,
            "" if change.change == "added" else quantity.show_bytes(change.before),
            "" if change.change == "removed" else quantity.show_bytes(change.after),
        ]
        for change in shown
    ]
    hidden = len(diff.changes) - len(shown)
    return table(columns, rows, page) + (f"and {hidden:,} more (-o wide)\n" if hidden else "") + same


def _same(one: DatasetFile, other: DatasetFile) -> bool:
    # A file that was not read has no digest: only sizes can be compared.
    return one.size == other.size and (one.sha256 == other.sha256 or not (one.sha256 and other.sha256))


def datasets_text(datasets: Sequence[DatasetView], now: float, page: TextPage = TextPage()) -> str:
    """Return the text of `fairway data list`."""
    if not datasets:
        return "No datasets. Keep one with: fairway data add mnist ./mnist\n"
    columns = (
        Column("NAME", always=True),
        Column("FILES", right=True),
        Column("SIZE", right=True),
        Column("AGE", right=True),
        Column("DIGEST"),
        Column("REFERENCE", loose=True),
    )
    rows = [
        [
            f"{dataset.name}@{dataset.version}",
            f"{dataset.files:,}",
            quantity.show_bytes(dataset.size),
            quantity.show_seconds(max(0.0, now - dataset.created)),
            dataset.digest[:12],
            dataset.reference,
        ]
        for dataset in datasets
    ]
    return table(columns, rows, page)
