"""One page of an answer, and where the next begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from fairway.api.mlflow.fields import Fields

USUAL, MOST = 1000, 50_000

_Thing = TypeVar("_Thing")


def page_of(things: Sequence[_Thing], fields: Fields, usual: int = USUAL) -> tuple[list[_Thing], dict[str, Any]]:
    """As many as were asked for, from where the page before ended."""
    begin = max(0, Fields({"page_token": fields.text("page_token", "") or "0"}).number("page_token"))
    end = begin + min(max(1, fields.number("max_results", usual)), MOST)
    return list(things[begin:end]), {"next_page_token": str(end)} if end < len(things) else {}
