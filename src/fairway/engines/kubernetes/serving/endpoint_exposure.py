"""Maps a service's endpoint to Kubernetes: the router pod's files, and settings that a cluster does not support. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from fairway.engines.kubernetes.serving import naming
from fairway.spec.endpoint import ServiceEndpoint
from fairway.spec.service import ServiceSpec
from fairway.state.service import ServiceKey, ServiceState
from fairway.state.serving.access import POD_TLS_FOLDER, KeyRule
from fairway.state.serving.route import RoutePlan

Manifest = dict[str, Any]

KEYS_FOLDER = "/fairway/keys"
KEYS_FILE = "keys.json"


@dataclass(frozen=True, slots=True)
class RouterPodSecrets:
    """The Secrets that a router pod reads."""

    keys: str = ""
    """The Secret with the hashes of the API keys; empty: no key is required."""
    tls: str = ""
    """The Secret with certificate and key, of type kubernetes.io/tls; empty: plain HTTP."""

    @property
    def arguments(self) -> list[str]:
        """Additional arguments of the router's command line."""
        return ["--keys", f"{KEYS_FOLDER}/{KEYS_FILE}"] if self.keys else []

    @property
    def volumes(self) -> list[Manifest]:
        """The Secrets as volumes, readable by the router's group only."""
        secrets = (("keys", self.keys), ("tls", self.tls))
        return [{"name": name, "secret": {"secretName": secret, "defaultMode": 0o440}} for name, secret in secrets if secret]

    @property
    def mounts(self) -> list[Manifest]:
        """The mounts of the Secrets. Kubelets update a renewed certificate there, and the router reads it again."""
        secrets = (("keys", self.keys, KEYS_FOLDER), ("tls", self.tls, POD_TLS_FOLDER))
        return [{"name": name, "mountPath": folder, "readOnly": True} for name, secret, folder in secrets if secret]


def keys_name(service: ServiceKey, owner: str, keys: bytes) -> str:
    """Return the name of the Secret with these hashes.

    Other keys give another name, so that the operator needs no right to read or change Secrets.
    """
    return f"{service.name}-keys-{hashlib.sha256(owner.encode() + b' ' + keys).hexdigest()[:8]}"


def keys_secret(service: ServiceKey, name: str, keys: bytes) -> Manifest:
    """Return the Secret with the hashes of a service's API keys."""
    metadata = {"name": name, "namespace": service.namespace, "labels": naming.labels(service, naming.ROUTER)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "immutable": True,
        "stringData": {KEYS_FILE: keys.decode()},
    }


def cluster_plan(plan: RoutePlan, cluster_domain: str) -> RoutePlan:
    """Return the plan for router pods: where the document names hosts, add the Service's names within the cluster."""
    if not plan.hosts:
        return plan
    key = ServiceKey(*plan.service.split("/", 1))
    cluster_hosts = []
    for front in (key.name, f"{key.name}-serving"):
        within = f"{front}.{key.namespace}"
        cluster_hosts += [front, within, f"{within}.svc", naming.host(key, front, cluster_domain)]
    return replace(plan, hosts=(*plan.hosts, *cluster_hosts))


def with_keys(plan: RoutePlan, keys: tuple[KeyRule, ...]) -> RoutePlan:
    """Return the plan to send to routers: with the keys, where it requires them. The plan in the ConfigMap has none."""
    if plan.access is None or not plan.access.keys_required:
        return plan
    return replace(plan, access=replace(plan.access, keys=keys))


def cluster_lacks(service: ServiceState) -> list[str]:
    """Return messages about endpoint settings that a cluster does not support, each with what to write instead."""
    endpoint, usual = service.spec.endpoint, ServiceEndpoint()
    problems = []
    if endpoint.bind != usual.bind:
        problems.append(
            f"bind {endpoint.bind} is for a single machine only: leave it out; here a Service or a gateway leads to the service"
        )
    if endpoint.tls.mode == "self-signed":
        problems.append(
            "tls self-signed is for a single machine only: write tls: {secret: NAME}, a Secret of type kubernetes.io/tls"
        )
    if endpoint.tls.certificate:
        problems.append(
            "tls.certificate is a file of a single machine: write tls: {secret: NAME}, a Secret of type kubernetes.io/tls"
        )
    return problems


def needs_own(spec: ServiceSpec) -> str:
    """Return why requests to such a service must pass Fairway's router; empty where a gateway may send them to replicas."""
    endpoint = spec.endpoint
    if endpoint.keys == "required":
        return "it requires API keys, which only Fairway's own router checks"
    if endpoint.cors is not None:
        return "it accepts requests from other origins (CORS), which only Fairway's own router checks"
    return ""


def no_gateway(spec: ServiceSpec) -> str:
    """Return why no gateway can lead to such a service at all; empty when one can."""
    if spec.endpoint.tls.on:
        return (
            "its own router terminates TLS, but a Gateway API route leads to it over plain HTTP; for TLS at the gateway, leave "
            "out `tls`, name `hosts`, and give the gateway a listener with the certificate (protocol HTTPS, certificateRefs)"
        )
    return ""
