"""Reports of pods to the operator about their tasks, authorised only by the token of their run: metrics and checkpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from fairway.api.mlflow.token import speaker_of
from fairway.api.pods import message as messages
from fairway.api.pods.message import PodMessage
from fairway.app.port.port import Observation
from fairway.runtime.event_folder import SOURCES
from fairway.runtime.pod.metric_reporter import PATH
from fairway.state.job import JobKey

LONGEST = 1 << 20
"""Maximum size of a message, in bytes."""

SHOWN = 3
"""Maximum number of refusals of a message shown in the response and in the run."""

Take = Callable[[Observation], Awaitable[None]]
Refused = Callable[[JobKey, str, str], None]
"""Called for refused parts of a task's message: the run, the task, the reasons."""


class MetricReportRoute:
    """Accepts reports; a report that is repeated because a response was lost is ignored."""

    def __init__(self, take: Take, secret: bytes, refused: Refused = lambda _run, _task, _words: None) -> None:
        self._take = take
        self._secret = secret
        self._refused = refused
        self._last: dict[tuple[JobKey, str], int] = {}
        """The number of the last message of each sender."""
        self._best: dict[JobKey, int] = {}
        """The best metric source used so far by each run: metrics of lesser sources are ignored from then on."""

    async def __call__(self, request: Request) -> Response:
        """Handle one message."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        speaker = speaker_of(self._secret, token) if scheme == "Bearer" else None
        if speaker is None or not speaker.run:
            return Response("this is not the token of a run\n", 401)
        run = JobKey(speaker.namespace, speaker.run)
        body = await _body(request)
        if body is None:
            return Response(f"a message has at most {LONGEST} bytes\n", 413)
        try:
            message = messages.read(body)
        except messages.UnreadableMessageError as error:
            self._refused(run, "", f"a message of its pod could not be read: {error}")
            return Response(f"this is not a message of a task: {error}\n", 400)
        if not message.sender or message.number > self._last.get((run, message.sender), 0):
            if message.points or message.step is not None:
                await self._take(self._observation(run, message))
            self._last[run, message.sender] = message.number
        if not message.refused:
            return Response(status_code=204)
        words = "; ".join(message.refused[:SHOWN])
        more = len(message.refused) - SHOWN
        words += f"; and {more} more" if more > 0 else ""
        self._refused(run, message.task, words)
        # The rest is accepted. The pod prints this, so that it appears in the run's log too.
        return Response(f"{words}\n", 200)

    def _observation(self, run: JobKey, message: PodMessage) -> Observation:
        best = self._best[run] = min([self._best.get(run, len(SOURCES)), *(rank for rank, _ in message.points)])
        counting = [point for rank, point in message.points if rank <= best]
        points = tuple(sorted(counting, key=lambda point: point.time))
        return Observation(run, points, message.step, message.saved)


async def _body(request: Request) -> bytes | None:
    """Return the body; None if it is longer than `LONGEST`. At most that much is kept in memory."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST:
            return None
    return bytes(body)


def make_told(
    take: Take, secret: bytes, beside: ASGIApp | None = None, refused: Refused = lambda _run, _task, _words: None
) -> ASGIApp:
    """Build an application of the route; all other requests go to `beside`."""
    router = Router([Route(PATH, MetricReportRoute(take, secret, refused).__call__, methods=["POST"])], redirect_slashes=False)
    if beside is not None:
        router.default = beside
    return router
