"""Builds the Kubernetes objects of a service. Pure: the same service gives the same objects, so that nothing is written twice."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.identity.pod_authenticator import projected
from fairway.engines.kubernetes.operator.installation import FrameworkRuntime, InstallationSettings
from fairway.engines.kubernetes.operator.manifest import gpu
from fairway.engines.kubernetes.serving import naming
from fairway.engines.kubernetes.serving.endpoint_exposure import RouterPodSecrets
from fairway.errors import RefusedError
from fairway.launch.task_launch import render
from fairway.launch.topology import GangMember, GangTopology, TaskFolders
from fairway.plan.service.replica import ROLE, SAMPLES_LABEL, new_replica, ready_path, replica_run
from fairway.plan.task_expansion import need_of
from fairway.runtime.pod.operator_tls import AUTHORITY
from fairway.runtime.secured.pod_certificate import TOKEN_FOLDER
from fairway.spec.service import ServiceProtocol, ServiceSpec
from fairway.state.job import JobState
from fairway.state.service import ServiceKey, ServiceRevision, ServiceState
from fairway.state.serving.route import outcome_token
from fairway.state.task import TaskNeed
from fairway.units import quantity

Manifest = dict[str, Any]

MODEL = "/fairway/model"
CODE = "/fairway/code"
WORK = "/fairway/run"
SAMPLES = f"{WORK}/requests"
PLAN_FOLDER = "/fairway/plan"
PLAN_FILE = "plan.json"
PYTHON = "python3"
"""The interpreter of Fairway's own image."""
GIVEN_TOKEN = "FAIRWAY_GIVEN_TOKEN"
POD_NAME = "FAIRWAY_POD"
ROUTER_TOKEN = "FAIRWAY_ROUTER_TOKEN"
PROOF = "operator"
"""The volume with a pod's token."""
SECRETS = "fairway-secrets"
LINGER = 5
"""Seconds for which a pod that is being deleted goes on serving, until every router has learnt of it."""
KILL_MARGIN = 10
SENDING = 30
"""Additional seconds for a pod that samples requests, in which the last samples are uploaded."""
SAMPLES_ROOM = "1Gi"
"""Volume size for samples waiting in a pod.

The server keeps 256 MB plus what it is writing: pods must never be evicted for it.
"""
DRAIN = 60
"""Seconds that a router gets to finish requests in progress."""
AWAY = 30
"""Seconds after which pods of an unreachable node are replaced."""
USER = 65532
"""The user id of Fairway's own processes in pods: it owns no files."""
SCRAPED = {
    "prometheus.io/scrape": "true",
    "prometheus.io/port": str(naming.ROUTER_PORT),
    "prometheus.io/path": "/fairway/metrics",
}
"""Annotations of router pods, where Prometheus finds the metrics of the whole service. A PodMonitor uses the port `http`."""
DIGEST = f"{annotation.DOMAIN}/digest"
"""Annotation of a Deployment: the digest of its spec, so that an unchanged one is not written."""


@dataclass(frozen=True, slots=True)
class PodSurroundings:
    """The surroundings of a service's pods on the cluster."""

    installation: InstallationSettings
    endpoint: str
    """The operator's endpoint, where models are downloaded."""
    secret: str
    """The Secret with the service's tokens."""
    authority: str = ""
    """The operator's certificate authority, in PEM; empty where there is no TLS."""

    @property
    def trust(self) -> list[Manifest]:
        """The environment variable by which programs in a pod verify the operator."""
        return [{"name": AUTHORITY, "value": self.authority}] if self.authority else []

    @property
    def token(self) -> list[Manifest]:
        """The volume with the token that authenticates a pod to the operator, where TLS is used."""
        return [{"name": PROOF, **projected()}] if self.authority else []

    @property
    def token_mount(self) -> list[Manifest]:
        """The mount of that volume."""
        return [{"name": PROOF, "mountPath": TOKEN_FOLDER, "readOnly": True}] if self.authority else []


