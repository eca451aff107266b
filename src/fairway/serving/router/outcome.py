"""What an answer was worth, told afterwards by whoever asked: the metric of an A/B release.

    curl -X POST -H 'fairway-revision: 2' -H 'fairway-outcome: clicked=1' http://127.0.0.1:8000/fairway/outcome

The revision is the one that the answer's head names. Everything is in the head; a body is not read.
"""

from __future__ import annotations

import math
import re

from fairway.serving.router.head import RequestHead

TARGET = b"/fairway/outcome"
MOST_OUTCOMES = 32
"""Kinds of outcome that a revision may have."""

_OUTCOME = re.compile(rb"([A-Za-z0-9_.-]{1,64})=([-+.0-9eE]{1,32})")


def read_outcome(head: RequestHead) -> tuple[int, str, float]:
    """Revision, name and value; `ValueError` says what is missing or wrong."""
    revision = head.value_of(b"fairway-revision") or b""
    if not revision.isdigit() or len(revision) > 9:
        message = "the header fairway-revision must name the revision that answered"
        raise ValueError(message)
    match = _OUTCOME.fullmatch(head.value_of(b"fairway-outcome") or b"")
    try:
        value = float(match[2]) if match else math.nan
    except ValueError:
        value = math.nan
    if match is None or not math.isfinite(value):
        message = "the header fairway-outcome must be NAME=NUMBER"
        raise ValueError(message)
    return int(revision), match[1].decode(), value
