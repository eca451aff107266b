"""What pods tell the operator of their tasks: metrics and checkpoints, by the token of their run and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from fairway.api.mlflow.token import speaker_of
from fairway.app.ports import MetricPoint, Observation
from fairway.runtime.eventfolder import SOURCES
from fairway.runtime.pod.telling import PATH
from fairway.state.job import JobKey

LONGEST = 1 << 20
"""Bytes of a message."""

Take = Callable[[Observation], Awaitable[None]]


class _Point(msgspec.Struct, frozen=True):
    time: float
    metrics: dict[str, float]
    step: int | None = None
    rank: int = 0
    source: Literal["report", "tensorboard", "log"] = "report"


class _Checkpoint(msgspec.Struct, frozen=True):
    step: int
    time: float
    name: str = ""


class _Message(msgspec.Struct, frozen=True):
    task: str
    attempt: int
    sender: str = ""
    number: int = 0
    """Of a sender's messages."""
    points: list[_Point] = []
    checkpoint: _Checkpoint | None = None


class Told:
    """Takes what is told; what comes a second time, because an answer was lost, is left out."""

    def __init__(self, take: Take, secret: bytes) -> None:
        self._take = take
        self._secret = secret
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
        body = await request.body()
        if len(body) > LONGEST:
            return Response(f"a message has at most {LONGEST} bytes\n", 413)
        try:
            message = msgspec.json.decode(body, type=_Message)
        except msgspec.DecodeError as error:
            return Response(f"this is no message of a task: {error}\n", 400)
        run = JobKey(speaker.namespace, speaker.run)
        if not message.sender or message.number > self._last.get((run, message.sender), 0):
            await self._take(self._observation(run, message))
            self._last[run, message.sender] = message.number
        return Response(status_code=204)

    def _observation(self, run: JobKey, message: _Message) -> Observation:
        ranks = [SOURCES.index(point.source) for point in message.points]
        best = self._best[run] = min([self._best.get(run, len(SOURCES)), *ranks])
        counting = [point for point, rank in zip(message.points, ranks, strict=True) if rank <= best]
        points = tuple(
            MetricPoint(point.time, point.step, point.metrics, _task(message.task, point.rank), point.source)
            for point in sorted(counting, key=lambda point: point.time)
        )
        saved = message.checkpoint
        return Observation(run, points, saved.step if saved else None, saved.time if saved else None)


def _task(name: str, rank: int) -> str:
    """Who speaks: the task, or one of its further processes."""
    return f"{name}.{rank}" if rank else name


def make_told(take: Take, secret: bytes, beside: ASGIApp | None = None) -> ASGIApp:
    """The route, in front of whatever else listens there."""
    router = Router([Route(PATH, Told(take, secret).__call__, methods=["POST"])], redirect_slashes=False)
    if beside is not None:
        router.default = beside
    return router
