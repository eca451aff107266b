"""Builds the pod of one task."""

from __future__ import annotations

import json
import posixpath
from typing import Any

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.operator.installation import FrameworkRuntime, InstallationSettings
from fairway.engines.kubernetes.operator.manifest import init_container, mpi, network
from fairway.engines.kubernetes.operator.manifest.init_container import (
    CHECKPOINTS,
    CODE,
    ENVIRONMENT,
    INJECTED,
    RUN,
    SECRETS,
)
from fairway.engines.kubernetes.operator.manifest.input import Find, PodInputs, inputs, nowhere
from fairway.engines.kubernetes.operator.manifest.security_context import confined
from fairway.engines.kubernetes.operator.pod import name as pod_name
from fairway.engines.kubernetes.operator.pod.port import ports_of
from fairway.launch.task_launch import render
from fairway.launch.topology import GangTopology, TaskFolders
from fairway.runtime import task_contract
from fairway.runtime.pod.pod_order import VARIABLE, PodOrder, ProcessStart
from fairway.spec.job import TaskRole
from fairway.state.job import JobState
from fairway.state.task import Task, TaskKey, TaskNeed
from fairway.units import quantity

Manifest = dict[str, Any]

SHARED_MEMORY = "/dev/shm"
KILL_MARGIN = 10
"""Seconds that the kubelet waits beyond the task's own grace."""
CARRY_MARGIN = 60
"""Further seconds where the pod must upload its last checkpoint to the operator."""
FINALIZER = f"{annotation.DOMAIN}/record"
"""Keeps an ended pod until its end and its logs are in the record."""


def pod(
    job: JobState,
    task: Task,
    topology: GangTopology,
    installation: InstallationSettings,
    runtime: FrameworkRuntime,
    code: str = "",
    find: Find = nowhere,
) -> Manifest:
    """Return the pod.

    `code` names the ConfigMap with the run's code, or `blob:DIGEST`; empty: the code is in the image or in git.
    """
    role = job.spec.roles[task.key.role]
    data = inputs(job.spec.data, installation.allowed, find)
    host = next(member.host for member in topology.members if (member.role, member.index) == (task.key.role, task.key.index))
    spec: Manifest = {
        "restartPolicy": "Never",
        "hostname": pod_name.hostname(task.key),
        "subdomain": pod_name.subdomain(host),
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": int(quantity.seconds(job.spec.grace)) + margin(installation),
        "initContainers": init_container.steps(job, installation, runtime, code, data),
        "containers": [_container(job, task, topology, installation, runtime, data)],
        "volumes": [*init_container.volumes(job, installation, code), _shared_memory(role), *data.volumes, *runtime.volumes],
        **({"schedulerName": installation.scheduler} if installation.scheduler else {}),
        **({"nodeSelector": dict(role.placement.labels)} if role.placement.labels else {}),
        **({"tolerations": _tolerations(role)} if role.placement.tolerations else {}),
        **network.of_pod(job.spec),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name.pod_name(task.key),
            "namespace": job.key.namespace,
            "labels": pod_name.labels(task.key),
            "finalizers": [FINALIZER],
            "annotations": {
                **annotation.write_gang(gang_mark(job, topology)),
                **({annotation.NODES: json.dumps(list(role.placement.nodes))} if role.placement.nodes else {}),
                annotation.PRIORITY: str(job.spec.priority),
            },
        },
        "spec": confined(merged(spec, job.spec.kubernetes.pod), installation.confinement),
    }


