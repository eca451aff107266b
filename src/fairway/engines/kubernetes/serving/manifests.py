"""The objects of a service. Pure: the same service gives the same objects, so that nothing is written twice."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.operator.installation import Installation, Runtime
from fairway.engines.kubernetes.operator.manifests import gpu
from fairway.engines.kubernetes.proof import projected
from fairway.engines.kubernetes.serving import naming
from fairway.engines.kubernetes.serving.exposure import Exposure
from fairway.errors import RefusedError
from fairway.launch.render import render
from fairway.launch.topology import Folders, Member, Topology
from fairway.plan.gang import need_of
from fairway.plan.service.replica import ROLE, SAMPLES_LABEL, new_replica, ready_path, replica_run
from fairway.runtime.pod.trust import AUTHORITY
from fairway.runtime.secured.leaf import TOKEN_FOLDER
from fairway.state.job import Job
from fairway.state.route import outcome_token
from fairway.state.service import Revision, Service, ServiceKey
from fairway.state.task import Need
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
"""Seconds that a pod which is told to go serves on, so that everybody hears that it goes."""
KILL_MARGIN = 10
SENDING = 30
"""Seconds more for a pod that samples, in which the last of it is brought away."""
SAMPLES_ROOM = "1Gi"
"""Of samples that wait in a pod. Its server keeps 256 MB and what it writes: it must never come to where pods are evicted."""
DRAIN = 60
"""Seconds that a router has to finish what is under way."""
AWAY = 30
"""Seconds after which pods of a node that does not answer are replaced."""
USER = 65532
"""As whom our own processes run: nobody that anything belongs to."""
SCRAPED = {
    "prometheus.io/scrape": "true",
    "prometheus.io/port": str(naming.ROUTER_PORT),
    "prometheus.io/path": "/fairway/metrics",
}
"""On the pods of a router: where Prometheus finds the page of the whole service. A PodMonitor takes the port `http`."""
DIGEST = f"{marks.DOMAIN}/digest"
"""On a Deployment: what it was made of, so that one that is as it should be is left alone."""


@dataclass(frozen=True, slots=True)
class Around:
    """What pods of a service find on the cluster."""

    installation: Installation
    endpoint: str
    """Where the operator gives models."""
    secret: str
    """The Secret with the service's keys."""
    authority: str = ""
    """The operator's certificate authority, in PEM; empty where there is no TLS."""

    @property
    def trust(self) -> list[Manifest]:
        """The variable by which what runs in a pod knows the operator."""
        return [{"name": AUTHORITY, "value": self.authority}] if self.authority else []

    @property
    def token(self) -> list[Manifest]:
        """The volume with what proves a pod to the operator, where there is TLS."""
        return [{"name": PROOF, **projected()}] if self.authority else []

    @property
    def token_mount(self) -> list[Manifest]:
        """Where that is mounted."""
        return [{"name": PROOF, "mountPath": TOKEN_FOLDER, "readOnly": True}] if self.authority else []


def deployment(service: Service, revision: Revision, count: int, around: Around) -> Manifest:
    """The Deployment of a revision with so many replicas. Raises `RefusedError` when nobody said what it runs in."""
    labels = naming.replica_labels(service.key, revision.number)
    job = _run(service, revision)
    annotations = {
        marks.QUEUE: revision.spec.queue,
        marks.PRIORITY: str(revision.spec.priority),
        marks.SERIES: job.series,
        **_node_marks(job),
    }
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": _pod(service, revision, around)}
    spec = {
        "replicas": count,
        "selector": {"matchLabels": labels},
        # Nothing of a revision changes but the installation's own image: what is there goes when its successor is ready.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "revisionHistoryLimit": 1,
        "template": _with_gpus(template, job, around.installation),
    }
    head = _head("apps/v1", "Deployment", service.key, naming.revision_name(service.key, revision.number), labels)
    return _digested({**head, "spec": spec})


def revision_service(service: ServiceKey, revision: int) -> Manifest:
    """The Service of a revision: what a gateway sends its part of the requests to."""
    labels = naming.replica_labels(service, revision)
    ports = [{"name": "http", "port": naming.USUAL_PORT, "targetPort": naming.REPLICA_PORT}]
    head = _head("v1", "Service", service, naming.revision_name(service, revision), labels)
    return {**head, "spec": {"selector": labels, "ports": ports}}


def front_service(service: ServiceKey, name: str, port: int) -> Manifest:
    """The Service that people ask: it points to the router."""
    ports = [{"name": "http", "port": port, "targetPort": naming.ROUTER_PORT}]
    head = _head("v1", "Service", service, name, naming.labels(service, naming.ROUTER))
    return {**head, "spec": {"selector": naming.labels(service, naming.ROUTER), "ports": ports}}