def deployment(service: ServiceState, revision: ServiceRevision, count: int, around: PodSurroundings) -> Manifest:
    """Return the Deployment of a revision with that many replicas. Raises `RefusedError` when no image is known for it."""
    labels = naming.replica_labels(service.key, revision.number)
    job = _run(service, revision)
    annotations = {
        annotation.QUEUE: revision.spec.queue,
        annotation.PRIORITY: str(revision.spec.priority),
        annotation.SERIES: job.series,
        **_node_marks(job),
    }
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": _pod(service, revision, around)}
    spec = {
        "replicas": count,
        "selector": {"matchLabels": labels},
        # Only the installation's own image changes within a revision: a pod is removed when its successor is ready.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "revisionHistoryLimit": 1,
        "template": _with_gpus(template, job, around.installation),
    }
    head = _head("apps/v1", "Deployment", service.key, naming.revision_name(service.key, revision.number), labels)
    return _digested({**head, "spec": spec})


def revision_service(service: ServiceKey, revision: int, spec: ServiceSpec | None = None) -> Manifest:
    """Return the Service of a revision, to which a gateway sends its share of the requests.

    A model's Service has a second port for gRPC calls: a gateway chooses the protocol of a port by its `appProtocol`.
    """
    labels = naming.replica_labels(service, revision)
    ports: list[Manifest] = [{"name": "http", "port": naming.USUAL_PORT, "targetPort": naming.REPLICA_PORT}]
    if spec is not None and spec.protocol is not ServiceProtocol.HTTP:
        ports[0]["appProtocol"] = naming.H2C
    elif spec is not None and spec.model:
        port = {"name": "grpc", "port": naming.GRPC_PORT, "targetPort": naming.REPLICA_PORT, "appProtocol": naming.H2C}
        ports.append(port)
    head = _head("v1", "Service", service, naming.revision_name(service, revision), labels)
    return {**head, "spec": {"selector": labels, "ports": ports}}


def front_service(service: ServiceKey, name: str, port: int) -> Manifest:
    """Return the Service that clients use: it selects the router."""
    ports = [{"name": "http", "port": port, "targetPort": naming.ROUTER_PORT}]
    head = _head("v1", "Service", service, name, naming.labels(service, naming.ROUTER))
    return {**head, "spec": {"selector": naming.labels(service, naming.ROUTER), "ports": ports}}


def secret(service: ServiceKey, name: str, given: str, control: str) -> Manifest:
    """Return the Secret with the tokens to download the model, to control the router, and to report outcomes."""
    head = _head("v1", "Secret", service, name, naming.labels(service))
    return {**head, "stringData": {"token": given, "router": control, "outcome": outcome_token(control)}}


def plan_map(service: ServiceKey, plan: bytes) -> Manifest:
    """Return the ConfigMap with the plan with which a router starts, even while no operator runs."""
    head = _head("v1", "ConfigMap", service, naming.router_name(service), naming.labels(service, naming.ROUTER))
    return {**head, "data": {PLAN_FILE: plan.decode()}}


def router(service: ServiceKey, count: int, around: PodSurroundings, exposure: RouterPodSecrets = RouterPodSecrets()) -> Manifest:
    """Return the Deployment of the router."""
    installation = around.installation
    labels = naming.labels(service, naming.ROUTER)
    control = naming.CONTROL_TLS if around.authority else "control"
    ports = {"http": naming.ROUTER_PORT, control: naming.CONTROL_PORT}
    container = {
        "name": "router",
        "image": installation.image,
        "command": [
            *(PYTHON, "-m", "fairway.serving.router.pod", "--plan", f"{PLAN_FOLDER}/{PLAN_FILE}"),
            *("--port", str(naming.ROUTER_PORT), "--control", str(naming.CONTROL_PORT)),
            *(("--operator", around.endpoint) if around.authority else ()),
            *exposure.arguments,
        ],
        "env": [_from_secret(around.secret, ROUTER_TOKEN, "router"), *around.trust],
        "securityContext": {**_no_rights(), "readOnlyRootFilesystem": True},
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "readinessProbe": {"tcpSocket": {"port": naming.ROUTER_PORT}, "periodSeconds": 2},
        "lifecycle": {"preStop": {"sleep": {"seconds": LINGER}}},
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "volumeMounts": [{"name": "plan", "mountPath": PLAN_FOLDER, "readOnly": True}, *around.token_mount, *exposure.mounts],
    }
    pod = {
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": LINGER + DRAIN,
        **({"schedulerName": installation.scheduler} if installation.scheduler else {}),
        "tolerations": _soon_away(),
        "affinity": _apart(labels),
        "securityContext": _unprivileged(),
        "containers": [container],
        "volumes": [{"name": "plan", "configMap": {"name": naming.router_name(service)}}, *around.token, *exposure.volumes],
    }
    spec = {
        "replicas": count,
        "selector": {"matchLabels": labels},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "revisionHistoryLimit": 1,
        "template": {"metadata": {"labels": labels, "annotations": SCRAPED}, "spec": pod},
    }
    return _digested({**_head("apps/v1", "Deployment", service, naming.router_name(service), labels), "spec": spec})


