"""The engine's part for replicas of services: runs whose pods a Deployment creates.

Nothing is created here. The number of pods follows from the runs (`seating.counts`); a controller writes it into the Deployments.
This module assigns pods to replicas and reports their states.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from fairway.app.ports import LogChunk, LogQuery, TaskUsage
from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.client import errors, kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.mirror import Mirror
from fairway.engines.kubernetes.objects import GpuNode, Pod
from fairway.engines.kubernetes.operator import pod_usage
from fairway.engines.kubernetes.serving import naming, seating
from fairway.engines.kubernetes.serving.lasting import ReplicaLogs
from fairway.errors import NotFoundError, UnavailableError
from fairway.plan.action import Action, BindGang, CreateTask, EvictTask, ForgetJob, ForgetLogs
from fairway.plan.service.replica import OWN_NAMESPACE
from fairway.state.job import Job, JobKey
from fairway.state.phase import TaskPhase
from fairway.state.service import ServiceKey
from fairway.state.snapshot import Snapshot
from fairway.state.task import Exit, Task, TaskKey, TaskReport

log = logging.getLogger("fairway.operator")


class Replicas:
    """Assigns pods to replicas, and observes them."""

    def __init__(self, client: Client, pods: Mirror[Pod], logs: ReplicaLogs, gpu_nodes: Mirror[GpuNode] | None = None) -> None:
        self._client = client
        self._pods = pods
        self._logs = logs
        self._gpu_nodes = gpu_nodes
        self._taken: dict[str, TaskKey] = {}
        """Pods that were labelled, by uid, until the mirror shows it."""
        self.trusted: ssl.SSLContext | None = None
        """Verifies agents; None where the operator has no certificate authority."""
        self.snapshot: Callable[[], Snapshot] = Snapshot
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
            if pod.metadata.labels.get(marks.PART) == naming.REPLICA:
                if now is None or marks.REPLICA in now.metadata.labels:
                    self._taken.pop(pod.metadata.uid, None)
                self.changed(ServiceKey(pod.metadata.namespace, pod.metadata.labels[marks.SERVICE]))
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
                    self.changed(seating.service_of(action.job))
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
            self.changed(seating.service_of(run))
        return [] if self._pod_of(key) is not None else [TaskReport(key, TaskPhase.STOPPED, exit=Exit(by_us=True))]

    async def observe(self, keys: Iterable[TaskKey]) -> list[TaskReport]:
        """Return the states of these replicas; assign a free pod to each that has none."""
        reports = []
        for key in keys:
            task, run = self._task(key), self.snapshot().jobs.get(key.run)
            if task is None or run is None:
                reports.append(TaskReport(key, TaskPhase.LOST, exit=Exit(disrupted="its record does not exist any more")))
                continue
            reports.append(await self._observe(task, run))
        return reports

    async def _observe(self, task: Task, run: Job) -> TaskReport:
        pod = self._pod_of(task.key)
        if pod is not None or task.node or task.evicting_since is not None or task.phase is TaskPhase.PENDING:
            return seating.report(task, pod, "")
        service = seating.service_of(run)
        pods, revision = list(self._pods.indexed(naming.BY_SERVICE, str(service))), run.labels[marks.REVISION]
        for candidate in seating.free(pods, revision):
            if candidate.metadata.uid not in self._taken and await self._take(candidate, task.key):
                return seating.report(task, candidate, "")
        return seating.report(task, None, seating.waiting(pods, revision))

    async def _take(self, pod: Pod, key: TaskKey) -> bool:
        """Label the pod as the replica. Return False when that failed; it is retried then."""
        changes = [{"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}]
        for name, value in seating.seat_label(key).items():
            changes.append({"op": "add", "path": f"/metadata/labels/{name.replace('/', '~1')}", "value": value})
        try:
            await self._client.patch(kinds.PODS, pod.metadata.name, pod.metadata.namespace, changes)
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
            if seating.sits(pod, key) or self._taken.get(pod.metadata.uid) == key:
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
        replica = pod.metadata.labels.get(marks.REPLICA)
        if replica is None:
            message = f"{name} is not assigned to a replica yet"
            raise UnavailableError(message, fix="retry in a second")
        return JobKey(f"{service.namespace}{OWN_NAMESPACE}", replica), seating.is_going(pod)

    async def usage(self, keys: Iterable[TaskKey]) -> dict[TaskKey, TaskUsage]:
        """Return what replicas use, as far as it is reported."""
        pods = {key: pod for key in keys if (pod := self._pod_of(key)) is not None}
        return await pod_usage.look(self._client, pods, self._gpu_nodes, self.trusted)

    async def logs(self, job: Job, query: LogQuery) -> AsyncIterator[LogChunk]:
        """Yield what the replica printed: from its node while it runs, from the record when it has ended."""
        pods = self._pods.indexed(naming.BY_SERVICE, naming.service_of(job.key))
        pod = next((pod for pod in pods if pod.metadata.labels.get(marks.REPLICA) == job.key.name), None)
        async for chunk in self._logs.logs(job, pod, query):
            yield chunk
