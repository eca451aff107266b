"""Dataset versions, as people see them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairway.state.dataset import DatasetFile, DatasetVersion
from fairway.units import quantity
from fairway.units.card import View
from fairway.views import phrases
from fairway.views.table import Column, Page, table

_FILES_SHOWN = 12
_CHANGES_SHOWN = 40


class DatasetFileView(msgspec.Struct, frozen=True):
    """One file of a version."""

    path: str
    size: int
    sha256: str
    """Empty where it was not read."""


class DatasetView(View, frozen=True):
    """One version of a dataset."""

    name: str
    version: int
    digest: str
    files: int
    size: int
    created: float
    reference: str = ""
    """Where content lies that was not copied."""
    run: str = ""
    """The run that made it; empty when somebody added it."""
    services: tuple[str, ...] = ()
    """The services whose requests these are; empty for any other content."""
    models: tuple[str, ...] = ()
    """The model versions that answered them."""
    contents: tuple[DatasetFileView, ...] | msgspec.UnsetType = msgspec.UNSET
    """Its files, when one version is looked at."""

    def __str__(self) -> str:
        """`mnist@3`."""
        return f"{self.name}@{self.version}"


class DatasetList(msgspec.Struct, frozen=True):
    """Versions of datasets, by name and number."""

    datasets: tuple[DatasetView, ...]


class FileChangeView(msgspec.Struct, frozen=True):
    """A file in which two versions differ."""

    path: str
    change: str
    """`added`, `removed` or `changed`."""
    before: int = 0
    after: int = 0
    """Bytes."""


class DatasetDiffView(msgspec.Struct, frozen=True):
    """In what two versions differ."""

    before: str
    after: str
    same: int
    """How many files are the same in both."""
    changes: tuple[FileChangeView, ...]


def dataset_view(version: DatasetVersion, files: Sequence[DatasetFile] | None = None) -> DatasetView:
    """What may be seen of a version."""
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
        msgspec.UNSET if files is None else tuple(DatasetFileView(each.path, each.size, each.sha256) for each in files),
    )


def dataset_text(dataset: DatasetView, now: float, page: Page = Page()) -> str:
    """`fairway data get`."""
    kept = _origin(dataset)
    files, size = phrases.count(dataset.files, "file"), quantity.show_bytes(dataset.size)
    lines = [page.paint(str(dataset), "bold"), f"  {files}, {size}, {kept}, added {phrases.ago(dataset.created, now)}"]
    contents = dataset.contents if isinstance(dataset.contents, tuple) else ()
    shown = contents if page.wide else contents[:_FILES_SHOWN]
    lines += ["", *(f"  {each.path}  {quantity.show_bytes(each.size)}  {each.sha256[:12]}".rstrip() for each in shown)]
    if len(contents) > len(shown):
        lines.append(f"  and {len(contents) - len(shown):,} more (-o wide)")
    use = f"data: {{train: {dataset}}} in a document"
    if dataset.models:
        use = f"fairway predict {dataset.models[-1].partition('@')[0]} --data {dataset} --out NAME"
    return "\n".join([*lines, "", f"{page.paint('next:', 'dim')} {use}"]) + "\n"


def _origin(dataset: DatasetView) -> str:
    if dataset.reference:
        return f"by reference to {dataset.reference}"
    if dataset.services:
        return f"requests to {' and '.join(dataset.services)} that {' and '.join(dataset.models)} answered"
    return f"made by {dataset.run}" if dataset.run else "copied"


def dataset_diff(
    before: DatasetVersion, after: DatasetVersion, files_before: Sequence[DatasetFile], files_after: Sequence[DatasetFile]
) -> DatasetDiffView:
    """Which files were added, removed and changed."""
    old = {each.path: each for each in files_before}
    new = {each.path: each for each in files_after}
    changes = []
    for path in sorted({*old, *new}):
        if path not in old:
            changes.append(FileChangeView(path, "added", 0, new[path].size))
        elif path not in new:
            changes.append(FileChangeView(path, "removed", old[path].size, 0))
        elif not _same(old[path], new[path]):
            changes.append(FileChangeView(path, "changed", old[path].size, new[path].size))
    same = len(old) - sum(1 for change in changes if change.change != "added")
    return DatasetDiffView(str(before), str(after), same, tuple(changes))


def dataset_diff_text(diff: DatasetDiffView, page: Page = Page()) -> str:
    """`fairway data diff`."""
    same = f"{phrases.count(diff.same, 'file')} the same in {diff.before} and {diff.after}\n"
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
            each.path,
            each.change,
            "" if each.change == "added" else quantity.show_bytes(each.before),
            "" if each.change == "removed" else quantity.show_bytes(each.after),
        ]
        for each in shown
    ]
    left = len(diff.changes) - len(shown)
    return table(columns, rows, page) + (f"and {left:,} more (-o wide)\n" if left else "") + same


def _same(one: DatasetFile, other: DatasetFile) -> bool:
    # Of a file that was not read, only its size is known.
    return one.size == other.size and (one.sha256 == other.sha256 or not (one.sha256 and other.sha256))


def datasets_text(datasets: Sequence[DatasetView], now: float, page: Page = Page()) -> str:
    """`fairway data list`."""
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
            f"{each.name}@{each.version}",
            f"{each.files:,}",
            quantity.show_bytes(each.size),
            quantity.show_seconds(max(0.0, now - each.created)),
            each.digest[:12],
            each.reference,
        ]
        for each in datasets
    ]
    return table(columns, rows, page)
