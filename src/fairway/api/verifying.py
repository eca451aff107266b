"""Answers to `verify`: how far it is, line by line, and at the end what was found."""

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
"""In the place of a name: every version of the namespace."""
PACE = 0.5
"""Seconds between two lines."""


def verifying(asked: Asked, verify: Callable[[Course], Awaitable[Verified]]) -> Stream:
    """`{"course": {"done": .., "total": ..}}` now and then, `{"end": .., "shown": ..}` last; or `{"error": ..}`.

    `shown` is the end as text in the format that was asked for. A caller that goes away stops the verification.
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
    except FairwayError as problem:  # The answer has begun, so the error is a line of it.
        yield _line({"error": problem.as_dict()})
    finally:
        course.stopped = True


def _shown(asked: Asked, view: VerificationView) -> str:
    answer = show(
        asked,
        view,
        text=lambda page: verification_text(view, page),
        called=lambda: dict.fromkeys(each.version for each in view.damaged),
    )
    return bytes(answer.body).decode("utf-8", "surrogateescape")


def _line(value: dict[str, object]) -> bytes:
    return to_json(value) + b"\n"
