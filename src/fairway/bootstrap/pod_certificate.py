"""Certificates for pods to which the operator connects, and the publication of its authority for agents."""

from __future__ import annotations

import asyncio
import logging

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fairway.api.pods.download import refusal
from fairway.engines.kubernetes.certificate_authority import POD_RENEW, CertificateAuthority
from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.identity.pod_authenticator import PodAuthenticator
from fairway.engines.kubernetes.install.node_agent import AUTHORITY, AUTHORITY_FILE
from fairway.errors import FairwayError
from fairway.runtime.secured.pod_certificate import PATH

MANAGER = "fairway-operator"
AGAIN = 5.0
"""Delay before writing the authority is retried, in seconds."""

log = logging.getLogger("fairway.operator")


class PodCertificateRoutes:
    """Issues certificates to pods: each gets a certificate with its own name, and no other."""

    def __init__(self, proof: PodAuthenticator, authority: CertificateAuthority) -> None:
        self._proof = proof
        self._authority = authority

    async def leaf(self, request: Request) -> Response:
        """Return a new key and certificate. Only over TLS: the response contains the key."""
        if request.url.scheme != "https":
            return Response("use https: the response contains a key\n", 403)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        try:
            name = await self._proof.name_of(token if scheme == "Bearer" else "")
        except FairwayError as error:
            return refusal(error)
        issued = self._authority.issue(name)
        pem = (issued.key + issued.certificate).decode()
        return JSONResponse({"pem": pem, "renew_after": POD_RENEW}, headers={"Cache-Control": "no-store"})

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route(PATH, self.leaf, methods=["POST"])]


async def publish(client: ApiClient, namespace: str, authority: CertificateAuthority) -> None:
    """Write the authority to the ConfigMap that the agents' pods mount; retry until it succeeds."""
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": AUTHORITY, "namespace": namespace}}
    body = {**head, "data": {AUTHORITY_FILE: authority.certificates}}
    while True:
        try:
            await client.apply(api_resource.CONFIG_MAPS, body, manager=MANAGER)
            return
        except FairwayError as error:
            log.warning("the authority for agents could not be written to ConfigMap %s/%s: %s", namespace, AUTHORITY, error)
        await asyncio.sleep(AGAIN)
