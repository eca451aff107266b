"""Dataset versions, as people see them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairway.state.dataset import DatasetVersion
from fairway.units import quantity
from fairway.views.table import Column, Page, table


class DatasetView(msgspec.Struct, frozen=True):
    """One version of a dataset."""

    name: str
    version: int
    digest: str
    files: int
    size: int
    created: float


class DatasetList(msgspec.Struct, frozen=True):
    """Versions of datasets, by name and number."""

    datasets: tuple[DatasetView, ...]


def dataset_view(version: DatasetVersion) -> DatasetView:
    """What may be seen of a version."""
    return DatasetView(version.name, version.version, version.digest, version.files, version.size, version.created)


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
    )
    rows = [
        [
            f"{each.name}@{each.version}",
            f"{each.files:,}",
            quantity.show_bytes(each.size),
            quantity.show_seconds(max(0.0, now - each.created)),
            each.digest[:12],
        ]
        for each in datasets
    ]
    return table(columns, rows, page)
