"""Downloads for pods from the operator, authorised only by the token of their run: code, models and datasets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from fairway.api.mlflow.token import speaker_of
from fairway.app.tracking.run import TokenCaller
from fairway.errors import FairwayError, NotFoundError
from fairway.runtime.pod.fetch import DIGEST_HEADER

CODE = "/v1/given/code"
MODELS = "/v1/given/models/{reference:path}"
DATASETS = "/v1/given/datasets/{reference:path}"

CodeOf = Callable[[TokenCaller], tuple[str, ...]]
"""Return the code digests of a run, or of a service's revisions (its run is `service:NAME`); `?digest=` selects one of them."""

Entitled = Callable[[TokenCaller, str, str], Awaitable[str]]
"""Return the absolute name of a version (`models` or `datasets`, and the name in the document) that a run or service may read.

Raises `FairwayError` for versions that its document does not name, and for those that its user may not read.
"""


class DownloadArchive(Protocol):
    """A folder to be downloaded."""

    @property
    def digest(self) -> str:
        """The digest of its manifest."""
        ...

    @property
    def pieces(self) -> Iterator[bytes]:
        """The archive, in pieces."""
        ...


class DownloadStore(Protocol):
    """Stored content. Every method raises `FairwayError` for missing content."""

    def code(self, digest: str) -> DownloadArchive:
        """Return a snapshot of code."""
        ...

    def model(self, reference: str) -> DownloadArchive:
        """Return a model version."""
        ...

    def dataset(self, reference: str) -> DownloadArchive:
        """Return a dataset version."""
        ...


class DownloadRoutes:
    """Handles downloads of pods.

    A token names a run or a service, which gets its own code and the versions in its own document.
    """

    def __init__(self, contents: DownloadStore, code_of: CodeOf, entitled: Entitled, secret: bytes) -> None:
        self._contents = contents
        self._code_of = code_of
        self._entitled = entitled
        self._secret = secret

    async def code(self, request: Request) -> Response:
        """Return the code of the requesting run."""
        digest = request.query_params.get("digest", "")

        async def find(speaker: TokenCaller) -> DownloadArchive:
            return await asyncio.to_thread(self._contents.code, self._chosen(speaker, digest))

        return await self._answer(request, find, "application/gzip")

    async def model(self, request: Request) -> Response:
        """Return a model version."""
        reference = str(request.path_params["reference"])

        async def find(speaker: TokenCaller) -> DownloadArchive:
            return await asyncio.to_thread(self._contents.model, await self._entitled(speaker, "models", reference))

        return await self._answer(request, find, "application/x-tar")

    async def dataset(self, request: Request) -> Response:
        """Return a dataset version."""
        reference = str(request.path_params["reference"])

        async def find(speaker: TokenCaller) -> DownloadArchive:
            return await asyncio.to_thread(self._contents.dataset, await self._entitled(speaker, "datasets", reference))

        return await self._answer(request, find, "application/x-tar")

    def _chosen(self, speaker: TokenCaller, asked: str) -> str:
        digests = self._code_of(speaker)
        if not digests or (asked and asked not in digests):
            message = f"{speaker.namespace}/{speaker.run} has no code{f' {asked[:12]}' if asked else ''} here"
            raise NotFoundError(message, fix="submit it again with its code")
        return asked or digests[0]

    async def _answer(
        self, request: Request, find: Callable[[TokenCaller], Awaitable[DownloadArchive]], media_type: str
    ) -> Response:
        speaker = speaker_in(request, self._secret)
        if speaker is None:
            return PlainTextResponse("this is not the token of a run\n", 401)
        try:
            folder = await find(speaker)
        except FairwayError as error:
            return refusal(error)
        return StreamingResponse(folder.pieces, 200, {DIGEST_HEADER: folder.digest}, media_type)

    def routes(self) -> list[Route]:
        """Return the routes."""
        answers: dict[str, Callable[[Request], Awaitable[Response]]] = {
            CODE: self.code,
            MODELS: self.model,
            DATASETS: self.dataset,
        }
        return [Route(path, answer, methods=["GET"]) for path, answer in answers.items()]


def speaker_in(request: Request, secret: bytes) -> TokenCaller | None:
    """Return the run or service of the request's token; None without a valid token."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    speaker = speaker_of(secret, token) if scheme == "Bearer" else None
    return speaker if speaker is not None and speaker.run else None


def refusal(error: FairwayError) -> Response:
    """Return an error as text, for the last lines of a pod's log."""
    return PlainTextResponse(f"{error}\n", error.status)


def make_given(routes: Sequence[Route], beside: ASGIApp | None = None) -> ASGIApp:
    """Build an application of the routes; all other requests go to `beside`."""
    router = Router(routes, redirect_slashes=False)
    if beside is not None:
        router.default = beside
    return router