def gang_mark(job: JobState, topology: GangTopology) -> annotation.GangAnnotation:
    """Return the description of the run's gang for the scheduler."""
    parts = {}
    for name in topology.roles:
        role, size = job.spec.roles[name], len(topology.role(name))
        least, most = min(role.replicas.min, size), max(role.replicas.max, size)
        parts[name] = annotation.RoleAnnotation(size, least, most, role.placement.together, role.placement.apart)
    return annotation.GangAnnotation(
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


def _container(
    job: JobState,
    task: Task,
    topology: GangTopology,
    installation: InstallationSettings,
    runtime: FrameworkRuntime,
    data: PodInputs,
) -> Manifest:
    limits = job.spec.roles[task.key.role].limits
    requests = _amounts(task.need)
    bounds = {"cpu": limits.cpu, "memory": limits.memory}
    most = {name: str(value) for name, value in bounds.items() if value is not None}
    counted = {name: value for name, value in requests.items() if name not in ("cpu", "memory")}
    shared_memory = {"name": "shm", "mountPath": SHARED_MEMORY}
    agent = mpi.agent(job, runtime, INJECTED)
    pod_order = order(job, task, topology, data.values, agent, carries=not installation.shares_runs)
    return {
        "name": "task",
        "image": runtime.image,
        "command": [runtime.python, "-m", "fairway.runtime.pod"],
        "workingDir": CODE,
        "env": _variables(job, runtime, pod_order),
        "resources": {"requests": requests, "limits": {**counted, **most}},
        "volumeMounts": [*init_container.mounts(job), shared_memory, *data.mounts, *runtime.mounts],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **network.of_container(job.spec, ports_of(job, task)),
    }


def _variables(job: JobState, runtime: FrameworkRuntime, told: PodOrder) -> list[Manifest]:
    plain = {
        **runtime.env,
        **network.variables(job.spec),
        "PYTHONPATH": INJECTED,
        "PYTHONUNBUFFERED": "1",
        VARIABLE: told.encode(),
    }
    variables: list[Manifest] = [{"name": name, "value": value} for name, value in plain.items()]
    variables += [{"name": name, "valueFrom": {"secretKeyRef": {"name": SECRETS, "key": name}}} for name in job.spec.secrets]
    return variables


def attempt_folder(key: TaskKey) -> str:
    """Return the attempt's own folder inside the pod."""
    return f"{RUN}/attempts/{key.task}-{key.attempt}"


def order(
    job: JobState, task: Task, topology: GangTopology, data: dict[str, str], agent: str = "", *, carries: bool = False
) -> PodOrder:
    """Return the order for the container's first process. `data`: the run's inputs, as values inside the pod.

    `carries`: the pod uploads to the operator what must outlive it.
    """
    member = next(item for item in topology.members if (item.role, item.index) == (task.key.role, task.key.index))
    attempt = attempt_folder(task.key)
    folders = TaskFolders(
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
    created = [folders.shared, folders.checkpoints, folders.tensorboard, *folders.outputs.values()]
    apart = {task_contract.APART: "1"} if carries else {}
    starts = [ProcessStart(list(item.argv), {**item.env, **apart}, sorted(item.gives_way)) for item in launch.processes]
    grace = quantity.seconds(job.spec.grace)
    remote = mpi.listening(job.spec, topology, member)
    return PodOrder(
        task.key.task,
        CODE,
        attempt,
        starts,
        launch.files,
        created,
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


def margin(installation: InstallationSettings) -> int:
    """Return the seconds that the kubelet waits beyond the task's own grace."""
    return KILL_MARGIN if installation.shares_runs else KILL_MARGIN + CARRY_MARGIN


def _shared_memory(role: TaskRole) -> Manifest:
    size = role.resources.shm
    return {"name": "shm", "emptyDir": {"medium": "Memory", **({"sizeLimit": size} if size != "auto" else {})}}


def _amounts(need: TaskNeed) -> Manifest:
    """Return the resource requests of a task without its GPUs, which are added last (`manifest/gpu.py`)."""
    requests: Manifest = {name: str(count) for name, count in need.other.items()}
    if need.cpu:
        requests["cpu"] = f"{round(need.cpu * 1000)}m"
    if need.memory:
        requests["memory"] = str(need.memory)
    return requests


def _tolerations(role: TaskRole) -> list[Manifest]:
    """Return the tolerations: `*` tolerates all taints; `key`, `key=value` and `key=value:Effect` tolerate one."""
    tolerations: list[Manifest] = []
    for text in role.placement.tolerations:
        if text == "*":
            return [{"operator": "Exists"}]
        name, _, effect = text.partition(":")
        key, equals, value = name.partition("=")
        toleration: Manifest = {"key": key, "operator": "Equal", "value": value} if equals else {"key": key, "operator": "Exists"}
        tolerations.append({**toleration, **({"effect": effect} if effect else {})})
    return tolerations


def merged(spec: Manifest, extra: Manifest) -> Manifest:
    """Merge the document's additions into the pod: objects are merged, list items by name or appended, values are replaced."""
    result = dict(spec)
    for name, value in extra.items():
        before = result.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            result[name] = merged(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            result[name] = _joined(before, value)
        else:
            result[name] = value
    return result


def _joined(before: list[Any], more: list[Any]) -> list[Any]:
    result = list(before)
    places = {item["name"]: at for at, item in enumerate(result) if isinstance(item, dict) and "name" in item}
    for item in more:
        at = places.get(item.get("name")) if isinstance(item, dict) else None
        if at is None:
            result.append(item)
        else:
            result[at] = merged(result[at], item)
    return result
