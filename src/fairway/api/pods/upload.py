"""Uploads of checkpoints and outputs from pods that share no volume with the operator, authorised by the token of their run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from fairway.api.pods.download import refusal, speaker_in
from fairway.api.pods.metric import Take
from fairway.app.port.port import Observation
from fairway.errors import FairwayError, NotFoundError, RefusedError, UnavailableError
from fairway.state.job import JobKey, JobState
from fairway.units.number import int64

CHECKPOINTS = "/v1/given/checkpoints/{name}"
OUTPUTS = "/v1/given/outputs/{name}"
SPARE = 1 << 28
"""Number of bytes that must stay free on the disk: the database needs space too."""
BLOCK = 1 << 20
_DIGITS = 18
"""Maximum number of digits of an attempt. The conversion of very long numbers raises."""
HEARD = 1 << 26
"""Maximum number of bytes of a refused request that are still read."""


class StoredCheckpoint(Protocol):
    """A stored checkpoint."""

    @property
    def name(self) -> str:
        """`step-000000000123`."""
        ...

    @property
    def step(self) -> int:
        """The step from which the run continues."""
        ...

    @property
    def time(self) -> float:
        """Time at which it was stored."""
        ...

    @property
    def path(self) -> Path:
        """The archive file."""
        ...


class UploadStore(Protocol):
    """Stores uploads. Every method raises `FairwayError` for content that is refused or missing."""

    def arriving(self) -> AbstractContextManager[Path]:
        """Return a temporary path for an archive being uploaded."""
        ...

    def room(self) -> int:
        """Return the number of free bytes."""
        ...

    def keep_checkpoint(self, namespace: str, run: str, name: str, arrived: Path, keep: int) -> StoredCheckpoint:
        """Store an archive as a checkpoint if it is a complete one."""
        ...

    def checkpoint(self, namespace: str, run: str, name: str) -> StoredCheckpoint:
        """Return the checkpoint of that name, or the newest."""
        ...

    def keep_output(self, namespace: str, run: str, name: str, arrived: Path) -> None:
        """Unpack the files of an output."""
        ...


class UploadRoutes:
    """Handles uploads of pods. Only a known run can upload, and only to itself."""

    def __init__(
        self,
        keep: UploadStore,
        run_of: Callable[[JobKey], JobState | None],
        newest: Callable[[JobState, str], int],
        take: Take,
        secret: bytes,
    ) -> None:
        self._keep = keep
        self._run_of = run_of
        self._newest = newest
        """Returns the current attempt of a task."""
        self._take = take
        self._secret = secret

    async def checkpoint(self, request: Request) -> Response:
        """Return a checkpoint, or store a new one."""
        return await self._answer(request, self._put_checkpoint if request.method == "PUT" else self._get_checkpoint)

    async def output(self, request: Request) -> Response:
        """Store an output."""
        return await self._answer(request, self._put_output)

    async def _answer(self, request: Request, work: UploadFunction) -> Response:
        speaker = speaker_in(request, self._secret)
        if speaker is None:
            return PlainTextResponse("this is not the token of a run\n", 401)
        job = self._run_of(JobKey(speaker.namespace, speaker.run))
        try:
            try:
                if job is None:
                    message = f"there is no run {speaker.namespace}/{speaker.run}"
                    raise NotFoundError(message, fix="it was deleted; the pod should end")
                self._check_attempt(job, request)
                return await work(job, request)
            except FairwayError as error:
                await listen_on(request)
                return refusal(error)
        except ClientDisconnect:
            # No client receives this; the partial upload is deleted.
            return PlainTextResponse("the connection was cut\n", 400)

    def _check_attempt(self, job: JobState, request: Request) -> None:
        """Refuse a pod that was considered lost but still runs: it must not mix its work with that of its replacement."""
        task, text = request.query_params.get("task", ""), request.query_params.get("attempt", "")
        short = len(text) <= _DIGITS and text.isascii() and text.isdigit()
        if task and short and int(text) < self._newest(job, task):
            message = f"attempt {text} of {task} was replaced by attempt {self._newest(job, task)}"
            raise RefusedError(message, fix="end this attempt: its results are no longer used")

    async def _get_checkpoint(self, job: JobState, request: Request) -> Response:
        name = request.path_params["name"]
        stored = await asyncio.to_thread(self._keep.checkpoint, job.key.namespace, job.key.name, name)
        return FileResponse(stored.path, media_type="application/x-tar")

    async def _put_checkpoint(self, job: JobState, request: Request) -> Response:
        name, keep = request.path_params["name"], job.spec.checkpoint.keep
        _check_step(name)
        with self._keep.arriving() as path:
            await self._receive(request, path)
            try:
                stored = await asyncio.to_thread(self._keep.keep_checkpoint, job.key.namespace, job.key.name, name, path, keep)
            except (TypeError, ValueError, KeyError, RecursionError) as error:
                message = f"the manifest of {name} cannot be read: {type(error).__name__}: {str(error)[:200]}"
                raise RefusedError(message, fix="checkpoints are saved with fairway.checkpoint.save") from error
        # The checkpoint counts only from now on: a checkpoint that only the pod has is lost with the pod.
        await self._take(Observation(job.key, (), stored.step, stored.time))
        return Response(status_code=204)

    async def _put_output(self, job: JobState, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in job.spec.outputs:
            message = f"{job.key} has no output {name!r}; it has {', '.join(job.spec.outputs) or 'none'}"
            raise NotFoundError(message, fix="name it under outputs:")
        with self._keep.arriving() as path:
            await self._receive(request, path)
            await asyncio.to_thread(self._keep.keep_output, job.key.namespace, job.key.name, name, path)
        return Response(status_code=204)

    async def _receive(self, request: Request, path: Path) -> None:
        """Write the body to a file as it arrives. Raises `UnavailableError` if it does not fit."""
        await receive(request, path, await asyncio.to_thread(self._keep.room) - SPARE, _no_room)

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(CHECKPOINTS, self.checkpoint, methods=["GET", "PUT"]),
            Route(OUTPUTS, self.output, methods=["PUT"]),
        ]


class UploadFunction(Protocol):
    """A handler for one request of a run."""

    async def __call__(self, job: JobState, request: Request) -> Response:
        """Handle the request."""
        ...


async def receive(request: Request, path: Path, most: int, too_large: Callable[[], FairwayError]) -> int:
    """Write the body to a file as it arrives; return its size. Raises the error of `too_large` for more than `most` bytes."""
    declared = request.headers.get("content-length") or "0"
    if len(declared) > _DIGITS or not declared.isascii() or not declared.isdigit() or int(declared) > most:
        raise too_large()
    size = 0
    with path.open("xb") as file:
        async for block in _blocks(request.stream()):
            size += len(block)
            if size > most:
                raise too_large()
            await asyncio.to_thread(file.write, block)
    return size


def _check_step(name: str) -> None:
    """Raise `RefusedError` for a checkpoint whose step does not fit into the database."""
    step = name.rpartition("-")[2]
    if step.isascii() and step.isdigit() and (len(step) > _DIGITS + 1 or int64(int(step)) is None):
        message = f"the step of checkpoint {name[:80]} has more than 64 bits"
        raise RefusedError(message, fix="count steps below 2**63")


async def _blocks(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the same bytes in blocks large enough for one disk write each."""
    waiting = bytearray()
    async for piece in stream:
        waiting += piece
        if len(waiting) >= BLOCK:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


async def listen_on(request: Request) -> None:
    """Read more of a refused body, up to a limit: a client that is still sending does not read the response."""
    remaining = HEARD
    with contextlib.suppress(RuntimeError):  # The whole body was read before the refusal.
        async for piece in request.stream():
            remaining -= len(piece)
            if remaining < 0:
                return


def _no_room() -> UnavailableError:
    message = "the operator's volume has no room for this"
    return UnavailableError(message, fix="make it larger, keep fewer checkpoints, or give the installation a run_volume")
