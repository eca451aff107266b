"""The client methods for services, written once for both clients: see `call.py`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from fairway.errors import UnavailableError
from fairway.sdk.method.call import ApiCall, Steps, client_method
from fairway.sdk.method.reply import decode
from fairway.sdk.submission import code_upload, document
from fairway.sdk.transport import http, retry
from fairway.spec.service import ModelService
from fairway.views.serving.release import ReleaseView
from fairway.views.serving.service import ServiceExplanationView, ServiceList, ServiceView

_TRIES = 10
"""Number of requests to a cluster whether a service has settled: its API server ends each of them after a minute."""


class ServiceMethods:
    """Methods of both clients for services."""

    namespace: str
    on_cluster: bool

    @client_method
    def serve(
        self,
        what: str | dict[str, Any] | ModelService,
        *,
        name: str = "",
        spec: dict[str, Any] | None = None,
        wait: bool = True,
    ) -> Steps[ServiceView]:
        """Serve a model version (`mnist@champion`, with further fields of the document's `spec`) or the service of a document.

        Waits until the service answers, unless `wait` is False. The same name again starts a release of what has changed.
        """
        service_document = _document(what, name, self.namespace, spec or {})
        if self.on_cluster:
            service_document = yield from code_upload.with_code(
                service_document, folder=os.getcwd(), namespace=self.namespace, packed={}
            )
        body = {"document": service_document, "origin": document.make_origin(os.getcwd(), interpreter=sys.executable)}
        service = decode((yield self._service("POST", "", body)), ServiceView)
        if not wait:
            return service
        for _ in range(_TRIES):
            try:
                return decode((yield self._service("GET", f"/{http.quote(service.name)}/settled")), ServiceView)
            except UnavailableError:
                if not self.on_cluster:
                    raise
        return decode((yield self._service("GET", f"/{http.quote(service.name)}")), ServiceView)

    @client_method
    def services(self) -> Steps[tuple[ServiceView, ...]]:
        """Return every service, in order of name."""
        return decode((yield self._service("GET")), ServiceList).services

    @client_method
    def service(self, name: str) -> Steps[ServiceView]:
        """Return a service: its URL, its replicas and its load."""
        return decode((yield self._service("GET", f"/{http.quote(name)}")), ServiceView)

    @client_method
    def why_service(self, name: str) -> Steps[ServiceExplanationView]:
        """Return the rule that set the number of replicas, and what would change it."""
        return decode((yield self._service("GET", f"/{http.quote(name)}/why")), ServiceExplanationView)

    @client_method
    def scale(self, name: str, floor: int) -> Steps[ServiceView]:
        """Set the minimum number of replicas; 0 removes it."""
        return decode((yield self._service("POST", f"/{http.quote(name)}/scale", {"floor": floor})), ServiceView)

    @client_method
    def release(self, name: str, model: str, *, strategy: str = "", allow_signature_change: bool = False) -> Steps[ReleaseView]:
        """Start a release of another version of the model; an incompatible signature needs `allow_signature_change`."""
        body: dict[str, Any] = {"model": model, "strategy": strategy}
        if allow_signature_change:
            body["allow_signature_change"] = True
        return decode((yield self._service("POST", f"/{http.quote(name)}/rollout/start", body)), ReleaseView)

    @client_method
    def rollout(self, name: str) -> Steps[ReleaseView]:
        """Return the state of the current release, and the releases before."""
        return decode((yield self._service("GET", f"/{http.quote(name)}/rollout")), ReleaseView)

    @client_method
    def undo(self, name: str) -> Steps[ReleaseView]:
        """Roll back to the previous version."""
        return decode((yield self._service("POST", f"/{http.quote(name)}/rollout/undo", {})), ReleaseView)

    @client_method
    def delete_service(self, name: str) -> Steps[None]:
        """Delete a service; requests in progress are finished first."""
        yield self._service("DELETE", f"/{http.quote(name)}")

    def _service(self, method: str, tail: str = "", body: dict[str, Any] | None = None) -> ApiCall:
        data = b"" if body is None else json.dumps(body).encode()
        if method == "GET":
            return ApiCall(method, f"/v1/services{tail}", {"namespace": self.namespace}, data)
        # Each takes effect once: it carries an idempotency key, or changes nothing the second time.
        full_query = {"namespace": self.namespace, retry.KEY: retry.make_key()}
        return ApiCall(method, f"/v1/services{tail}", dict(full_query), data, once=True)


def _document(what: str | dict[str, Any] | ModelService, name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    if isinstance(what, ModelService):
        return _dumped(what)
    if isinstance(what, dict):
        return what
    metadata = {"name": name or what.partition("@")[0].rpartition("/")[2], "namespace": namespace}
    return _dumped(ModelService.model_validate({"metadata": metadata, "spec": {"model": what, **spec}}))


def _dumped(service: ModelService) -> dict[str, Any]:
    """Return the fields that were set, with API version and kind, which Python callers may omit."""
    head = {"apiVersion": service.api_version, "kind": service.kind}
    return {**head, **service.model_dump(mode="json", by_alias=True, exclude_unset=True)}
