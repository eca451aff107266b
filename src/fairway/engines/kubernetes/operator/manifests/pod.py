"""The pod of one task."""

from __future__ import annotations

import json
import posixpath
from typing import Any

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.operator import naming
from fairway.engines.kubernetes.operator.installation import Installation, Runtime
from fairway.engines.kubernetes.operator.manifests import bringing, mpi, network
from fairway.engines.kubernetes.operator.manifests.bringing import CHECKPOINTS, CODE, ENVIRONMENT, INJECTED, RUN, SECRETS
from fairway.engines.kubernetes.operator.manifests.confinement import confined
from fairway.engines.kubernetes.operator.manifests.data import Find, Inputs, inputs, nowhere
from fairway.engines.kubernetes.operator.ports import ports_of
from fairway.launch.render import render
from fairway.launch.topology import Folders, Topology
from fairway.runtime import contract
from fairway.runtime.pod.order import VARIABLE, PodOrder, Start
from fairway.spec.job import Role
from fairway.state.job import Job
from fairway.state.task import Need, Task, TaskKey
from fairway.units import quantity

Manifest = dict[str, Any]

SHARED_MEMORY = "/dev/shm"
KILL_MARGIN = 10
"""Seconds that the kubelet waits beyond the task's own grace."""
CARRY_MARGIN = 60
"""Seconds more where the pod must bring its last checkpoint to the operator."""
FINALIZER = f"{marks.DOMAIN}/record"
"""Keeps an ended pod until its end and its logs are in the record."""


def pod(
    job: Job,
    task: Task,
    topology: Topology,
    installation: Installation,
    runtime: Runtime,
    code: str = "",
    find: Find = nowhere,
) -> Manifest:
    """The pod, whole. `code` names the ConfigMap with the run's code, or `blob:DIGEST`; empty: the image has it, or git."""
    role = job.spec.roles[task.key.role]
    data = inputs(job.spec.data, installation.allowed, find)
    host = next(each.host for each in topology.members if (each.role, each.index) == (task.key.role, task.key.index))
    spec: Manifest = {
        "restartPolicy": "Never",
        "hostname": naming.hostname(task.key),
        "subdomain": naming.subdomain(host),
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": int(quantity.seconds(job.spec.grace)) + margin(installation),
        "initContainers": bringing.steps(job, installation, runtime, code, data),
        "containers": [_container(job, task, topology, installation, runtime, data)],
        "volumes": [*bringing.volumes(job, installation, code), _shared_memory(role), *data.volumes, *runtime.volumes],
        **({"schedulerName": installation.scheduler} if installation.scheduler else {}),
        **({"nodeSelector": dict(role.placement.labels)} if role.placement.labels else {}),
        **({"tolerations": _tolerations(role)} if role.placement.tolerations else {}),
        **network.of_pod(job.spec),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": naming.pod_name(task.key),
            "namespace": job.key.namespace,
            "labels": naming.labels(task.key),
            "finalizers": [FINALIZER],
            "annotations": {
                **marks.write_gang(gang_mark(job, topology)),
                **({marks.NODES: json.dumps(list(role.placement.nodes))} if role.placement.nodes else {}),
                marks.PRIORITY: str(job.spec.priority),
            },
        },
        "spec": confined(merged(spec, job.spec.kubernetes.pod), installation.confinement),
    }


def gang_mark(job: Job, topology: Topology) -> marks.GangMark:
    """What the scheduler is told of the run."""
    parts = {}
    for name in topology.roles:
        role, size = job.spec.roles[name], len(topology.role(name))
        least, most = min(role.replicas.min, size), max(role.replicas.max, size)
        parts[name] = marks.PartMark(size, least, most, role.placement.together, role.placement.apart)
    return marks.GangMark(
        name=f"{job.key.name}.a{job.attempt}",
        parts=parts,
        same_rack=any(role.placement.same_rack for role in job.spec.roles.values()),
        queue=job.spec.queue,
        user=job.origin.user,
        series=job.series,
        time_limit=quantity.seconds(job.spec.timeout) if job.spec.timeout is not None else None,
        submitted=job.created,
        saved=job.progress.checkpoint_time,
    )


def _container(job: Job, task: Task, topology: Topology, installation: Installation, runtime: Runtime, data: Inputs) -> Manifest:
    limits = job.spec.roles[task.key.role].limits
    requests = _amounts(task.need)
    capped = {"cpu": limits.cpu, "memory": limits.memory}
    most = {name: str(value) for name, value in capped.items() if value is not None}
    counted = {name: value for name, value in requests.items() if name not in ("cpu", "memory")}
    shared_memory = {"name": "shm", "mountPath": SHARED_MEMORY}
    agent = mpi.agent(job, runtime, INJECTED)
    told = order(job, task, topology, data.values, agent, carries=not installation.shares_runs)
    return {
        "name": "task",
        "image": runtime.image,
        "command": [runtime.python, "-m", "fairway.runtime.pod"],
        "workingDir": CODE,
        "env": _variables(job, runtime, told),
        "resources": {"requests": requests, "limits": {**counted, **most}},
        "volumeMounts": [*bringing.mounts(job), shared_memory, *data.mounts, *runtime.mounts],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **network.of_container(job.spec, ports_of(job, task)),
    }


