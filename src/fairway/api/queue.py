"""Routes of queues. Queues are created and changed by `apply`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fairway.api.http.parameter import RequestParameters
from fairway.api.http.response import json_answer, show
from fairway.app.application import Application
from fairway.views.plan import PlanView, plan_text
from fairway.views.queue import QueueList, QueueView, queue_text, queue_view, queues_text


class QueueRoutes:
    """The routes of queues."""

    def __init__(self, application: Application) -> None:
        self._queues = application.queues

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [
            Route("/v1/queues", self.list, methods=["GET"]),
            Route("/v1/queues/{name}", self.get, methods=["GET"]),
            Route("/v1/queues/{name}", self.delete, methods=["DELETE"]),
        ]

    async def list(self, request: Request) -> Response:
        """Return every queue, with its current usage."""
        view = QueueList(tuple(self._views().values()))
        return show(
            RequestParameters(request),
            view,
            text=lambda page: queues_text(view.queues, page),
            called=lambda: (queue.name for queue in view.queues),
        )

    async def get(self, request: Request) -> Response:
        """Return one queue, with its current usage."""
        params = RequestParameters(request)
        view = self._views()[self._queues.find(params.name).name]
        return show(params, view, text=lambda page: queue_text(view, page), called=lambda: [view.name])

    async def delete(self, request: Request) -> Response:
        """Delete a queue in which no run waits or runs; a changed `default` gets its original values."""
        params = RequestParameters(request)
        if params.flag("plan"):
            self._queues.check_delete(params.name)
            view = PlanView((f"the queue {params.name} would be deleted",), (params.name,))
            return show(params, view, text=lambda _page: plan_text(view), called=lambda: view.jobs)
        await self._queues.delete(params.name)
        return json_answer({"deleted": [params.name]})

    def _views(self) -> dict[str, QueueView]:
        standings = {standing.name: standing for standing in self._queues.standings()}
        return {queue.name: queue_view(queue, standings[queue.name]) for queue in self._queues.all()}
