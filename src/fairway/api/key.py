"""Routes of the API keys of services."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fairway.api.http.parameter import RequestParameters
from fairway.api.http.response import json_answer, show
from fairway.api.service import there
from fairway.app.application import Application
from fairway.app.key import KeyRequest, KeyUseCases
from fairway.errors import RefusedError
from fairway.state.service import ServiceKey
from fairway.units import rate
from fairway.views.plan import PlanView, plan_text
from fairway.views.serving.key import KeyList, NewKeyView, key_view, keys_text


class KeyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `key create`."""

    name: str
    rate: str = ""
    expires: str = ""
    plan: bool = False


class KeyRoutes:
    """The routes under /v1/services/NAME/keys."""

    def __init__(self, application: Application, now: Callable[[], float]) -> None:
        self._application = application
        self._now = now

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        keys_path = "/v1/services/{name}/keys"
        return [
            Route(keys_path, self.list, methods=["GET"]),
            Route(keys_path, self.create, methods=["POST"]),
            Route(f"{keys_path}/{{key}}", self.revoke, methods=["DELETE"]),
        ]

    async def list(self, request: Request) -> Response:
        """List the keys of a service by name, never the keys themselves."""
        params = RequestParameters(request)
        keys, service = self._keys(params)
        now = self._now()
        view = KeyList(tuple(key_view(key, now) for key in await keys.keys(service)))
        return show(
            params, view, text=lambda page: keys_text(view.keys, now, page), called=lambda: (key.name for key in view.keys)
        )

    async def create(self, request: Request) -> Response:
        """Create a key; only this response ever contains it."""
        params = RequestParameters(request)
        keys, service = self._keys(params)
        body = await params.body(KeyBody)
        wish = KeyRequest(body.name, body.rate, body.expires)
        if body.plan:
            keys.check(service, wish.name, await keys.keys(service))
            key = keys.planned(service, wish)
            limit = f", for {rate.show(key.rule.rate)}" if key.rule.rate else ""
            view = PlanView((f"{params.name}: the key {wish.name} would be made{limit}",), (wish.name,))
            return show(params, view, text=lambda _page: plan_text(view), called=lambda: view.jobs)
        text, key = await keys.create(service, wish)
        answer = json_answer(NewKeyView(key.rule.name, text, key.rule.expires or None), 201)
        answer.headers["cache-control"] = "no-store"
        return answer

    async def revoke(self, request: Request) -> Response:
        """Revoke a key; when this responds, the key is no longer accepted."""
        params = RequestParameters(request)
        keys, service = self._keys(params)
        name = str(request.path_params["key"])
        if params.flag("plan"):
            keys.find(service, name, await keys.keys(service))
            view = PlanView((f"{params.name}: the key {name} would be revoked",), (name,))
            return show(params, view, text=lambda _page: plan_text(view), called=lambda: view.jobs)
        await keys.revoke(service, name)
        return json_answer({"revoked": [name]})

    def _keys(self, asked: RequestParameters) -> tuple[KeyUseCases, str]:
        services = there(self._application.services)
        key = services.find(ServiceKey(asked.namespace, asked.name)).service.key
        if services.keys is None:
            message = "this engine has no API keys"
            raise RefusedError(message, fix="use an engine whose router checks them")
        return services.keys, str(key)
