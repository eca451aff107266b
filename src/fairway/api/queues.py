"""Routes about queues. They are made and changed by `apply`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fairway.api.answer import json_answer, show
from fairway.api.asking import Asked
from fairway.app.application import Application
from fairway.views.plan import PlanView, plan_text
from fairway.views.queue import QueueList, QueueView, queue_text, queue_view, queues_text


class Queues:
    """The routes about queues."""

    def __init__(self, application: Application) -> None:
        self._queues = application.queues

    def routes(self) -> list[BaseRoute]:
        """Where each is found."""
        return [
            Route("/v1/queues", self.list, methods=["GET"]),
            Route("/v1/queues/{name}", self.get, methods=["GET"]),
            Route("/v1/queues/{name}", self.delete, methods=["DELETE"]),
        ]

    async def list(self, request: Request) -> Response:
        """Every queue, and how it stands."""
        view = QueueList(tuple(self._views().values()))
        return show(
            Asked(request),
            view,
            text=lambda page: queues_text(view.queues, page),
            called=lambda: (queue.name for queue in view.queues),
        )

    async def get(self, request: Request) -> Response:
        """One queue, and how it stands."""
        asked = Asked(request)
        view = self._views()[self._queues.find(asked.name).name]
        return show(asked, view, text=lambda page: queue_text(view, page), called=lambda: [view.name])

    async def delete(self, request: Request) -> Response:
        """Forget a queue that no run waits or runs in; a changed `default` becomes what it was."""
        asked = Asked(request)
        if asked.flag("plan"):
            self._queues.check_delete(asked.name)
            view = PlanView((f"the queue {asked.name} would be deleted",), (asked.name,))
            return show(asked, view, text=lambda _page: plan_text(view), called=lambda: view.jobs)
        await self._queues.delete(asked.name)
        return json_answer({"deleted": [asked.name]})

    def _views(self) -> dict[str, QueueView]:
        standings = {standing.name: standing for standing in self._queues.standings()}
        return {queue.name: queue_view(queue, standings[queue.name]) for queue in self._queues.all()}
