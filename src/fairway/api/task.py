"""Routes to running tasks: input, interrupt, window size, environment."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fairway.api.http.parameter import RequestParameters
from fairway.api.http.response import json_answer
from fairway.app.application import Application
from fairway.errors import ConflictError, FairwayError
from fairway.state.phase import TaskPhase
from fairway.state.task import Task

INTERRUPT = b"\x03"
"""The input of Ctrl-C."""


class TerminalSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The size of a terminal."""

    rows: int
    cols: int


class TaskRoutes:
    """The routes to running tasks."""

    def __init__(self, application: Application) -> None:
        self._application = application

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        job_path = "/v1/jobs/{name}"
        return [
            Route(f"{job_path}/input", self.type_in, methods=["POST"]),
            Route(f"{job_path}/interrupt", self.interrupt, methods=["POST"]),
            Route(f"{job_path}/window", self.resize, methods=["POST"]),
            Route(f"{job_path}/environment", self.environment, methods=["GET"]),
        ]

    async def type_in(self, request: Request) -> Response:
        """Send the body to the task's terminal; an empty body is Ctrl-D."""
        task = self._task(RequestParameters(request))
        await self._application.engine.type_in(task.key, await request.body())
        return json_answer({"task": task.key.task})

    async def interrupt(self, request: Request) -> Response:
        """Send SIGINT to all started tasks of the run at the same time. The response names the tasks that received it.

        A task that ends in the meantime is left out. Raises `ConflictError` if no task received it.
        """
        params = RequestParameters(request)
        job = self._application.find(params.namespace, params.name)
        started = [task for task in self._application.tasks(job) if task.phase in (TaskPhase.STARTING, TaskPhase.RUNNING)]
        failed = await asyncio.gather(*(self._send_interrupt(task) for task in started))
        reached = [task.key.task for task, error in zip(started, failed, strict=True) if error is None]
        if not reached:
            message = f"no task of {job.key.name} runs, so there is nothing to interrupt"
            raise ConflictError(message, fix=f"see `fairway get {job.key.name}`; `fairway stop {job.key.name}` ends it")
        return json_answer({"tasks": reached})

    async def _send_interrupt(self, task: Task) -> FairwayError | None:
        try:
            await self._application.engine.type_in(task.key, INTERRUPT)
        except FairwayError as error:
            return error
        return None

    async def resize(self, request: Request) -> Response:
        """Set the window size of the task's terminal."""
        params = RequestParameters(request)
        window = await params.body(TerminalSize)
        task = self._task(params)
        await self._application.engine.resize(task.key, window.rows, window.cols)
        return json_answer({"task": task.key.task})

    async def environment(self, request: Request) -> Response:
        """Return folder and environment of a running task, for a command beside it.

        Only for the socket's owner, like all routes here.
        """
        task = self._task(RequestParameters(request))
        inside = await self._application.engine.inside(task.key)
        return json_answer({"task": task.key.task, "cwd": inside.folder, "env": inside.environment})

    def _task(self, asked: RequestParameters) -> Task:
        job = self._application.find(asked.namespace, asked.name)
        return self._application.running_task(job, asked.text("task"), asked.text("role"), asked.optional_number("index"))
