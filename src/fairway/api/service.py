"""Routes of services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from fairway.api.event import show_events
from fairway.api.http.parameter import RequestParameters, placed
from fairway.api.http.response import StreamingBody, json_answer, show
from fairway.api.stream.access_log import access_lines
from fairway.api.stream.replica_log import replica_logs
from fairway.api.stream.run_stream import mixed_logs, stamped
from fairway.app.application import Application
from fairway.app.idempotency import IdempotencyKey
from fairway.app.port.port import LogQuery
from fairway.app.service import ServiceRequest, ServiceUseCases
from fairway.app.serving.service_turn import ServiceEntry
from fairway.errors import RefusedError, UsageError
from fairway.spec.endpoint import ServiceEndpoint, is_loopback
from fairway.spec.service import ModelService
from fairway.spec.text.document import read_data
from fairway.state.job import SubmissionOrigin
from fairway.state.service import ServiceKey, ServiceState
from fairway.views.apply_result import ApplyResultView
from fairway.views.plan import PlanView, plan_text
from fairway.views.serving.access import AccessView, access_view, reach_sentence
from fairway.views.serving.endpoint import endpoint_view
from fairway.views.serving.release import history_text, release_text, release_view
from fairway.views.serving.service import (
    ServiceList,
    ServiceView,
    change_sentence,
    service_text,
    service_view,
    services_text,
    why_service_text,
    why_service_view,
)
from fairway.views.text.log_format import LogMerger


class ServeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `serve`: one document as data."""

    document: dict[str, object]
    origin: SubmissionOrigin = SubmissionOrigin()
    plan: bool = False


class ScaleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `scale`."""

    floor: int
    plan: bool = False


class ReleaseBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of the `rollout` commands; model, strategy and consent only for `start`."""

    model: str = ""
    strategy: str = ""
    allow_signature_change: bool = False
    plan: bool = False


