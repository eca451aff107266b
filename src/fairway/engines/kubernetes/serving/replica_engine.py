"""The engine's part for replicas of services: runs whose pods a Deployment creates.

Nothing is created here. The number of pods follows from the runs (`seating.counts`); a controller writes it into the Deployments.
This module assigns pods to replicas and reports their states.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from fairway.app.port.port import LogChunk, LogQuery, TaskUsage
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.objects import GpuNode, Pod
from fairway.engines.kubernetes.operator.pod import usage as pod_usage
from fairway.engines.kubernetes.serving import naming, replica_assignment
from fairway.engines.kubernetes.serving.replica_log import ReplicaLogs
from fairway.errors import NotFoundError, UnavailableError
from fairway.plan.action import Action, BindGang, CreateTask, EvictTask, ForgetJob, ForgetLogs
from fairway.plan.service.replica import OWN_NAMESPACE
from fairway.state.job import JobKey, JobState
from fairway.state.phase import TaskPhase
from fairway.state.service import ServiceKey
from fairway.state.snapshot import PlannerSnapshot
from fairway.state.task import Task, TaskExit, TaskKey, TaskReport

log = logging.getLogger("fairway.operator")


class ReplicaEngine:
    """Assigns pods to replicas, and observes them."""

    def __init__(
        self, client: ApiClient, pods: Informer[Pod], logs: ReplicaLogs, gpu_nodes: Informer[GpuNode] | None = None
    ) -> None:
        self._client = client
        self._pods = pods
        self._logs = logs
        self._gpu_nodes = gpu_nodes
        self._taken: dict[str, TaskKey] = {}
        """Pods that were labelled, by uid, until the mirror shows it."""
        self.trusted: ssl.SSLContext | None = None
        """Verifies agents; None where the operator has no certificate authority."""
        self.snapshot: Callable[[], PlannerSnapshot] = PlannerSnapshot
        """Returns the loop's present snapshot; set by the owner."""
        self.changed: Callable[[ServiceKey], None] = lambda _key: None
        """Called when the pods of a service, or the desired number of them, may have changed."""
        self.forgotten: Callable[[JobKey], None] = lambda _key: None
        """Called when the record of a replica is dropped."""

    def start(self, wake: Callable[[], None]) -> None:
        """Start listening. The mirror must be complete."""

        def told(key: str, before: Pod | None, now: Pod | None) -> None:
            del key
            pod = now or before or Pod()
            if pod.metadata.labels.get(annotation.PART) == naming.REPLICA:
                if now is None or annotation.REPLICA in now.metadata.labels:
                    self._taken.pop(pod.metadata.uid, None)
                self.changed(ServiceKey(pod.metadata.namespace, pod.metadata.labels[annotation.SERVICE]))
                wake()

        self._pods.listen(told)
        self._pods.listen(self._logs.notice)

    async def perform(self, actions: Sequence[Action]) -> list[TaskReport]:
        """Carry out actions. Pods follow from the runs, so that it suffices to trigger the controller."""
        reports: list[TaskReport] = []
        for action in actions:
            match action:
                case CreateTask():
                    reports.append(TaskReport(action.task.key, action.task.phase, ready=True))
                case BindGang():
                    self.changed(replica_assignment.service_of(action.job))
                case EvictTask():
                    reports += self._evict(action.key)
                case ForgetJob() | ForgetLogs():
                    self._logs.forget(action.key)
                    if isinstance(action, ForgetJob):
                        self.forgotten(action.key)
                case _:
                    continue
        return reports

    def _evict(self, key: TaskKey) -> list[TaskReport]:
        run = self.snapshot().jobs.get(key.run)
        if run is not None:
            self.changed(replica_assignment.service_of(run))
        return [] if self._pod_of(key) is not None else [TaskReport(key, TaskPhase.STOPPED, exit=TaskExit(by_us=True))]

    async def observe(self, keys: Iterable[TaskKey]) -> list[TaskReport]:
        """Return the states of these replicas; assign a free pod to each that has none."""
        reports = []
        for key in keys:
            task, run = self._task(key), self.snapshot().jobs.get(key.run)
            if task is None or run is None:
                reports.append(TaskReport(key, TaskPhase.LOST, exit=TaskExit(disrupted="its record does not exist any more")))
                continue
            reports.append(await self._observe(task, run))
        return reports

    async def _observe(self, task: Task, run: JobState) -> TaskReport:
        pod = self._pod_of(task.key)
        if pod is not None or task.node or task.evicting_since is not None or task.phase is TaskPhase.PENDING:
            return replica_assignment.report(task, pod, "")
        service = replica_assignment.service_of(run)
        pods, revision = list(self._pods.indexed(naming.BY_SERVICE, str(service))), run.labels[annotation.REVISION]
        for candidate in replica_assignment.free(pods, revision):
            if candidate.metadata.uid not in self._taken and await self._take(candidate, task.key):
                return replica_assignment.report(task, candidate, "")
        return replica_assignment.report(task, None, replica_assignment.waiting(pods, revision))

    async def _take(self, pod: Pod, key: TaskKey) -> bool:
        """Label the pod as the replica. Return False when that failed; it is retried then."""
        changes = [{"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}]
        for name, value in replica_assignment.seat_label(key).items():
            changes.append({"op": "add", "path": f"/metadata/labels/{name.replace('/', '~1')}", "value": value})
        try:
            await self._client.patch(api_resource.PODS, pod.metadata.name, pod.metadata.namespace, changes)
        except errors.ApiError as error:
            log.debug("could not assign pod %s to %s: %s", pod.metadata.name, key.job, error)
            return False
        self._taken[pod.metadata.uid] = key
        return True

    def _task(self, key: TaskKey) -> Task | None:
        return self.snapshot().tasks.get(key.run, {}).get(key)

    def _pod_of(self, key: TaskKey) -> Pod | None:
        """Return the pod that is assigned to the replica."""
        for pod in self._pods.indexed(naming.BY_SERVICE, naming.service_of(key.run)):
            if replica_assignment.sits(pod, key) or self._taken.get(pod.metadata.uid) == key:
                return pod
        return None

    def run_in(self, service: ServiceKey, name: str) -> tuple[JobKey, bool]:
        """Return the replica that a pod of a service is, and whether the pod is being deleted.

        Raises `NotFoundError` when the service has no such pod.
        """
        pod = self._pods.get(f"{service.namespace}/{name}")
        if pod is None or str(service) not in naming.by_service(pod):
            message = f"{service} has no pod {name}"
            raise NotFoundError(message, fix="use the pod's own token")
        replica = pod.metadata.labels.get(annotation.REPLICA)
        if replica is None:
            message = f"{name} is not assigned to a replica yet"
            raise UnavailableError(message, fix="retry in a second")
        return JobKey(f"{service.namespace}{OWN_NAMESPACE}", replica), replica_assignment.is_going(pod)

    async def usage(self, keys: Iterable[TaskKey]) -> dict[TaskKey, TaskUsage]:
        """Return what replicas use, as far as it is reported."""
        pods = {key: pod for key in keys if (pod := self._pod_of(key)) is not None}
        return await pod_usage.look(self._client, pods, self._gpu_nodes, self.trusted)

    async def logs(self, job: JobState, query: LogQuery) -> AsyncIterator[LogChunk]:
        """Yield what the replica printed: from its node while it runs, from the record when it has ended."""
        pods = self._pods.indexed(naming.BY_SERVICE, naming.service_of(job.key))
        pod = next((pod for pod in pods if pod.metadata.labels.get(annotation.REPLICA) == job.key.name), None)
        async for chunk in self._logs.logs(job, pod, query):
            yield chunk
