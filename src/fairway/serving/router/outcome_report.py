"""The outcome of a response, reported afterwards by the client: the metric of an A/B release.

    POST /fairway/outcome HTTP/1.1
    Authorization: Bearer TOKEN
    fairway-revision: 2
    fairway-outcome: clicked=1

`fairway get service/NAME` shows the service's token. The revision is the one that the head of the response names. Everything is
sent in the head; a body is not read.
"""

from __future__ import annotations

import hmac
import math
import re
from urllib.parse import unquote_to_bytes

from fairway.serving.router.message_head import RequestHead

OWN = b"/fairway/"
TARGET = b"/fairway/outcome"
MOST_OUTCOMES = 32
"""Limit on the kinds of outcome of a revision."""
LARGEST = 1e12
"""Largest absolute value: sums of as many as can ever be counted, and of their squares, stay finite."""

_OUTCOME = re.compile(rb"([A-Za-z0-9_.-]{1,64})=([-+.0-9eE]{1,32})")


def is_own(target: bytes) -> bool:
    """Return whether a path is reserved for Fairway: routers and replicas use it with the daemon, not with clients."""
    path = target.partition(b"?")[0]
    return unquote_to_bytes(path).startswith(OWN) if b"%" in path else path.startswith(OWN)


def is_allowed(head: RequestHead, token: str) -> bool:
    """Return whether the request carries the service's token. Without a token no report is accepted."""
    scheme, _, credential = (head.value_of(b"authorization") or b"").partition(b" ")
    return bool(token) and scheme.lower() == b"bearer" and hmac.compare_digest(credential.strip(), token.encode())


def read_outcome(head: RequestHead) -> tuple[int, str, float]:
    """Return revision, name and value; raise `ValueError` that names what is missing or wrong."""
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
    if abs(value) > LARGEST:
        message = f"the outcome {match[1].decode()} is {value:g}; it must lie between {-LARGEST:g} and {LARGEST:g}"
        raise ValueError(message)
    return int(revision), match[1].decode(), value