def secret(service: ServiceKey, name: str, given: str, control: str) -> Manifest:
    """The keys of the service's pods, for fetching its model and for telling its router; and of those who report outcomes."""
    head = _head("v1", "Secret", service, name, naming.labels(service))
    return {**head, "stringData": {"token": given, "router": control, "outcome": outcome_token(control)}}


def plan_map(service: ServiceKey, plan: bytes) -> Manifest:
    """The ConfigMap with the plan that a router begins with, whoever is there to tell it a newer one."""
    head = _head("v1", "ConfigMap", service, naming.router_name(service), naming.labels(service, naming.ROUTER))
    return {**head, "data": {PLAN_FILE: plan.decode()}}


def router(service: ServiceKey, count: int, around: Around, exposure: Exposure = Exposure()) -> Manifest:
    """The Deployment of the router."""
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
    """The object as a child of another."""
    return {**body, "metadata": {**body["metadata"], "ownerReferences": [owner]}} if owner else body


def runtime_of(revision: Revision, installation: Installation) -> Runtime:
    """What a revision's replicas run in: the document's image, the table's by format, or Fairway's own for ONNX."""
    image = revision.spec.environment.image
    if image:
        return Runtime(image)
    kind = revision.model_format if revision.model else "command"
    found = installation.runtimes.get(f"serve-{kind}")
    if found is not None:
        return found
    if kind == "onnx":
        return Runtime(installation.image, PYTHON)
    message = f"r{revision.number} names no image, and the cluster has none that serves {kind}"
    fix = f"set environment.image, or have an administrator add `runtimes: {{serve-{kind}: {{image: ...}}}}` with Fairway in it"
    raise RefusedError(message, fix=fix)


def _run(service: Service, revision: Revision, python: str = PYTHON) -> Job:
    return replica_run(service, revision, new_replica(service, revision.number, 0, 0.0), python)


def code_of(revision: Revision) -> str:
    """The digest of the code that a command comes with; empty when it has none. Raises `RefusedError` for what is no digest."""
    code = revision.origin.code_digest
    if not revision.spec.command or not code:
        return ""
    if not code.startswith(marks.BLOB):
        message = f"the code of r{revision.number} is {code!r}, and services take code that was sent with them only"
        raise RefusedError(message, fix="`fairway apply` sends it; or put the code into the image")
    return code.removeprefix(marks.BLOB)


def _pod(service: Service, revision: Revision, around: Around) -> Manifest:
    installation = around.installation
    runtime = runtime_of(revision, installation)
    job = _run(service, revision, runtime.python)
    spec, role, samples = revision.spec, job.spec.roles[ROLE], SAMPLES_LABEL in job.labels
    volumes: list[Manifest] = [{"name": "work", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}]
    volumes += [{"name": "model", "emptyDir": {}}] if revision.model else []
    volumes += [{"name": "code", "emptyDir": {}}] if code_of(revision) else []
    volumes += [{"name": naming.SAMPLES, "emptyDir": {"sizeLimit": SAMPLES_ROOM}}] if samples else []
    tells = bool(around.authority) and not spec.command  # A server of ours says how busy it is.
    volumes += around.token if tells else []
    beside = [*([_reporter(around)] if tells else []), *([_sender(around)] if samples else [])]
    grace = int(quantity.seconds(spec.grace)) + LINGER + KILL_MARGIN + (SENDING if samples else 0)
    return {
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": grace,
        "tolerations": [*_soon_away(), *_tolerations(role.placement.tolerations)],
        **({"schedulerName": installation.scheduler} if installation.scheduler else {}),
        **({"nodeSelector": dict(role.placement.labels)} if role.placement.labels else {}),
        "securityContext": _unprivileged() if runtime.image == installation.image else _usual(),
        "initContainers": [*_fetchers(revision, around), *beside],
        "containers": [_container(job, revision, runtime)],
        "volumes": [*volumes, *runtime.volumes],
    }


