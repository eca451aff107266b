"""Uploads of samples from replicas in a cluster to the operator, authorised by the token of their service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from fairway.api.pods.download import refusal, speaker_in
from fairway.api.pods.upload import SPARE, listen_on, receive
from fairway.app.tracking.run import TokenCaller
from fairway.errors import FairwayError, RefusedError, UnavailableError
from fairway.plan.service.replica import SAMPLES_LABEL
from fairway.state.job import JobKey, JobState

SAMPLES = "/v1/given/samples/{pod}/{name}"
LARGEST = 256 << 20
"""Maximum size of a file, in bytes. A replica closes a file at 16 MB; only its last request can make it larger."""


class SampleUploadStore(Protocol):
    """Stores sample files. Every method raises `FairwayError` for content that is refused."""

    def arriving(self) -> AbstractContextManager[Path]:
        """Return a temporary path for a file being uploaded."""
        ...

    def room(self) -> int:
        """Return the number of free bytes."""
        ...

    def keep(self, run: JobKey, pod: str, name: str, arrived: Path) -> None:
        """Store a file of a replica, durably; storing it again changes nothing."""
        ...


class SampleUploadRoutes:
    """Handles uploads of services' pods. Each pod uploads samples of its own service only, one file at a time."""

    def __init__(
        self,
        keep: SampleUploadStore,
        replica: Callable[[TokenCaller, str], tuple[JobState, bool]],
        came: Callable[[JobState, bool], None],
        secret: bytes,
    ) -> None:
        self._keep = keep
        self._replica = replica
        """Returns the replica of a service's pod, and whether it ends on that pod; `FairwayError` if there is none."""
        self._came = came
        self._secret = secret
        self._bringing: set[tuple[TokenCaller, str]] = set()

    async def file(self, request: Request) -> Response:
        """Store a file."""
        speaker = speaker_in(request, self._secret)
        if speaker is None:
            return PlainTextResponse("this is not the token of a service\n", 401)
        try:
            try:
                await self._take(speaker, request)
            except FairwayError as error:
                await listen_on(request)
                return refusal(error)
        except ClientDisconnect:
            # No client receives this; the partial upload is deleted.
            return PlainTextResponse("the connection was cut\n", 400)
        return Response(status_code=204)

    async def _take(self, speaker: TokenCaller, request: Request) -> None:
        pod, name = request.path_params["pod"], request.path_params["name"]
        job, ends = self._replica(speaker, pod)
        if SAMPLES_LABEL not in job.labels:
            message = f"{job.key} does not sample requests"
            raise RefusedError(message, fix="set `sampling` in the service's document")
        if (speaker, pod) in self._bringing:
            message = f"{pod} is already uploading a file"
            raise UnavailableError(message, fix="upload one file at a time")
        self._bringing.add((speaker, pod))
        try:
            room = await asyncio.to_thread(self._keep.room) - SPARE
            with self._keep.arriving() as path:
                await receive(request, path, min(room, LARGEST), lambda: _too_large(room))
                await asyncio.to_thread(self._keep.keep, job.key, pod, name, path)
        finally:
            self._bringing.discard((speaker, pod))
        self._came(job, ends)

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route(SAMPLES, self.file, methods=["PUT"])]


def _too_large(room: int) -> FairwayError:
    if room < LARGEST:
        message = "the operator's volume has no room for samples"
        return UnavailableError(message, fix="make it larger, or sample fewer requests")
    message = f"a file of samples has at most {LARGEST >> 20} MiB"
    return RefusedError(message, fix="send files as Fairway's server writes them")
