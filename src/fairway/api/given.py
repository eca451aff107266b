"""What pods are given by the operator, by the token of their run and nothing else: code, models and datasets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from fairway.api.mlflow.token import speaker_of
from fairway.app.tracking import Speaker
from fairway.errors import FairwayError, NotFoundError
from fairway.runtime.pod.fetch import DIGEST_HEADER

CODE = "/v1/given/code"
MODELS = "/v1/given/models/{reference:path}"
DATASETS = "/v1/given/datasets/{reference:path}"

CodeOf = Callable[[Speaker], tuple[str, ...]]
"""The digests of the code of a run, or of a service's revisions (its run is `service:NAME`); `?digest=` chooses among them."""

Entitled = Callable[[Speaker, str, str], Awaitable[str]]
"""The absolute name of a version (`models` or `datasets`, and how the document names it) that a run or a service may have.

Raises `FairwayError` for what its document does not name, and for what its user may not read.
"""


class Folder(Protocol):
    """A folder on its way out."""

    @property
    def digest(self) -> str:
        """Of its manifest."""
        ...

    @property
    def pieces(self) -> Iterator[bytes]:
        """The archive."""
        ...


class Contents(Protocol):
    """What there is to give. Each raises `FairwayError` for what is not there."""

    def code(self, digest: str) -> Folder:
        """A snapshot of code."""
        ...

    def model(self, reference: str) -> Folder:
        """A model version."""
        ...

    def dataset(self, reference: str) -> Folder:
        """A dataset version."""
        ...


class Given:
    """Answers pods. A token names a run or a service: it gets its own code, and the versions that its own document names."""

    def __init__(self, contents: Contents, code_of: CodeOf, entitled: Entitled, secret: bytes) -> None:
        self._contents = contents
        self._code_of = code_of
        self._entitled = entitled
        self._secret = secret

    async def code(self, request: Request) -> Response:
        """The code of the run that asks."""
        asked = request.query_params.get("digest", "")

        async def find(speaker: Speaker) -> Folder:
            return await asyncio.to_thread(self._contents.code, self._chosen(speaker, asked))

        return await self._answer(request, find, "application/gzip")

    async def model(self, request: Request) -> Response:
        """A model version."""
        reference = str(request.path_params["reference"])

        async def find(speaker: Speaker) -> Folder:
            return await asyncio.to_thread(self._contents.model, await self._entitled(speaker, "models", reference))

        return await self._answer(request, find, "application/x-tar")

    async def dataset(self, request: Request) -> Response:
        """A dataset version."""
        reference = str(request.path_params["reference"])

        async def find(speaker: Speaker) -> Folder:
            return await asyncio.to_thread(self._contents.dataset, await self._entitled(speaker, "datasets", reference))

        return await self._answer(request, find, "application/x-tar")

    def _chosen(self, speaker: Speaker, asked: str) -> str:
        known = self._code_of(speaker)
        if not known or (asked and asked not in known):
            message = f"{speaker.namespace}/{speaker.run} has no code{f' {asked[:12]}' if asked else ''} here"
            raise NotFoundError(message, fix="submit it again with its code")
        return asked or known[0]

    async def _answer(self, request: Request, find: Callable[[Speaker], Awaitable[Folder]], media_type: str) -> Response:
        speaker = speaker_in(request, self._secret)
        if speaker is None:
            return PlainTextResponse("this is no run's token\n", 401)
        try:
            found = await find(speaker)
        except FairwayError as error:
            return refusal(error)
        return StreamingResponse(found.pieces, 200, {DIGEST_HEADER: found.digest}, media_type)

    def routes(self) -> list[Route]:
        """Where it answers."""
        answers: dict[str, Callable[[Request], Awaitable[Response]]] = {
            CODE: self.code,
            MODELS: self.model,
            DATASETS: self.dataset,
        }
        return [Route(path, answer, methods=["GET"]) for path, answer in answers.items()]


def speaker_in(request: Request, secret: bytes) -> Speaker | None:
    """The run or service whose token the request carries; None when it carries none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    speaker = speaker_of(secret, token) if scheme == "Bearer" else None
    return speaker if speaker is not None and speaker.run else None


def refusal(error: FairwayError) -> Response:
    """An error in words, for the last lines of a pod."""
    return PlainTextResponse(f"{error}\n", error.status)


def make_given(routes: Sequence[Route], beside: ASGIApp | None = None) -> ASGIApp:
    """The routes, in front of whatever else listens there."""
    router = Router(routes, redirect_slashes=False)
    if beside is not None:
        router.default = beside
    return router