def _container(job: Job, revision: Revision, runtime: Runtime) -> Manifest:
    spec, role = revision.spec, job.spec.roles[ROLE]
    member = Member(ROLE, 0, "127.0.0.1", tuple(range(naming.REPLICA_PORT, naming.REPLICA_PORT + 3)))
    folders = Folders(
        work=CODE,
        attempt=WORK,
        shared=WORK,
        checkpoints=f"{WORK}/checkpoints",
        tensorboard=f"{WORK}/tensorboard",
        outputs={},
        data={"model": MODEL} if revision.model else {},
        runtime="",
    )
    # The template is the same for all replicas, so what names one of them names the revision.
    launch = render(job.series, job.spec, Topology(job.series, job.key.namespace, (member,)), member, folders)
    process = launch.processes[0]
    env: list[Manifest] = [{"name": name, "value": value} for name, value in {**runtime.env, **process.env}.items()]
    env += [{"name": name, "valueFrom": {"secretKeyRef": {"name": SECRETS, "key": name}}} for name in spec.secrets]
    need = need_of(role, 0.0)
    mounts: list[Manifest] = [{"name": "work", "mountPath": WORK}, {"name": "shm", "mountPath": "/dev/shm"}]
    mounts += [{"name": "model", "mountPath": MODEL, "readOnly": True}] if revision.model else []
    mounts += [{"name": "code", "mountPath": CODE}] if code_of(revision) else []
    mounts += [_samples_mount()] if SAMPLES_LABEL in job.labels else []
    return {
        # The same name as in runs, so that ends and logs are read the same way.
        "name": "task",
        "image": runtime.image,
        "command": [*process.argv, *([] if spec.command else ["--host", "0.0.0.0"])],
        "env": env,
        **({"workingDir": CODE} if code_of(revision) else {}),
        "securityContext": _no_rights(),
        "ports": [{"name": "http", "containerPort": naming.REPLICA_PORT}],
        "readinessProbe": {
            "httpGet": {"path": ready_path(spec), "port": naming.REPLICA_PORT},
            "periodSeconds": 1,
            "timeoutSeconds": 3,
            "failureThreshold": 3,
        },
        # Whoever ends a pod, its Service and the routers hear of it before its process does.
        "lifecycle": {"preStop": {"sleep": {"seconds": LINGER}}},
        "resources": _resources(need, role.limits.cpu, role.limits.memory),
        "volumeMounts": [*mounts, *runtime.mounts],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _fetchers(revision: Revision, around: Around) -> list[Manifest]:
    """The steps that bring the model, or the code, into the pod."""
    code = code_of(revision)
    wanted = [("model", f"models/{revision.model}", MODEL)] if revision.model else []
    wanted += [("code", f"code?digest={code}", CODE)] if code else []
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
        for name, what, folder in wanted
    ]


def _sender(around: Around) -> Manifest:
    """Brings what the replica samples to the operator. A sidecar: it begins before the replica and is told to end after it."""
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


def _reporter(around: Around) -> Manifest:
    """Says over TLS how busy the replica is, whatever image that runs; the pod's token is in this container alone."""
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
    """A volume of its own: whoever the replica runs as, the other one may remove what it has brought away."""
    return {"name": naming.SAMPLES, "mountPath": SAMPLES}


def _unprivileged() -> Manifest:
    """Of pods with our own image: admitted where pods must be `restricted`."""
    return {**_usual(), "runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER}


def _usual() -> Manifest:
    return {"seccompProfile": {"type": "RuntimeDefault"}}


def _no_rights() -> Manifest:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _from_secret(name: str, variable: str, key: str) -> Manifest:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}


def _resources(need: Need, cpu: str | None, memory: str | None) -> Manifest:
    counted = {name: str(count) for name, count in need.other.items()}
    asked = {
        **({"cpu": f"{round(need.cpu * 1000)}m"} if need.cpu else {}),
        **({"memory": str(need.memory)} if need.memory else {}),
    }
    capped = {name: str(value) for name, value in (("cpu", cpu), ("memory", memory)) if value is not None}
    return {"requests": {**counted, **asked}, "limits": {**counted, **capped}}


def _node_marks(job: Job) -> dict[str, str]:
    nodes = job.spec.roles[ROLE].placement.nodes
    return {marks.NODES: json.dumps(list(nodes))} if nodes else {}


def _with_gpus(template: Manifest, job: Job, installation: Installation) -> Manifest:
    """The same whatever nodes there are: a template that changed with them would replace pods that serve well."""
    role = job.spec.roles[ROLE]
    need = need_of(role, 0.0)
    who = gpu.giver(need, role.placement, tuple, installation)
    return gpu.give(template, need, role.placement, who, tuple, installation)


def _tolerations(texts: tuple[str, ...]) -> list[Manifest]:
    """`*` tolerates all; `key`, `key=value` and `key=value:Effect` one."""
    found: list[Manifest] = []
    for text in texts:
        if text == "*":
            return [{"operator": "Exists"}]
        name, _, effect = text.partition(":")
        key, equals, value = name.partition("=")
        one: Manifest = {"key": key, "operator": "Equal", "value": value} if equals else {"key": key, "operator": "Exists"}
        found.append({**one, **({"effect": effect} if effect else {})})
    return found


def _soon_away() -> list[Manifest]:
    """Five minutes, which is the default, are long for those who ask."""
    return [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": AWAY}
        for what in ("not-ready", "unreachable")
    ]


def _apart(labels: dict[str, str]) -> Manifest:
    """Rather not on one node."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    wish = {"weight": 100, "podAffinityTerm": term}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}


def _head(api: str, kind: str, service: ServiceKey, name: str, labels: dict[str, str]) -> Manifest:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": service.namespace, "labels": labels}}


def _digested(body: Manifest) -> Manifest:
    """With the digest of everything but the count, which the mirror shows itself."""
    spec = {name: value for name, value in body["spec"].items() if name != "replicas"}
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {**body, "metadata": {**body["metadata"], "annotations": {DIGEST: digest}}}