def owned(body: Manifest, owner: Manifest | None) -> Manifest:
    """Return the object with an owner reference."""
    return {**body, "metadata": {**body["metadata"], "ownerReferences": [owner]}} if owner else body


def runtime_of(revision: ServiceRevision, installation: InstallationSettings) -> FrameworkRuntime:
    """Return the image of a revision's replicas: the document's, the installation's for the format, or Fairway's own for ONNX."""
    image = revision.spec.environment.image
    if image:
        return FrameworkRuntime(image)
    kind = revision.model_format if revision.model else "command"
    runtime = installation.runtimes.get(f"serve-{kind}")
    if runtime is not None:
        return runtime
    if kind == "onnx":
        return FrameworkRuntime(installation.image, PYTHON)
    message = f"r{revision.number} names no image, and the cluster has none that serves {kind}"
    fix = f"set environment.image, or have an administrator add `runtimes: {{serve-{kind}: {{image: ...}}}}` with Fairway in it"
    raise RefusedError(message, fix=fix)


def _run(service: ServiceState, revision: ServiceRevision, python: str = PYTHON) -> JobState:
    return replica_run(service, revision, new_replica(service, revision.number, 0, 0.0), python)


def code_of(revision: ServiceRevision) -> str:
    """Return the digest of the code uploaded with a command; empty when there is none.

    Raises `RefusedError` for anything else.
    """
    code = revision.origin.code_digest
    if not revision.spec.command or not code:
        return ""
    if not code.startswith(annotation.BLOB):
        message = f"the code of r{revision.number} is {code!r}, but a service can only use code that was uploaded with it"
        raise RefusedError(message, fix="upload it with `fairway apply`, or put the code into the image")
    return code.removeprefix(annotation.BLOB)


def _pod(service: ServiceState, revision: ServiceRevision, around: PodSurroundings) -> Manifest:
    installation = around.installation
    runtime = runtime_of(revision, installation)
    job = _run(service, revision, runtime.python)
    spec, role, samples = revision.spec, job.spec.roles[ROLE], SAMPLES_LABEL in job.labels
    volumes: list[Manifest] = [{"name": "work", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}]
    volumes += [{"name": "model", "emptyDir": {}}] if revision.model else []
    volumes += [{"name": "code", "emptyDir": {}}] if code_of(revision) else []
    volumes += [{"name": naming.SAMPLES, "emptyDir": {"sizeLimit": SAMPLES_ROOM}}] if samples else []
    reports_load = bool(around.authority) and not spec.command  # Fairway's own server reports how busy it is.
    volumes += around.token if reports_load else []
    sidecars = [*([_reporter(around)] if reports_load else []), *([_sender(around)] if samples else [])]
    grace = int(quantity.seconds(spec.grace)) + LINGER + KILL_MARGIN + (SENDING if samples else 0)
    return {
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": grace,
        "tolerations": [*_soon_away(), *_tolerations(role.placement.tolerations)],
        **({"schedulerName": installation.scheduler} if installation.scheduler else {}),
        **({"nodeSelector": dict(role.placement.labels)} if role.placement.labels else {}),
        "securityContext": _unprivileged() if runtime.image == installation.image else _usual(),
        "initContainers": [*_fetchers(revision, around), *sidecars],
        "containers": [_container(job, revision, runtime)],
        "volumes": [*volumes, *runtime.volumes],
    }


