"""Callers of the record: their authentication by the API server, and what it authorizes them to do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from fairway.app.idempotency import IdempotencyKey
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.api_path import ApiResource
from fairway.engines.kubernetes.identity.caller import CALLER, ClusterCaller
from fairway.errors import DeniedError

PATIENCE = 45.0
"""Timeout in seconds for a change to take effect in the cluster; the API server itself waits for sixty."""
MANAGER = "fairway-record"
"""Field manager of what callers change in objects."""
REVIEWS = ApiResource(dict, "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
FRONT_NAMESPACE, FRONT = "kube-system", "extension-apiserver-authentication"
"""The ConfigMap in which an API server publishes how it authenticates itself to extension servers."""


_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """How the API server authenticates itself when it proxies a request.

    It has a certificate of an authority, with one of the names, and sends headers that name the caller.
    """

    authority: str
    """One or more certificates, in PEM."""
    names: tuple[str, ...] = ()
    """The allowed common names of its own certificate; empty: any."""
    user: tuple[str, ...] = ("x-remote-user",)
    group: tuple[str, ...] = ("x-remote-group",)
    extra: tuple[str, ...] = ("x-remote-extra-",)

    def accepts(self, certificate: Mapping[str, Any]) -> bool:
        """Whether this certificate is the API server's. That it is signed by the right authority was verified before."""
        names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
        return not self.names or any(name in self.names for name in names)

    def caller(self, headers: Sequence[tuple[bytes, bytes]]) -> ClusterCaller | None:
        """Return the caller that the headers name; None when they name none."""
        received = [(name.decode("latin-1").lower(), value.decode("utf-8", "replace")) for name, value in headers]
        user = next((value for header in self.user for name, value in received if name == header and value), "")
        if not user:
            return None
        extra: dict[str, tuple[str, ...]] = {}
        for name, value in received:
            prefix = next((prefix for prefix in self.extra if name.startswith(prefix)), "")
            if prefix:
                key = name.removeprefix(prefix)
                extra[key] = (*extra.get(key, ()), value)
        return ClusterCaller(user, tuple(value for name, value in received if name in self.group), extra)


def sent_code(path: str, kept: str) -> str:
    """Return the code reference for an object: code that was sent with this document, or else its previous code."""
    if path.startswith(annotation.BLOB):
        return path
    return f"{annotation.BLOB}{kept}" if _DIGEST.fullmatch(kept) else kept


def callers_key(key: IdempotencyKey | None) -> IdempotencyKey | None:
    """Return the request's key with the authenticated caller, whatever user the request names."""
    return replace(key, user=CALLER.get().user) if key is not None else None


async def read_front(client: ApiClient) -> FrontProxy:
    """Read how this cluster's API server authenticates itself."""
    config = await client.get(api_resource.CONFIG_MAPS, FRONT, FRONT_NAMESPACE)
    data = config.data or {}

    def listed(key: str) -> tuple[str, ...]:
        return msgspec.json.decode(data.get(key) or "[]", type=tuple[str, ...])

    def headers(key: str, usual: str) -> tuple[str, ...]:
        return tuple(name.lower() for name in listed(key)) or (usual,)

    return FrontProxy(
        data.get("requestheader-client-ca-file", ""),
        listed("requestheader-allowed-names"),
        headers("requestheader-username-headers", "x-remote-user"),
        headers("requestheader-group-headers", "x-remote-group"),
        headers("requestheader-extra-headers-prefix", "x-remote-extra-"),
    )


async def review(
    client: ApiClient, caller: ClusterCaller, verb: str, resource: ApiResource[Any], namespace: str, name: str = ""
) -> None:
    """Raise `DeniedError`, in the API server's words, if it would not allow the caller to do this itself."""
    attributes = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace, "name": name}
    body = {
        "apiVersion": REVIEWS.api_version,
        "kind": REVIEWS.kind,
        "metadata": {},
        "spec": {
            "user": caller.user,
            "groups": list(caller.groups),
            "extra": {key: list(values) for key, values in caller.extra.items()},
            "resourceAttributes": {key: value for key, value in attributes.items() if value},
        },
    }
    status = (await client.create(REVIEWS, body)).get("status", {})
    if status.get("allowed"):
        return
    where = f' in the namespace "{namespace}"' if resource.namespaced else " at the cluster scope"
    message = (
        f"{resource.plural}.{resource.group} is forbidden: User {caller.user!r} cannot {verb} resource"
        f' "{resource.plural}" in API group "{resource.group}"{where}'
    ).replace("'", '"')
    reason = status.get("reason") or ""
    fix = f"ask the cluster administrator for this permission (`kubectl auth can-i {verb} {resource.plural}` shows what you have)"
    raise DeniedError(f"{message}: {reason}" if reason else message, fix=fix)
