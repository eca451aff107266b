"""One page of an answer, and where the next begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from fairway.api.mlflow.fields import Fields

USUAL, MOST = 1000, 50_000
"""Things on one page: where the client names no number, and at the most."""

_Thing = TypeVar("_Thing")


def page_of(
    things: Sequence[_Thing], fields: Fields, usual: int = USUAL, most: int = MOST
) -> tuple[list[_Thing], dict[str, Any]]:
    """As many as were asked for, from where the page before ended."""
    begin = Fields({"page_token": fields.text("page_token", "") or "0"}).number("page_token")
    if begin < 0:
        raise fields.wrong("page_token", "it is not one that Fairway gave")
    count = fields.number("max_results", usual)
    if not 0 < count <= most:
        raise fields.wrong("max_results", f"It must be a positive integer, at most {most}")
    end = begin + count
    return list(things[begin:end]), {"next_page_token": str(end)} if end < len(things) else {}