def _container(job: JobState, revision: ServiceRevision, runtime: FrameworkRuntime) -> Manifest:
    spec, role = revision.spec, job.spec.roles[ROLE]
    member = GangMember(ROLE, 0, "127.0.0.1", tuple(range(naming.REPLICA_PORT, naming.REPLICA_PORT + 3)))
    folders = TaskFolders(
        work=CODE,
        attempt=WORK,
        shared=WORK,
        checkpoints=f"{WORK}/checkpoints",
        tensorboard=f"{WORK}/tensorboard",
        outputs={},
        data={"model": MODEL} if revision.model else {},
        runtime="",
    )
    # The template is the same for all replicas, so that names within it name the revision.
    launch = render(job.series, job.spec, GangTopology(job.series, job.key.namespace, (member,)), member, folders)
    process = launch.processes[0]
    env: list[Manifest] = [{"name": name, "value": value} for name, value in {**runtime.env, **process.env}.items()]
    env += [{"name": name, "valueFrom": {"secretKeyRef": {"name": SECRETS, "key": name}}} for name in spec.secrets]
    need = need_of(role, 0.0)
    mounts: list[Manifest] = [{"name": "work", "mountPath": WORK}, {"name": "shm", "mountPath": "/dev/shm"}]
    mounts += [{"name": "model", "mountPath": MODEL, "readOnly": True}] if revision.model else []
    mounts += [{"name": "code", "mountPath": CODE}] if code_of(revision) else []
    mounts += [_samples_mount()] if SAMPLES_LABEL in job.labels else []
    return {
        # The same container name as in runs, so that exit states and logs are read the same way.
        "name": "task",
        "image": runtime.image,
        "command": [*process.argv, *([] if spec.command else ["--host", "0.0.0.0"])],
        "env": env,
        **({"workingDir": CODE} if code_of(revision) else {}),
        "securityContext": _no_rights(),
        "ports": [{"name": "http", "containerPort": naming.REPLICA_PORT}],
        "readinessProbe": {
            **_probe(spec),
            "periodSeconds": 1,
            "timeoutSeconds": 3,
            "failureThreshold": 3,
        },
        # Its Service and the routers learn that the pod ends before its process does, whatever ends it.
        "lifecycle": {"preStop": {"sleep": {"seconds": LINGER}}},
        "resources": _resources(need, role.limits.cpu, role.limits.memory),
        "volumeMounts": [*mounts, *runtime.mounts],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _probe(spec: ServiceSpec) -> Manifest:
    """Return the readiness probe. The kubelet supports HTTP/1.1 and gRPC; for HTTP/2 it only opens a connection."""
    if spec.protocol is ServiceProtocol.GRPC:
        return {"grpc": {"port": naming.REPLICA_PORT}}
    if spec.protocol is ServiceProtocol.HTTP2:
        return {"tcpSocket": {"port": naming.REPLICA_PORT}}
    return {"httpGet": {"path": ready_path(spec), "port": naming.REPLICA_PORT}}


def _fetchers(revision: ServiceRevision, around: PodSurroundings) -> list[Manifest]:
    """Return the init containers that download the model or the code."""
    code = code_of(revision)
    downloads = [("model", f"models/{revision.model}", MODEL)] if revision.model else []
    downloads += [("code", f"code?digest={code}", CODE)] if code else []
    return [
        {
            "name": name,
            "image": around.installation.image,
            "command": [
                *(PYTHON, "-m", "fairway.runtime.pod.fetch"),
                *("--url", f"{around.endpoint}/v1/given/{what}", "--into", folder),
            ],
            "env": [_from_secret(around.secret, GIVEN_TOKEN, "token"), *around.trust],
            "securityContext": _no_rights(),
            "volumeMounts": [{"name": name, "mountPath": folder}],
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
        for name, what, folder in downloads
    ]


def _sender(around: PodSurroundings) -> Manifest:
    """Return the sidecar that uploads samples to the operator. It starts before the replica and is stopped after it."""
    return {
        "name": naming.SAMPLES,
        "image": around.installation.image,
        "restartPolicy": "Always",
        "command": [
            *(PYTHON, "-m", "fairway.runtime.pod.samples", "--folder", SAMPLES),
            *("--url", f"{around.endpoint}/v1/given/samples/$({POD_NAME})"),
        ],
        "env": [
            {"name": POD_NAME, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            _from_secret(around.secret, GIVEN_TOKEN, "token"),
            *around.trust,
        ],
        "securityContext": _no_rights(),
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "volumeMounts": [_samples_mount()],
    }


def _reporter(around: PodSurroundings) -> Manifest:
    """Return the sidecar that reports the replica's load over TLS, whatever the replica's image.

    Only it mounts the pod's token.
    """
    return {
        "name": naming.LOAD,
        "image": around.installation.image,
        "restartPolicy": "Always",
        "command": [
            *(PYTHON, "-m", "fairway.runtime.secured.load", "--operator", around.endpoint),
            *("--port", str(naming.LOAD_PORT), "--replica", str(naming.REPLICA_PORT)),
        ],
        "env": around.trust,
        "ports": [{"name": naming.LOAD_TLS, "containerPort": naming.LOAD_PORT}],
        "securityContext": _no_rights(),
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "volumeMounts": around.token_mount,
    }


def _samples_mount() -> Manifest:
    """Return the mount of the samples' own volume.

    The sidecar can remove uploaded files there whatever user the replica runs as.
    """
    return {"name": naming.SAMPLES, "mountPath": SAMPLES}


def _unprivileged() -> Manifest:
    """Return the security context of pods with Fairway's image: admitted under the `restricted` pod security standard."""
    return {**_usual(), "runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER}


def _usual() -> Manifest:
    return {"seccompProfile": {"type": "RuntimeDefault"}}


def _no_rights() -> Manifest:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _from_secret(name: str, variable: str, key: str) -> Manifest:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}


def _resources(need: TaskNeed, cpu: str | None, memory: str | None) -> Manifest:
    counted = {name: str(count) for name, count in need.other.items()}
    requests = {
        **({"cpu": f"{round(need.cpu * 1000)}m"} if need.cpu else {}),
        **({"memory": str(need.memory)} if need.memory else {}),
    }
    limits = {name: str(value) for name, value in (("cpu", cpu), ("memory", memory)) if value is not None}
    return {"requests": {**counted, **requests}, "limits": {**counted, **limits}}


def _node_marks(job: JobState) -> dict[str, str]:
    nodes = job.spec.roles[ROLE].placement.nodes
    return {annotation.NODES: json.dumps(list(nodes))} if nodes else {}


def _with_gpus(template: Manifest, job: JobState, installation: InstallationSettings) -> Manifest:
    """Add the GPU settings. They do not depend on the nodes: a template that changed with them would replace healthy pods."""
    role = job.spec.roles[ROLE]
    need = need_of(role, 0.0)
    who = gpu.giver(need, role.placement, tuple, installation)
    return gpu.give(template, need, role.placement, who, tuple, installation)


def _tolerations(texts: tuple[str, ...]) -> list[Manifest]:
    """Parse tolerations: `*` tolerates all taints; `key`, `key=value` and `key=value:Effect` one."""
    tolerations: list[Manifest] = []
    for text in texts:
        if text == "*":
            return [{"operator": "Exists"}]
        name, _, effect = text.partition(":")
        key, equals, value = name.partition("=")
        toleration: Manifest = {"key": key, "operator": "Equal", "value": value} if equals else {"key": key, "operator": "Exists"}
        tolerations.append({**toleration, **({"effect": effect} if effect else {})})
    return tolerations


def _soon_away() -> list[Manifest]:
    """Return tolerations that replace pods of lost nodes early: the default of five minutes is too long for clients."""
    return [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": AWAY}
        for what in ("not-ready", "unreachable")
    ]


def _apart(labels: dict[str, str]) -> Manifest:
    """Return a preference for different nodes."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    wish = {"weight": 100, "podAffinityTerm": term}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}


def _head(api: str, kind: str, service: ServiceKey, name: str, labels: dict[str, str]) -> Manifest:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": service.namespace, "labels": labels}}


def _digested(body: Manifest) -> Manifest:
    """Return the object with the digest of its spec. The replica count is left out: the mirror shows it."""
    spec = {name: value for name, value in body["spec"].items() if name != "replicas"}
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {**body, "metadata": {**body["metadata"], "annotations": {DIGEST: digest}}}
