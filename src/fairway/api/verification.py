"""Responses to `verify`: the progress, line by line, and at the end the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from fairway.api.http.parameter import RequestParameters
from fairway.api.http.response import LINES, StreamingBody, show
from fairway.app.verification_progress import VerificationProgress
from fairway.errors import FairwayError
from fairway.state.content_check import ContentVerification
from fairway.views.text.output_format import to_json
from fairway.views.verification import ContentVerificationView, verification_text, verification_view

ALL = "*"
"""In place of a name: every version of the namespace."""
PACE = 0.5
"""Interval between two lines, in seconds."""


def verifying(
    asked: RequestParameters, verify: Callable[[VerificationProgress], Awaitable[ContentVerification]]
) -> StreamingBody:
    """Send `{"course": {"done": .., "total": ..}}` periodically, `{"end": .., "shown": ..}` last; or `{"error": ..}`.

    `shown` is the result as text in the requested format. If the caller disconnects, the verification stops.
    """
    return StreamingBody(_lines(asked, verify), LINES)


async def _lines(
    asked: RequestParameters, verify: Callable[[VerificationProgress], Awaitable[ContentVerification]]
) -> AsyncIterator[bytes]:
    course = VerificationProgress()
    task = asyncio.ensure_future(verify(course))
    try:
        while not (await asyncio.wait({task}, timeout=PACE))[0]:
            yield _line({"course": {"done": course.done, "total": course.total}})
        view = verification_view(task.result())
        yield _line({"end": view, "shown": _shown(asked, view)})
    except FairwayError as problem:  # The response has begun, so the error is sent as a line of it.
        yield _line({"error": problem.as_dict()})
    finally:
        course.stopped = True


def _shown(asked: RequestParameters, view: ContentVerificationView) -> str:
    answer = show(
        asked,
        view,
        text=lambda page: verification_text(view, page),
        called=lambda: dict.fromkeys(damage.version for damage in view.damaged),
    )
    return bytes(answer.body).decode("utf-8", "surrogateescape")


def _line(value: dict[str, object]) -> bytes:
    return to_json(value) + b"\n"