class ServiceRoutes:
    """The routes under /v1/services."""

    def __init__(self, application: Application, now: Callable[[], float]) -> None:
        self._application = application
        self._now = now

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        service_path = "/v1/services/{name}"
        return [
            Route("/v1/services", self.list, methods=["GET"]),
            Route("/v1/services", self.serve, methods=["POST"]),
            Route(service_path, self.get, methods=["GET"]),
            Route(service_path, self.delete, methods=["DELETE"]),
            Route(f"{service_path}/settled", self.settled, methods=["GET"]),
            Route(f"{service_path}/scale", self.scale, methods=["POST"]),
            Route(f"{service_path}/why", self.why, methods=["GET"]),
            Route(f"{service_path}/events", self.events, methods=["GET"]),
            Route(f"{service_path}/logs", self.logs, methods=["GET"]),
            Route(f"{service_path}/top", self.get, methods=["GET"]),
            Route(f"{service_path}/rollout", self.rollout, methods=["GET"]),
            Route(f"{service_path}/rollout/history", self.history, methods=["GET"]),
            Route(f"{service_path}/rollout/start", self.start, methods=["POST"]),
            Route(f"{service_path}/rollout/pause", self.pause, methods=["POST"]),
            Route(f"{service_path}/rollout/resume", self.resume, methods=["POST"]),
            Route(f"{service_path}/rollout/undo", self.undo, methods=["POST"]),
        ]

    @property
    def _services(self) -> ServiceUseCases:
        return there(self._application.services)

    async def list(self, request: Request) -> Response:
        """List every service of the namespace; `*` means all namespaces."""
        params = RequestParameters(request)
        namespace = "" if params.namespace == "*" else params.namespace
        view = ServiceList(tuple(self._view(standing) for standing in self._services.all(namespace)))
        return show(
            params,
            view,
            text=lambda page: services_text(view, self._now(), page),
            called=lambda: (service.name for service in view.services),
        )

    async def serve(self, request: Request) -> Response:
        """Apply one service."""
        params = RequestParameters(request)
        body = await params.body(ServeBody)
        document = read_data(body.document)
        if not isinstance(document, ModelService):
            message = f"a {document.kind} is not served"
            raise UsageError(message, fix="send a ModelService")
        ask = ServiceRequest(placed(document, params.namespace), body.origin)
        if body.plan:
            (view,) = await planned_services(self._services, [ask])
            return show(params, view, text=lambda _page: plan_text(view), called=lambda: view.jobs)
        await self._services.apply(ask, params.key(body.origin.user))
        return json_answer(self._view(self._services.find(ask.key)), 201)

    async def get(self, request: Request) -> Response:
        """Return one service."""
        params = RequestParameters(request)
        return self._one(params, self._find(params))

    async def settled(self, request: Request) -> Response:
        """Return one service as soon as its release is over and it is ready."""
        params = RequestParameters(request)
        return self._one(params, await self._services.settled(_key(params)))

    async def delete(self, request: Request) -> Response:
        """Delete a service; requests in progress are finished first."""
        params = RequestParameters(request)
        if not self._services.is_unreadable(_key(params)):
            self._find(params)
        if params.flag("plan"):
            view = PlanView((f"the service {params.name} would finish its requests and be deleted",), (params.name,))
            return show(params, view, text=lambda _page: plan_text(view), called=lambda: view.jobs)
        await self._services.delete(_key(params))
        return json_answer({"deleted": [params.name]})

    async def scale(self, request: Request) -> Response:
        """Set the minimum number of replicas."""
        params = RequestParameters(request)
        body = await params.body(ScaleBody)
        if body.plan:
            view = PlanView((f"{params.name} would have at least {body.floor} replicas",), (params.name,))
            return show(params, view, text=lambda _page: plan_text(view), called=lambda: view.jobs)
        await self._services.scale(_key(params), body.floor)
        return self._one(params, self._find(params))

    async def why(self, request: Request) -> Response:
        """Explain which rule set the number of replicas, and what would change it."""
        params = RequestParameters(request)
        standing = self._find(params)
        view = why_service_view(standing.record, self._services.faults(standing))
        view = msgspec.structs.replace(view, warnings=self._access(standing).warnings)
        return show(params, view, text=lambda page: why_service_text(view, self._now(), page), called=lambda: [view.rule])

    async def events(self, request: Request) -> Response:
        """Return the events of a service, oldest first."""
        params = RequestParameters(request)
        return show_events(self._application, params, f"service:{self._find(params).service.key}")

    async def logs(self, request: Request) -> ASGIApp:
        """Return the output of the replicas, each line with its replica's name."""
        params = RequestParameters(request)
        runs = self._services.replica_runs(self._find(params))
        query = LogQuery(
            follow=params.flag("follow"),
            tail=params.optional_number("tail"),
            since=params.since(self._now()),
            grep=params.pattern("grep"),
            timed=params.flag("timestamps"),
        )
        if params.flag("access"):
            return StreamingBody(access_lines(self._access_folder(_key(params)), query))
        chunks = replica_logs(self._application, self._services, _key(params), query)
        if query.timed:
            chunks = stamped(chunks)
        return StreamingBody(mixed_logs(chunks, LogMerger([name for name, _ in runs], colour=params.flag("colour"))))

    def _access_folder(self, key: ServiceKey) -> Path:
        """Return the folder of the access log; refused if it is stored elsewhere."""
        folder = self._services.access_folder(str(key))
        if folder is None:
            message = f"the access log of {key.name} is not kept here"
            command = f"kubectl logs -n {key.namespace} -l fairway.dev/service={key.name},fairway.dev/part=router"
            fix = f"on a cluster, its routers print it: {command}; Envoy writes none"
            raise RefusedError(message, fix=fix)
        return folder

    async def rollout(self, request: Request) -> Response:
        """Return the state of the release."""
        params = RequestParameters(request)
        view = release_view(self._find(params).service)
        return show(params, view, text=lambda page: release_text(view, self._now(), page), called=lambda: [view.phase])

    async def history(self, request: Request) -> Response:
        """Return the releases so far, oldest first."""
        params = RequestParameters(request)
        view = release_view(self._find(params).service)
        return show(params, view, text=lambda page: history_text(view, self._now(), page), called=lambda: [view.phase])

    async def start(self, request: Request) -> Response:
        """Release another version of the model."""
        params = RequestParameters(request)
        body = await params.body(ReleaseBody)
        consent = body.allow_signature_change
        ask = self._services.release_ask(_key(params), body.model, body.strategy, allow_signature_change=consent)
        if body.plan:
            (view,) = await planned_services(self._services, [ask])
            return show(params, view, text=lambda _page: plan_text(view), called=lambda: view.jobs)
        await self._services.apply(ask, params.key())
        return await self.rollout(request)

    async def pause(self, request: Request) -> Response:
        """Pause the release at its current step."""
        return await self._changed(
            request, lambda service, _key: self._services.pause(service), "the release would be paused at its current step"
        )

    async def resume(self, request: Request) -> Response:
        """Resume the release."""
        return await self._changed(request, self._services.resume, "the release would be resumed")

    async def undo(self, request: Request) -> Response:
        """Return to the previous version."""
        return await self._changed(request, self._services.undo, "the previous revision would serve again")

    async def _changed(
        self, request: Request, change: Callable[[ServiceKey, IdempotencyKey | None], Awaitable[ServiceState]], plan: str
    ) -> Response:
        params = RequestParameters(request)
        if (await params.body(ReleaseBody)).plan:
            view = PlanView((f"{self._find(params).service.key.name}: {plan}",), (params.name,))
            return show(params, view, text=lambda _page: plan_text(view), called=lambda: view.jobs)
        await change(_key(params), params.key())
        return await self.rollout(request)

    def _find(self, asked: RequestParameters) -> ServiceEntry:
        return self._services.find(_key(asked))

    def _view(self, standing: ServiceEntry) -> ServiceView:
        access = self._access(standing)
        url, model = self._services.url_of(standing.service), self._services.model_of(standing.service)
        endpoint = endpoint_view(url, model, access)
        view = service_view(standing.record, standing.measured, endpoint, self._services.faults(standing))
        router = self._services.routed_by(str(standing.service.key))
        return msgspec.structs.replace(view, router=router, access=access, moving=standing.moving)

    def _access(self, standing: ServiceEntry) -> AccessView:
        service = standing.service
        if service.spec.endpoint == ServiceEndpoint():
            return AccessView()
        return access_view(service.spec.endpoint, self._services.access_state(str(service.key)), service.key.name)

    def _one(self, asked: RequestParameters, standing: ServiceEntry) -> Response:
        token = self._services.outcome_token(str(standing.service.key))
        metric = standing.service.spec.rollout.guard.metric
        view = msgspec.structs.replace(self._view(standing), outcome_token=token, metric=metric.name if metric else "")
        return show(asked, view, text=lambda page: service_text(view, self._now(), page), called=lambda: [view.name])


