"""Certificates for the pods that the operator asks, and where agents find its authority."""

from __future__ import annotations

import asyncio
import logging

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fairway.api.given import refusal
from fairway.engines.kubernetes.authority import POD_RENEW, Authority
from fairway.engines.kubernetes.client import kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.install.agent import AUTHORITY, AUTHORITY_FILE
from fairway.engines.kubernetes.proof import Proof
from fairway.errors import FairwayError
from fairway.runtime.secured.leaf import PATH

MANAGER = "fairway-operator"
AGAIN = 5.0
"""Seconds until the authority is written again where that failed."""

log = logging.getLogger("fairway.operator")


class Leaves:
    """Answers pods: each gets a certificate with its own name, and no other."""

    def __init__(self, proof: Proof, authority: Authority) -> None:
        self._proof = proof
        self._authority = authority

    async def leaf(self, request: Request) -> Response:
        """A new key, and a certificate. Only over TLS: the key is in the answer."""
        if request.url.scheme != "https":
            return Response("ask by https: the answer has a key in it\n", 403)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        try:
            name = await self._proof.name_of(token if scheme == "Bearer" else "")
        except FairwayError as error:
            return refusal(error)
        made = self._authority.issue(name)
        pem = (made.key + made.certificate).decode()
        return JSONResponse({"pem": pem, "renew_after": POD_RENEW}, headers={"Cache-Control": "no-store"})

    def routes(self) -> list[Route]:
        """Where it answers."""
        return [Route(PATH, self.leaf, methods=["POST"])]


async def publish(client: Client, namespace: str, authority: Authority) -> None:
    """Write the authority where the pods of agents have it mounted; tried until it is there."""
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": AUTHORITY, "namespace": namespace}}
    body = {**head, "data": {AUTHORITY_FILE: authority.certificates}}
    while True:
        try:
            await client.apply(kinds.CONFIG_MAPS, body, manager=MANAGER)
            return
        except FairwayError as error:
            log.warning("the authority for agents could not be written to ConfigMap %s/%s: %s", namespace, AUTHORITY, error)
        await asyncio.sleep(AGAIN)
