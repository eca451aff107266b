"""Routes into running tasks: input, window size, environment."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fairway.api.answer import json_answer
from fairway.api.asking import Asked
from fairway.app.application import Application
from fairway.state.task import Task


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The size of a terminal."""

    rows: int
    cols: int


class Inside:
    """The routes into running tasks."""

    def __init__(self, application: Application) -> None:
        self._application = application

    def routes(self) -> list[BaseRoute]:
        """Where each is found."""
        one = "/v1/jobs/{name}"
        return [
            Route(f"{one}/input", self.type_in, methods=["POST"]),
            Route(f"{one}/window", self.resize, methods=["POST"]),
            Route(f"{one}/environment", self.environment, methods=["GET"]),
        ]

    async def type_in(self, request: Request) -> Response:
        """The body goes to the task's terminal; an empty body is Ctrl-D."""
        task = self._task(Asked(request))
        await self._application.engine.type_in(task.key, await request.body())
        return json_answer({"task": task.key.task})

    async def resize(self, request: Request) -> Response:
        """The window of the task's terminal."""
        asked = Asked(request)
        window = await asked.body(Window)
        task = self._task(asked)
        await self._application.engine.resize(task.key, window.rows, window.cols)
        return json_answer({"task": task.key.task})

    async def environment(self, request: Request) -> Response:
        """Folder and environment of a running task, for a command beside it. For the socket's owner, as all of this."""
        task = self._task(Asked(request))
        found = await self._application.engine.inside(task.key)
        return json_answer({"task": task.key.task, "cwd": found.folder, "env": found.environment})

    def _task(self, asked: Asked) -> Task:
        job = self._application.find(asked.namespace, asked.name)
        return self._application.running_task(job, asked.text("task"), asked.text("role"), asked.optional_number("index"))
