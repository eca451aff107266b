"""What pods tell the operator of their tasks: metrics and checkpoints, by the token of their run and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from fairway.api.mlflow.token import speaker_of
from fairway.app.ports import MetricPoint, Observation
from fairway.runtime.pod.telling import PATH
from fairway.state.job import JobKey

LONGEST = 1 << 20
"""Bytes of a message."""

Take = Callable[[Observation], Awaitable[None]]


class _Point(msgspec.Struct, frozen=True):
    time: float
    metrics: dict[str, float]
    step: int | None = None


class _Checkpoint(msgspec.Struct, frozen=True):
    step: int
    time: float
    name: str = ""


class _Message(msgspec.Struct, frozen=True):
    task: str
    attempt: int
    points: list[_Point] = []
    checkpoint: _Checkpoint | None = None


class Told:
    """Takes what is told; what comes a second time, because an answer was lost, is left out."""

    def __init__(self, take: Take, secret: bytes) -> None:
        self._take = take
        self._secret = secret
        self._newest: dict[tuple[JobKey, str, int], float] = {}
        """The time of the last point of each attempt of each task."""

    async def __call__(self, request: Request) -> Response:
        """One message."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        speaker = speaker_of(self._secret, token) if scheme == "Bearer" else None
        if speaker is None or not speaker.run:
            return Response("this is no run's token\n", 401)
        body = await request.body()
        if len(body) > LONGEST:
            return Response(f"a message has at most {LONGEST} bytes\n", 413)
        try:
            message = msgspec.json.decode(body, type=_Message)
        except msgspec.DecodeError as error:
            return Response(f"this is no message of a task: {error}\n", 400)
        await self._take(self._observation(JobKey(speaker.namespace, speaker.run), message))
        return Response(status_code=204)

    def _observation(self, run: JobKey, message: _Message) -> Observation:
        place = (run, message.task, message.attempt)
        newest = self._newest.get(place, float("-inf"))
        fresh = sorted((point for point in message.points if point.time > newest), key=lambda point: point.time)
        if fresh:
            self._newest[place] = fresh[-1].time
        points = tuple(MetricPoint(point.time, point.step, point.metrics, message.task) for point in fresh)
        saved = message.checkpoint
        return Observation(run, points, saved.step if saved else None, saved.time if saved else None)


def make_told(take: Take, secret: bytes, beside: ASGIApp | None = None) -> ASGIApp:
    """The route, in front of whatever else listens there."""
    router = Router([Route(PATH, Told(take, secret).__call__, methods=["POST"])], redirect_slashes=False)
    if beside is not None:
        router.default = beside
    return router
