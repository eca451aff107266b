"""Routes about the API keys of services."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fairway.api.answer import json_answer, show
from fairway.api.asking import Asked
from fairway.api.services import there
from fairway.app.application import Application
from fairway.app.service_keys import KeyWish, ServiceKeys
from fairway.errors import RefusedError
from fairway.state.service import ServiceKey
from fairway.units import rate
from fairway.views.key import KeyList, KeyMade, key_view, keys_text
from fairway.views.plan import PlanView, plan_text


class KeyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `key create` sends."""

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
        """Where each is found."""
        whole = "/v1/services/{name}/keys"
        return [
            Route(whole, self.list, methods=["GET"]),
            Route(whole, self.create, methods=["POST"]),
            Route(f"{whole}/{{key}}", self.revoke, methods=["DELETE"]),
        ]

    async def list(self, request: Request) -> Response:
        """The keys of a service, by name; never a key."""
        asked = Asked(request)
        keys, service = self._keys(asked)
        now = self._now()
        view = KeyList(tuple(key_view(key, now) for key in await keys.keys(service)))
        return show(
            asked, view, text=lambda page: keys_text(view.keys, now, page), called=lambda: (key.name for key in view.keys)
        )

    async def create(self, request: Request) -> Response:
        """Make a key; the answer is the only place where it is ever shown."""
        asked = Asked(request)
        keys, service = self._keys(asked)
        body = await asked.body(KeyBody)
        wish = KeyWish(body.name, body.rate, body.expires)
        if body.plan:
            keys.check(service, wish.name, await keys.keys(service))
            made = keys.planned(service, wish)
            limit = f", for {rate.show(made.rule.rate)}" if made.rule.rate else ""
            view = PlanView((f"{asked.name}: the key {wish.name} would be made{limit}",), (wish.name,))
            return show(asked, view, text=lambda _page: plan_text(view), called=lambda: view.jobs)
        text, made = await keys.create(service, wish)
        answer = json_answer(KeyMade(made.rule.name, text, made.rule.expires or None), 201)
        answer.headers["cache-control"] = "no-store"
        return answer

    async def revoke(self, request: Request) -> Response:
        """Take a key away; it is not let in any more when this is answered."""
        asked = Asked(request)
        keys, service = self._keys(asked)
        name = str(request.path_params["key"])
        if asked.flag("plan"):
            keys.find(service, name, await keys.keys(service))
            view = PlanView((f"{asked.name}: the key {name} would be revoked",), (name,))
            return show(asked, view, text=lambda _page: plan_text(view), called=lambda: view.jobs)
        await keys.revoke(service, name)
        return json_answer({"revoked": [name]})

    def _keys(self, asked: Asked) -> tuple[ServiceKeys, str]:
        services = there(self._application.services)
        key = services.find(ServiceKey(asked.namespace, asked.name)).service.key
        if services.keys is None:
            message = "there are no API keys here"
            raise RefusedError(message, fix="use an engine whose router checks them")
        return services.keys, str(key)
