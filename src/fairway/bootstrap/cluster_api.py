"""The operator's API as an API of the cluster: a server that accepts only the API server, and its registration."""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
from pathlib import Path
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fairway.api.aggregated_api import make_aggregated
from fairway.api.asgi import DaemonInfo, make_api
from fairway.app.application import Application
from fairway.app.loop.fault_register import FaultRegister
from fairway.app.port.port import Clock
from fairway.bootstrap.server import EmbeddedServer, config
from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.api_path import ApiResource
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.controller import KeyController
from fairway.engines.kubernetes.install.api_service import VARIABLE
from fairway.engines.kubernetes.objects import CustomObject
from fairway.engines.kubernetes.operator.gang import GangCreator
from fairway.engines.kubernetes.operator.installation import InstallationSettings
from fairway.engines.kubernetes.record import resource, self_signed_certificate
from fairway.engines.kubernetes.record.access_right import AccessReviewer
from fairway.engines.kubernetes.record.caller_application import CallerApplication
from fairway.engines.kubernetes.record.code_upload import CodeUploads
from fairway.engines.kubernetes.record.front_proxy import FrontProxy, read_front
from fairway.engines.kubernetes.record.queue import QueueReconciler
from fairway.engines.kubernetes.record.upload import UploadReceiver
from fairway.registry.remote_blob import open_blobs
from fairway.settings import environment
from fairway.version import VERSION

log = logging.getLogger("fairway.operator")

API_SERVICES = ApiResource(dict, "apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
NAME = f"{resource.VERSION}.{resource.GROUP}"
MANAGER = "fairway-operator"
SUBJECT = "companion:record"


class ClusterApi:
    """The server, and the queues that it shows. `open` it once the application exists; `close` it before the application ends."""

    def __init__(
        self, reading: ApiClient, acting: ApiClient, clock: Clock, installation: InstallationSettings, home: Path
    ) -> None:
        self._queues: Informer[CustomObject] = Informer(reading, api_resource.JOB_QUEUES)
        self._services: Informer[CustomObject] = Informer(reading, api_resource.MODEL_SERVICES)
        self.mirrors = (self._queues, self._services)
        self._client = acting
        self._clock = clock
        self._installation = installation
        self._home = home
        self._follower: KeyController | None = None
        self._server: EmbeddedServer | None = None
        self._listening: socket.socket | None = None
        self._announcing: asyncio.Task[None] | None = None

    async def open(
        self, application: Application, objects: Informer[CustomObject], gangs: GangCreator, rights: AccessReviewer
    ) -> None:
        """Start serving, and register the server's certificate with the API server."""
        faults, queues = application.loop.faults, QueueReconciler(self._client, application, self._queues)
        self._follower = follower = KeyController(
            "JobQueue",
            queues.look,
            hands=1,
            failed=lambda key, error: faults.fail(f"queue:{key}", "follow object", error),
            succeeded=lambda key: faults.clear(f"queue:{key}", "follow object"),
        )
        self._queues.listen(lambda key, _before, _now: follower.add(key))
        port = environment().get(VARIABLE, "")
        if not port:
            return
        front = await read_front(self._client)
        if not front.authority:
            log.warning("the API server has no front proxy (--requestheader-client-ca-file): `fairway use` does not work here")
            return
        server_certificate = self_signed_certificate.make(
            [f"{resource.SERVICE}.{self._installation.namespace}.svc"], self._clock.now()
        )
        blobs = open_blobs(self._home / "blobs", "")
        codes, uploads = CodeUploads(blobs, self._home / "received"), UploadReceiver(blobs, self._clock)
        await uploads.tidy()
        callers = CallerApplication(application, self._client, objects, self._services, gangs, rights)
        about = DaemonInfo(VERSION, 0, "", image=self._installation.image)
        app = make_aggregated(make_api(callers, about), codes, uploads, rights, lambda: front, VERSION)
        self._server = EmbeddedServer(config(app, _only(front)))
        # The API server connects from any node.
        self._listening = socket.create_server(("", int(port)), backlog=128)
        self._listening.setblocking(False)
        await self._server.open(self._listening, self_signed_certificate.server_context(server_certificate, front.authority))
        self._announcing = asyncio.create_task(self._announce(server_certificate.certificate, faults))

    async def run(self) -> None:
        """Keep the queues in sync with their objects."""
        assert self._follower is not None
        await self._follower.run()

    async def _announce(self, authority: bytes, faults: FaultRegister) -> None:
        """Register the certificate with the API server, and retry until it succeeds: `fairway use` needs it."""
        announced = False
        while not announced:
            with faults.contain(SUBJECT, "announce certificate"):
                await self._tell(authority)
                announced = True
            for fault in faults.of(SUBJECT):
                await asyncio.sleep(max(0.0, fault.retry_at - self._clock.now()))

    async def close(self) -> None:
        """Stop, after requests in progress have finished."""
        if self._announcing is not None:
            self._announcing.cancel()
            await asyncio.gather(self._announcing, return_exceptions=True)
        if self._server is not None and self._listening is not None:
            await self._server.close(self._listening)

    async def _tell(self, authority: bytes) -> None:
        """Write only the certificate; all other fields belong to the installation."""
        group, version = resource.GROUP, resource.VERSION
        body: dict[str, Any] = {
            "apiVersion": API_SERVICES.api_version,
            "kind": API_SERVICES.kind,
            "metadata": {"name": NAME},
            "spec": {
                "caBundle": base64.b64encode(authority).decode(),
                # Required in every write; the same values as in the installation.
                **{"group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 15},
            },
        }
        await self._client.apply(API_SERVICES, body, manager=MANAGER)


def _only(front: FrontProxy) -> type[HttpToolsProtocol]:
    """Return an HTTP protocol for the API server only: a client whose certificate has another name is disconnected."""

    class FrontProtocol(HttpToolsProtocol):
        known = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.known = front.accepts(transport.get_extra_info("peercert") or {})
            if not self.known:
                log.warning("a connection was rejected: its client certificate is not the API server's")
                transport.close()

        def data_received(self, data: bytes) -> None:
            if self.known:
                super().data_received(data)

    return FrontProtocol
