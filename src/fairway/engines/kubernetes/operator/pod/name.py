"""Names of the objects of a run on a cluster: deterministic for each task, so that nothing is created twice. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.operator.pod.port import ports_of
from fairway.launch.topology import GangMember, GangTopology
from fairway.state.job import JobKey, JobState
from fairway.state.task import Task, TaskKey

LABEL_LIMIT = 63
"""Characters of a DNS label."""


def pod_name(key: TaskKey) -> str:
    """Return the pod's name: `mnist-7-worker-0-r2`."""
    return f"{hostname(key)}-r{key.attempt}"


def hostname(key: TaskKey) -> str:
    """Return `mnist-7-worker-0`: the same at every attempt, so that peers that keep running find the restarted task."""
    return f"{key.job}-{key.role}-{key.index}"


def service_name(run: JobKey) -> str:
    """Return the name of the headless Service for the pods: `mnist-7-run`. `mnist-7` stays free for a service of the user."""
    return f"{run.name}-run"


def former_service_name(run: JobKey) -> str:
    """Return the name of that Service in earlier versions."""
    return run.name


def standing_service(run: JobKey, pods: Iterable[Pod]) -> str:
    """Return the Service that the run's pods use: that of an earlier version for as long as pods depend on it."""
    former = former_service_name(run)
    return former if any(pod.spec.subdomain == former and not pod.over for pod in pods) else service_name(run)


def address(key: TaskKey, service: str, cluster_domain: str) -> str:
    """Return the host name at which peers reach the task; it is known before any task is placed."""
    return f"{hostname(key)}.{service}.{key.namespace}.svc.{cluster_domain}"


def subdomain(host: str) -> str:
    """Return the Service in an address."""
    return host.split(".")[1]


def too_long(job: JobState) -> str:
    """Return why names of the run's pods would be too long; empty when they are not."""
    for name, role in job.spec.roles.items():
        longest = f"{job.key.name}-{name}-{role.replicas.max - 1}"
        if len(longest) > LABEL_LIMIT - len("-r999"):
            return f"the pod name {longest} is too long for a cluster; shorten the job's name or the role's"
    return ""


def topology(job: JobState, tasks: tuple[Task, ...], cluster_domain: str, service: str = "") -> GangTopology:
    """Return the gang's topology, by host names, which are known before any task is placed.

    `service`: the Service of the pods, where it differs from the usual one.
    """
    order = list(job.spec.roles)
    members = [
        GangMember(
            role=task.key.role,
            index=task.key.index,
            host=address(task.key, service or service_name(job.key), cluster_domain),
            ports=ports_of(job, task),
            processes=task.processes,
            attempt=task.key.attempt,
            slots=task.slots,
            devices=task.devices,
        )
        for task in sorted(tasks, key=lambda task: (order.index(task.key.role), task.key.index))
    ]
    return GangTopology(job.key.name, job.key.namespace, tuple(members), job.attempt, job.origin.starters)


def labels(key: TaskKey) -> dict[str, str]:
    """Return the labels by which the pods of a run, and of each of its tasks, are selected."""
    return {
        annotation.MANAGED_BY: annotation.MANAGER,
        annotation.RUN: key.job,
        annotation.ROLE: key.role,
        annotation.INDEX: str(key.index),
        annotation.ATTEMPT: str(key.attempt),
    }


def task_key(namespace: str, found: dict[str, str]) -> TaskKey | None:
    """Return the task of a pod with these labels; None when the pod is not ours."""
    index, attempt = (annotation.read_count(found.get(name), -1) for name in (annotation.INDEX, annotation.ATTEMPT))
    if annotation.RUN not in found or annotation.ROLE not in found or min(index, attempt) < 0:
        return None
    return TaskKey(namespace, found[annotation.RUN], found[annotation.ROLE], index, attempt)
