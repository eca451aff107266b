"""Pagination of responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from fairway.api.mlflow.parameter import MlflowParameters

USUAL, MOST = 1000, 50_000
"""Number of items on one page: by default, and at most."""

_Thing = TypeVar("_Thing")


def page_of(
    things: Sequence[_Thing], fields: MlflowParameters, usual: int = USUAL, most: int = MOST
) -> tuple[list[_Thing], dict[str, Any]]:
    """Return the requested page, and the token of the next one."""
    begin = MlflowParameters({"page_token": fields.text("page_token", "") or "0"}).number("page_token")
    if begin < 0:
        raise fields.wrong("page_token", "it was not issued by Fairway")
    count = fields.number("max_results", usual)
    if not 0 < count <= most:
        raise fields.wrong("max_results", f"It must be a positive integer, at most {most}")
    end = begin + count
    return list(things[begin:end]), {"next_page_token": str(end)} if end < len(things) else {}
