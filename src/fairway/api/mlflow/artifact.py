"""Routes of files: those of runs, of models that runs logged, and of versions of the registry."""

from __future__ import annotations

import builtins
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from fairway.api.mlflow.parameter import MlflowParameters, run_id
from fairway.api.mlflow.response import answer
from fairway.api.mlflow.route import Handler, speaker
from fairway.app.port.tracking import ArtifactEntry
from fairway.app.tracking.model import LOGGED, REGISTERED, TrackedModelUseCases
from fairway.errors import NotFoundError, UsageError

FILES = "mlflow-artifacts/artifacts"


class ArtifactRoutes:
    """The routes of files."""

    def __init__(self, models: TrackedModelUseCases) -> None:
        self._models = models

    def routes(self) -> dict[tuple[str, str], Handler]:
        """Return the routes by method and path below `/api/2.0/`."""
        return {
            ("GET", FILES): self.list,
            ("GET", f"{FILES}/{{path:path}}"): self.read,
            ("PUT", f"{FILES}/{{path:path}}"): self.write,
            ("DELETE", f"{FILES}/{{path:path}}"): self.delete,
            ("GET", "mlflow/artifacts/list"): self.list_of_run,
            ("GET", "mlflow/logged-models/{model}/artifacts/directories"): self.list_of_model,
        }

    async def write(self, request: Request) -> Response:
        """Store a file."""
        path = str(request.path_params["path"])
        if path.partition("/")[0] == REGISTERED:
            message = f"{path[:80]!r} is a file of a registered version, which never changes"
            raise UsageError(message, fix="register a new version")
        self._models.check_may_write(speaker(request), path)
        shelf, rest = self._models.shelf(speaker(request).namespace, path)
        await self._models.artifacts.write(shelf, rest, _pieces(request))
        return answer()

    async def delete(self, request: Request) -> Response:
        """Remove a file, or a folder with its content."""
        path = str(request.path_params["path"])
        if path.partition("/")[0] == REGISTERED:
            message = f"{path[:80]!r} is a file of a registered version, which never changes"
            raise UsageError(message, fix="delete the version: fairway model delete NAME@VERSION")
        self._models.check_may_write(speaker(request), path)
        shelf, rest = self._models.shelf(speaker(request).namespace, path)
        await self._models.artifacts.delete(shelf, rest)
        return answer()

    async def read(self, request: Request) -> Response:
        """Return a file."""
        path = str(request.path_params["path"])
        target = await self._find(speaker(request).namespace, path)
        if not target.is_file():
            message = f"{path[:80]!r} is not a file"
            raise NotFoundError(message, fix="list what is in it")
        return FileResponse(target, media_type="application/octet-stream")

    async def list(self, request: Request) -> Response:
        """List the entries of a folder."""
        fields = await MlflowParameters.of(request)
        return answer({"files": await self._listed(speaker(request).namespace, fields.text("path", ""))})

    async def list_of_run(self, request: Request) -> Response:
        """List the entries of a folder of a run, with their paths."""
        fields = await MlflowParameters.of(request)
        return await self._with_root(request, run_id(fields), fields.text("path", ""))

    async def list_of_model(self, request: Request) -> Response:
        """List the entries of a folder of a logged model, with their paths."""
        fields = await MlflowParameters.of(request)
        return await self._with_root(
            request, f"{LOGGED}/{request.path_params['model']}", fields.text("artifact_directory_path", "")
        )

    async def _with_root(self, request: Request, root: str, path: str) -> Response:
        entries = await self._listed(speaker(request).namespace, f"{root}/{path}" if path else root)
        files = [{**entry, "path": f"{path}/{entry['path']}" if path else entry["path"]} for entry in entries]
        return answer({"root_uri": f"mlflow-artifacts:/{root}", "files": files})

    async def _find(self, namespace: str, path: str) -> Path:
        first, _, rest = path.partition("/")
        if first == REGISTERED:
            return await self._models.version_file(namespace, rest)
        return self._models.artifacts.find(*self._models.shelf(namespace, path))

    async def _listed(self, namespace: str, path: str) -> builtins.list[dict[str, Any]]:
        first, _, rest = path.partition("/")
        if first == REGISTERED:
            return [_entry_json(entry) for entry in _entries(await self._models.version_file(namespace, rest))]
        return [_entry_json(entry) for entry in self._models.artifacts.list(*self._models.shelf(namespace, path))]


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    async for piece in request.stream():
        if piece:
            yield piece


def _entries(folder: Path) -> list[ArtifactEntry]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        items = sorted(entries, key=lambda entry: entry.name)
    return [ArtifactEntry(item.name, item.is_dir(), 0 if item.is_dir() else item.stat().st_size) for item in items]


def _entry_json(entry: ArtifactEntry) -> dict[str, Any]:
    return {"path": entry.path, "is_dir": entry.is_folder, **({} if entry.is_folder else {"file_size": entry.size})}