def there(services: ServiceUseCases | None) -> ServiceUseCases:
    """Return the services, or refuse where serving is not available."""
    if services is None:
        message = "this engine cannot serve models"
        raise RefusedError(message, fix="use an engine that serves models")
    return services


async def planned_services(services: ServiceUseCases | None, asked: Sequence[ServiceRequest]) -> Sequence[PlanView]:
    """Describe what an apply would do with each service; raises the refusals of an apply."""
    views = []
    for ask in asked:
        all_services = there(services)
        before = all_services.find(ask.key).service if all_services.is_kept(ask.key) else None
        after = await all_services.checked(ask)
        missing = tuple(await all_services.missing(before, after, ask.origin))
        reach = _reach(before, after, cluster=all_services.in_cluster)
        sentences = (
            change_sentence(before, after),
            *reach,
            *all_services.signature_changes(before, after),
            *all_services.room(before, after),
        )
        views.append(PlanView(sentences, (ask.key.name,), missing=missing))
    return views


def _reach(before: ServiceState | None, after: ServiceState, *, cluster: bool) -> list[str]:
    """Describe who can reach the service, where that must be shown.

    It is shown for a service that is new or whose address changes, and at each change of one that others can reach.
    """
    endpoint, port = after.spec.endpoint, after.spec.port
    moves = before is None or (before.spec.endpoint, before.spec.port) != (endpoint, port)
    if not moves and (after == before or is_loopback(endpoint.bind)):
        return []
    return [reach_sentence(after.key.name, endpoint, port or after.port, cluster=cluster)]


async def applied_services(
    services: ServiceUseCases | None, asked: Sequence[ServiceRequest], key: IdempotencyKey | None = None
) -> Sequence[ApplyResultView]:
    """Apply each service, one after the other; with the key of the whole request, each at most once."""
    results = []
    for ask in asked:
        _, word = await there(services).apply(ask, key.part(str(ask.key)) if key is not None else None)
        results.append(ApplyResultView("ModelService", ask.key.namespace, ask.key.name, word))
    return results


def _key(asked: RequestParameters) -> ServiceKey:
    return ServiceKey(asked.namespace, asked.name)
