"""Answers as JSON."""

from __future__ import annotations

import msgspec

from fairway.serving.replica.model import Answer
from fairway.serving.replica.problem import RequestError


def told(value: object) -> Answer:
    """A value as JSON."""
    return Answer(msgspec.json.encode(value))


def refusal(error: RequestError) -> Answer:
    """An error as the protocols have it."""
    headers = list(error.headers)
    if error.retry_after:
        headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after))))
    return Answer(msgspec.json.encode({"error": error.words}), error.status, headers)
