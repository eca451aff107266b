"""Routes of the daemon and its machine: health, nodes, secrets."""

from __future__ import annotations

from dataclasses import asdict

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fairway.api.http.parameter import RequestParameters
from fairway.api.http.response import json_answer, show
from fairway.api.view_builder import ViewBuilder
from fairway.app.application import Application
from fairway.errors import NotFoundError, UsageError
from fairway.plan.scheduling.preemption.defragmentation import BUDGET
from fairway.units import names, suggestion
from fairway.views.defragmentation import moves_plan_view, moves_text
from fairway.views.fault import FaultList, fault_views, faults_text
from fairway.views.list_table import nodes_text, secrets_text
from fairway.views.node import NodeList, node_view
from fairway.views.record_condition import condition_view
from fairway.views.secret import SecretList, SecretView


class MovesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many runs may be moved, and whether to only plan it."""

    plan: bool = False
    moves: int = 0
    """Maximum number of moves; 0 means the default."""


class SetAsideBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The folder: `default/mnist-7`."""

    name: str


class SecretBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A secret value."""

    value: str


class DaemonRoutes:
    """The routes of the daemon and its machine."""

    def __init__(self, application: Application, showing: ViewBuilder) -> None:
        self._application = application
        self._show = showing

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [
            Route("/v1/health", self.health, methods=["GET"]),
            Route("/v1/faults", self.faults, methods=["GET"]),
            Route("/v1/condition", self.condition, methods=["GET"]),
            Route("/v1/condition/set-aside", self.set_aside, methods=["POST"]),
            Route("/v1/nodes", self.nodes, methods=["GET"]),
            Route("/v1/nodes/{name}", self.node, methods=["GET"]),
            Route("/v1/defragment", self.defragment, methods=["POST"]),
            Route("/v1/secrets", self.secrets, methods=["GET"]),
            Route("/v1/secrets/{name}", self.put_secret, methods=["PUT"]),
            Route("/v1/secrets/{name}", self.delete_secret, methods=["DELETE"]),
        ]

    async def health(self, request: Request) -> Response:
        """Identify the running daemon."""
        about = self._show.about
        return json_answer(asdict(about))

    async def faults(self, request: Request) -> Response:
        """Return current failures and their retries, by object."""
        view = FaultList(fault_views(self._application.loop.faults.all()))
        return show(
            RequestParameters(request),
            view,
            text=lambda page: faults_text(view, self._show.now(), page),
            called=lambda: (fault.subject for fault in view.faults),
        )

    async def condition(self, request: Request) -> Response:
        """Return the condition of the database: backups, recoveries, unreadable records."""
        del request
        return json_answer(condition_view(self._application.condition(), self._show.now()))

    async def set_aside(self, request: Request) -> Response:
        """Move the folder of a run that cannot be read out of the way."""
        body = await RequestParameters(request).body(SetAsideBody)
        return json_answer({"path": self._application.set_aside(body.name)})

    async def nodes(self, request: Request) -> Response:
        """Return the nodes, with their free resources."""
        nodes, tasks = await self._application.nodes()
        return self._nodes(RequestParameters(request), NodeList(tuple(node_view(node, tasks) for node in nodes)))

    async def node(self, request: Request) -> Response:
        """Return one node."""
        params = RequestParameters(request)
        nodes, tasks = await self._application.nodes()
        views = tuple(node_view(node, tasks) for node in nodes if node.name == params.name)
        if not views:
            node_names = [node.name for node in nodes]
            fix = suggestion.did_you_mean(params.name, node_names) or f"there is {', '.join(node_names) or 'none'}"
            message = f"there is no node {params.name}"
            raise NotFoundError(message, fix=fix)
        return self._nodes(params, NodeList(views))

    def _nodes(self, asked: RequestParameters, view: NodeList) -> Response:
        return show(
            asked,
            view,
            text=lambda page: nodes_text(view.nodes, page),
            called=lambda: (node.name for node in view.nodes),
        )

    async def defragment(self, request: Request) -> Response:
        """Find the fewest moves that let a waiting run start, and perform them unless only planned."""
        params = RequestParameters(request)
        body = await params.body(MovesBody)
        move_plan = await self._application.loop.move(body.moves or BUDGET, carry_out=not body.plan)
        view = moves_plan_view(move_plan, done=move_plan is not None and not body.plan)
        return show(params, view, text=lambda page: moves_text(view, page), called=lambda: (move.name for move in view.moves))

    async def secrets(self, request: Request) -> Response:
        """Return the names of the secrets, never a value."""
        view = SecretList(tuple(SecretView(name) for name in sorted(self._application.secrets.names())))
        return show(
            RequestParameters(request),
            view,
            text=lambda page: secrets_text(view.secrets, page),
            called=lambda: (secret.name for secret in view.secrets),
        )

    async def put_secret(self, request: Request) -> Response:
        """Store a secret, replacing an older value."""
        params = RequestParameters(request)
        try:
            name = names.check_variable(params.name)
        except ValueError as problem:
            message = f"{params.name!r} {problem}"
            raise UsageError(message, fix="a secret becomes a variable; write for example HF_TOKEN") from None
        self._application.secrets.put(name, (await params.body(SecretBody)).value)
        return json_answer(SecretView(name))

    async def delete_secret(self, request: Request) -> Response:
        """Delete a secret."""
        name = RequestParameters(request).name
        self._application.secrets.delete(name)
        return json_answer({"deleted": [name]})
