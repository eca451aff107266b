"""The verbs of the Python face about services, written once for both clients: see `verb.py`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from fairway.errors import UnavailableError
from fairway.sdk import document, retry, sending, wire
from fairway.sdk.decoding import decode
from fairway.sdk.verb import Call, Steps, verb
from fairway.spec.service import ModelService
from fairway.views.release import ReleaseView
from fairway.views.service import ServiceList, ServiceView, WhyServiceView

_TRIES = 10
"""How often a cluster is asked whether a service has settled: its API server gives up on each question after a minute."""


class ServiceVerbs:
    """What both clients can do with services."""

    namespace: str
    on_cluster: bool

    @verb
    def serve(
        self,
        what: str | dict[str, Any] | ModelService,
        *,
        name: str = "",
        spec: dict[str, Any] | None = None,
        wait: bool = True,
    ) -> Steps[ServiceView]:
        """Serve a model version (`mnist@champion`, with more of the document's `spec` where wanted) or what a document says.

        Waits until it answers, unless told otherwise. The same name again is a release of what is new.
        """
        wanted = _document(what, name, self.namespace, spec or {})
        if self.on_cluster:
            wanted = yield from sending.with_code(wanted, folder=os.getcwd(), namespace=self.namespace, packed={})
        body = {"document": wanted, "origin": document.make_origin(os.getcwd(), interpreter=sys.executable)}
        made = decode((yield self._service("POST", "", body)), ServiceView)
        if not wait:
            return made
        for _ in range(_TRIES):
            try:
                return decode((yield self._service("GET", f"/{wire.quote(made.name)}/settled")), ServiceView)
            except UnavailableError:
                if not self.on_cluster:
                    raise
        return decode((yield self._service("GET", f"/{wire.quote(made.name)}")), ServiceView)

    @verb
    def services(self) -> Steps[tuple[ServiceView, ...]]:
        """Every service, in order of name."""
        return decode((yield self._service("GET")), ServiceList).services

    @verb
    def service(self, name: str) -> Steps[ServiceView]:
        """One service: its address, its replicas and its load."""
        return decode((yield self._service("GET", f"/{wire.quote(name)}")), ServiceView)

    @verb
    def why_service(self, name: str) -> Steps[WhyServiceView]:
        """Which rule set the number of replicas, and what would change it."""
        return decode((yield self._service("GET", f"/{wire.quote(name)}/why")), WhyServiceView)

    @verb
    def scale(self, name: str, floor: int) -> Steps[ServiceView]:
        """Never fewer replicas than this; 0 takes the floor away."""
        return decode((yield self._service("POST", f"/{wire.quote(name)}/scale", {"floor": floor})), ServiceView)

    @verb
    def release(self, name: str, model: str, *, strategy: str = "", allow_signature_change: bool = False) -> Steps[ReleaseView]:
        """Release another version of the model; one whose inputs or outputs break clients only with consent."""
        body: dict[str, Any] = {"model": model, "strategy": strategy}
        if allow_signature_change:
            body["allow_signature_change"] = True
        return decode((yield self._service("POST", f"/{wire.quote(name)}/rollout/start", body)), ReleaseView)

    @verb
    def rollout(self, name: str) -> Steps[ReleaseView]:
        """Where the release is, and those before."""
        return decode((yield self._service("GET", f"/{wire.quote(name)}/rollout")), ReleaseView)

    @verb
    def undo(self, name: str) -> Steps[ReleaseView]:
        """Back to the version before."""
        return decode((yield self._service("POST", f"/{wire.quote(name)}/rollout/undo", {})), ReleaseView)

    @verb
    def delete_service(self, name: str) -> Steps[None]:
        """Take a service away; what it was asked is finished first."""
        yield self._service("DELETE", f"/{wire.quote(name)}")

    def _service(self, method: str, tail: str = "", body: dict[str, Any] | None = None) -> Call:
        data = b"" if body is None else json.dumps(body).encode()
        if method == "GET":
            return Call(method, f"/v1/services{tail}", {"namespace": self.namespace}, data)
        # Each is done once: it carries a key, or changes nothing the second time.
        asked = {"namespace": self.namespace, retry.KEY: retry.make_key()}
        return Call(method, f"/v1/services{tail}", dict(asked), data, once=True)


def _document(what: str | dict[str, Any] | ModelService, name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    if isinstance(what, ModelService):
        return _dumped(what)
    if isinstance(what, dict):
        return what
    metadata = {"name": name or what.partition("@")[0].rpartition("/")[2], "namespace": namespace}
    return _dumped(ModelService.model_validate({"metadata": metadata, "spec": {"model": what, **spec}}))


def _dumped(service: ModelService) -> dict[str, Any]:
    """What was said, with the kind, which need not be said in Python."""
    head = {"apiVersion": service.api_version, "kind": service.kind}
    return {**head, **service.model_dump(mode="json", by_alias=True, exclude_unset=True)}
