"""What pods tell the operator of their tasks: metrics and checkpoints, by the token of their run and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from fairway.api import message as messages
from fairway.api.message import Message
from fairway.api.mlflow.token import speaker_of
from fairway.app.ports import Observation
from fairway.runtime.eventfolder import SOURCES
from fairway.runtime.pod.telling import PATH
from fairway.state.job import JobKey

LONGEST = 1 << 20
"""Bytes of a message."""

SHOWN = 3
"""Refusals of a message that the answer and the run show."""

Take = Callable[[Observation], Awaitable[None]]
Refused = Callable[[JobKey, str, str], None]
"""Told of what a run's task said that was not taken: the run, the task, the words."""


class Told:
    """Takes what is told; what comes a second time, because an answer was lost, is left out."""

    def __init__(self, take: Take, secret: bytes, refused: Refused = lambda _run, _task, _words: None) -> None:
        self._take = take
        self._secret = secret
        self._refused = refused
        self._last: dict[tuple[JobKey, str], int] = {}
        """The number of the last message of each sender."""
        self._best: dict[JobKey, int] = {}
        """The best source of metrics that has spoken, of each run: lesser ones do not count any more."""

    async def __call__(self, request: Request) -> Response:
        """One message."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        speaker = speaker_of(self._secret, token) if scheme == "Bearer" else None
        if speaker is None or not speaker.run:
            return Response("this is no run's token\n", 401)
        run = JobKey(speaker.namespace, speaker.run)
        body = await _body(request)
        if body is None:
            return Response(f"a message has at most {LONGEST} bytes\n", 413)
        try:
            message = messages.read(body)
        except messages.UnreadableError as error:
            self._refused(run, "", f"a message of its pod could not be read: {error}")
            return Response(f"this is no message of a task: {error}\n", 400)
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
        # The rest is taken. The pod prints this, so that the run's log has it too.
        return Response(f"{words}\n", 200)

    def _observation(self, run: JobKey, message: Message) -> Observation:
        best = self._best[run] = min([self._best.get(run, len(SOURCES)), *(rank for rank, _ in message.points)])
        counting = [point for rank, point in message.points if rank <= best]
        points = tuple(sorted(counting, key=lambda point: point.time))
        return Observation(run, points, message.step, message.saved)


async def _body(request: Request) -> bytes | None:
    """The body; None when it is longer than `LONGEST`. Never more than that is held."""
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > LONGEST:
            return None
    return bytes(found)


def make_told(
    take: Take, secret: bytes, beside: ASGIApp | None = None, refused: Refused = lambda _run, _task, _words: None
) -> ASGIApp:
    """The route, in front of whatever else listens there."""
    router = Router([Route(PATH, Told(take, secret, refused).__call__, methods=["POST"])], redirect_slashes=False)
    if beside is not None:
        router.default = beside
    return router