def _variables(job: Job, runtime: Runtime, told: PodOrder) -> list[Manifest]:
    plain = {
        **runtime.env,
        **network.variables(job.spec),
        "PYTHONPATH": INJECTED,
        "PYTHONUNBUFFERED": "1",
        VARIABLE: told.encode(),
    }
    found: list[Manifest] = [{"name": name, "value": value} for name, value in plain.items()]
    found += [{"name": name, "valueFrom": {"secretKeyRef": {"name": SECRETS, "key": name}}} for name in job.spec.secrets]
    return found


def attempt_folder(key: TaskKey) -> str:
    """The attempt's own folder, inside the pod."""
    return f"{RUN}/attempts/{key.task}-{key.attempt}"


def order(job: Job, task: Task, topology: Topology, data: dict[str, str], agent: str = "", *, carries: bool = False) -> PodOrder:
    """What the container's first process is told. `data`: the run's inputs, as they are inside the pod.

    `carries`: what must outlive the pod is brought to the operator.
    """
    member = next(each for each in topology.members if (each.role, each.index) == (task.key.role, task.key.index))
    attempt = attempt_folder(task.key)
    folders = Folders(
        work=CODE,
        attempt=attempt,
        shared=f"{RUN}/shared",
        checkpoints=CHECKPOINTS,
        tensorboard=f"{RUN}/tensorboard",
        outputs={name: f"{RUN}/outputs/{name}" for name in job.spec.outputs},
        data=data,
        runtime=INJECTED,
        agent=agent,
    )
    launch = render(job.key.name, job.spec, topology, member, folders)
    made = [folders.shared, folders.checkpoints, folders.tensorboard, *folders.outputs.values()]
    apart = {contract.APART: "1"} if carries else {}
    starts = [Start(list(each.argv), {**each.env, **apart}, sorted(each.gives_way)) for each in launch.processes]
    grace = quantity.seconds(job.spec.grace)
    remote = mpi.listening(job.spec, topology, member)
    return PodOrder(
        task.key.task,
        CODE,
        attempt,
        starts,
        launch.files,
        made,
        grace,
        task.key.attempt,
        folders.checkpoints,
        remote,
        environment=ENVIRONMENT if job.spec.environment.requirements else "",
        carries=carries,
        outputs=folders.outputs if carries else {},
        pattern=job.spec.metrics.pattern,
        detects=job.spec.metrics.auto,
        decided=sorted(job.spec.stop.decided_by),
        events=posixpath.join(CODE, job.spec.tensorboard.dir) if job.spec.tensorboard.dir else folders.tensorboard,
    )


def margin(installation: Installation) -> int:
    """Seconds that the kubelet waits beyond the task's own grace."""
    return KILL_MARGIN if installation.shares_runs else KILL_MARGIN + CARRY_MARGIN


def _shared_memory(role: Role) -> Manifest:
    asked = role.resources.shm
    return {"name": "shm", "emptyDir": {"medium": "Memory", **({"sizeLimit": asked} if asked != "auto" else {})}}


def _amounts(need: Need) -> Manifest:
    """What the kubelet and any scheduler are told; GPUs are given last (`manifests/gpu.py`)."""
    found: Manifest = {name: str(count) for name, count in need.other.items()}
    if need.cpu:
        found["cpu"] = f"{round(need.cpu * 1000)}m"
    if need.memory:
        found["memory"] = str(need.memory)
    return found


def _tolerations(role: Role) -> list[Manifest]:
    """`*` tolerates all; `key`, `key=value` and `key=value:Effect` one."""
    found: list[Manifest] = []
    for text in role.placement.tolerations:
        if text == "*":
            return [{"operator": "Exists"}]
        name, _, effect = text.partition(":")
        key, equals, value = name.partition("=")
        one: Manifest = {"key": key, "operator": "Equal", "value": value} if equals else {"key": key, "operator": "Exists"}
        found.append({**one, **({"effect": effect} if effect else {})})
    return found


def merged(spec: Manifest, extra: Manifest) -> Manifest:
    """The pod with what the document adds: objects are merged, lists get longer by name or at the end, values are replaced."""
    found = dict(spec)
    for name, value in extra.items():
        before = found.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            found[name] = merged(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            found[name] = _joined(before, value)
        else:
            found[name] = value
    return found


def _joined(before: list[Any], more: list[Any]) -> list[Any]:
    found = list(before)
    places = {one["name"]: at for at, one in enumerate(found) if isinstance(one, dict) and "name" in one}
    for one in more:
        at = places.get(one.get("name")) if isinstance(one, dict) else None
        if at is None:
            found.append(one)
        else:
            found[at] = merged(found[at], one)
    return found
