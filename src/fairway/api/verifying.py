"""Responses to `verify`: the progress, line by line, and at the end the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from fairway.api.answer import LINES, Stream, show
from fairway.api.asking import Asked
from fairway.app.verification import Course
from fairway.errors import FairwayError
from fairway.state.content import Verified
from fairway.views.output import to_json
from fairway.views.verification import VerificationView, verification_text, verification_view

ALL = "*"
"""In place of a name: every version of the namespace."""
PACE = 0.5
"""Interval between two lines, in seconds."""


def verifying(asked: Asked, verify: Callable[[Course], Awaitable[Verified]]) -> Stream:
    """Send `{"course": {"done": .., "total": ..}}` periodically, `{"end": .., "shown": ..}` last; or `{"error": ..}`.

    `shown` is the result as text in the requested format. If the caller disconnects, the verification stops.
    """
    return Stream(_lines(asked, verify), LINES)


async def _lines(asked: Asked, verify: Callable[[Course], Awaitable[Verified]]) -> AsyncIterator[bytes]:
    course = Course()
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


def _shown(asked: Asked, view: VerificationView) -> str:
    answer = show(
        asked,
        view,
        text=lambda page: verification_text(view, page),
        called=lambda: dict.fromkeys(damage.version for damage in view.damaged),
    )
    return bytes(answer.body).decode("utf-8", "surrogateescape")


def _line(value: dict[str, object]) -> bytes:
    return to_json(value) + b"\n"
