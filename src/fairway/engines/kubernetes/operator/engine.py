"""The `Engine` port over pods. The API server is the source of truth; what is kept in memory here may be lost at any time.

Our pods have a finalizer: an ended pod stays until its end and its logs are in the record, whatever deleted it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from fairway.app.port.port import LogChunk, LogQuery, Observation, TaskSite, TaskUsage
from fairway.engines.kubernetes import annotation, pod_cause
from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.objects import GpuNode, Pod
from fairway.engines.kubernetes.objects import KubernetesNode as NodeObject
from fairway.engines.kubernetes.operator.gang import GangCreator
from fairway.engines.kubernetes.operator.log.archive import LogArchive, by_task
from fairway.engines.kubernetes.operator.log.follower import LogFollowers
from fairway.engines.kubernetes.operator.node import is_ready, node_of
from fairway.engines.kubernetes.operator.pod import name as pod_name
from fairway.engines.kubernetes.operator.pod import report as pod_report
from fairway.engines.kubernetes.operator.pod import usage as pod_usage
from fairway.engines.kubernetes.operator.pod.start_diagnosis import PodStartDiagnosis
from fairway.engines.kubernetes.operator.pod.stray import StrayPods
from fairway.engines.kubernetes.operator.queueing_system import QueueingSystemClient
from fairway.errors import ConflictError, FairwayError, RefusedError
from fairway.plan.action import Action, BindGang, CreateTask, EvictTask, ForgetJob, ForgetLogs, NudgeTask
from fairway.state.job import JobKey, JobState
from fairway.state.node import ClusterNode
from fairway.state.phase import TaskPhase
from fairway.state.task import TaskExit, TaskKey, TaskReport

log = logging.getLogger("fairway.operator")

BY_RUN = "run"
"""The index of pods by `NAMESPACE/RUN`."""
LOST_AFTER = 30.0
"""Seconds after which the pods of an unreachable node count as lost. A node that is only cut off may still run them."""
TRY_AGAIN_AFTER = 1.0
"""Back-off in seconds after a failure to create what a task's pod needs."""
TRUSTED = 30.0
"""Seconds for which a created pod counts as present although the mirror does not show it."""


def by_run(pod: Pod) -> tuple[str, ...]:
    """Return the run under which a pod is indexed; empty when the pod is not ours."""
    run = pod.metadata.labels.get(annotation.RUN)
    return (f"{pod.metadata.namespace}/{run}",) if run is not None else ()


class KubernetesEngine:
    """Runs tasks as pods."""

    def __init__(
        self,
        client: ApiClient,
        pods: Informer[Pod],
        nodes: Informer[NodeObject],
        gangs: GangCreator,
        keeping: LogArchive,
        owner: Callable[[JobKey], dict[str, object] | None],
        gpu_nodes: Informer[GpuNode] | None = None,
    ) -> None:
        self._client = client
        self._pods = pods
        self._nodes = nodes
        self._gangs = gangs
        gangs.pods = self._pods_of
        self._keeping = keeping
        self._owner = owner
        self._gpu_nodes = gpu_nodes
        self._outside: QueueingSystemClient | None = None
        self._stuck: PodStartDiagnosis | None = None
        self._wake: Callable[[], None] = lambda: None
        self._strays = StrayPods()
        self._made: dict[str, tuple[Pod, float]] = {}
        """Created pods and the time of their creation, until the mirror shows them."""
        self._unready: dict[str, float] = {}
        """Nodes that do not respond, and since when, by our monotonic clock."""
        self._reachable: set[JobKey] = set()
        """Runs whose Service was applied since the last call of `perform` began."""
        self._unprepared: dict[TaskKey, CreateTask] = {}
        """Tasks for which something that their pods need could not be created; retried."""
        self._prepared: set[TaskKey] = set()
        """Tasks for which everything exists but the pod."""
        self._withdrawn: set[TaskKey] = set()
        """Tasks that were ended before they had a pod: they get none."""
        self._forgotten: set[str] = set()
        """Uids of pods that were released with their run, until the mirror shows that they are gone."""
        self._told_over: set[TaskKey] = set()
        self._refused: dict[JobKey, tuple[str, str]] = {}
        """By run, a report of its pods that was rejected: the task, or empty for all tasks, and the message."""
        self._background: set[asyncio.Future[None]] = set()
        self.trusted: ssl.SSLContext | None = None
        """Verifies agents; None where the operator has no authority."""
        self.may_end: Callable[[JobKey], bool] = lambda _key: True
        """Whether the record is complete for the run: pods of other runs are left alone."""
        self.forgetting: Callable[[JobKey], None] = lambda _key: None
        """Called before anything of a run is removed."""
        self._following = LogFollowers(keeping, lambda run: pods.indexed(BY_RUN, str(run)))

    def ask(self, outside: QueueingSystemClient, stuck: PodStartDiagnosis | None = None) -> None:
        """Use an external queueing system: gangs are created for it, and its objects report why something waits."""
        self._outside = self._gangs.outside = outside
        self._stuck = stuck

    async def start(self, wake: Callable[[], None]) -> None:
        """Start; the mirrors are complete by now."""
        self._wake = wake
        if self._outside is not None:
            self._outside.changed = wake
        if self._stuck is not None:
            self._stuck.changed = wake
        self._nodes.listen(self._node_changed)
        self._pods.listen(self._changed)
        # A previous operator may have died between recording an end and releasing the pod: tasks that are not observed are
        # released.
        keys = (pod_name.task_key(pod.metadata.namespace, pod.metadata.labels) for pod in self._pods)
        self._told_over = {key for key in keys if key is not None}

    async def close(self) -> None:
        """Do nothing: pods go on running."""

    def _changed(self, key: str, before: Pod | None, now: Pod | None) -> None:
        ours = by_run(now or before or Pod())
        for run in ours:
            self._following.tell(JobKey(*run.split("/", 1)))
        if now is None and before is not None:
            self._forgotten.discard(before.metadata.uid)
        elif now is not None and before is None:
            self._strays.came(pod_name.task_key(now.metadata.namespace, now.metadata.labels), _steady())
        if self._made.pop(key, None) is not None or ours:
            self._wake()

    def _node_changed(self, name: str, _before: NodeObject | None, now: NodeObject | None) -> None:
        if now is not None and is_ready(now):
            self._unready.pop(name, None)
        else:
            self._unready.setdefault(name, _steady())

    def _lost_node(self, pod: Pod) -> str:
        """Return the pod's node if it has been unreachable for so long that the pod counts as lost; otherwise empty."""
        name = pod.spec.node_name
        since = self._unready.get(name)
        return name if name and since is not None and _steady() - since >= LOST_AFTER else ""

    async def nodes(self) -> tuple[ClusterNode, ...]:
        """Return the nodes of the cluster with their total resources, whatever else uses them."""
        gpu_nodes = self._gpu_nodes
        result = (node_of(node, gpu_nodes.get(node.metadata.name) if gpu_nodes is not None else None) for node in self._nodes)
        return tuple(sorted(result, key=lambda node: node.name))

    # Acting

    async def perform(self, actions: Sequence[Action]) -> list[TaskReport]:
        """Perform the actions in order. Actions that fail are reported, and are part of the next plan again."""
        reports: list[TaskReport] = []
        self._reachable.clear()
        for action in actions:
            match action:
                case CreateTask():
                    report = await self._create(action)
                    # If there is a pod already, its own report counts.
                    reports += [report] if self._find(action.task.key) is None else []
                case BindGang():
                    reports += await self._bind(action)
                case EvictTask():
                    reports += await self._evict(action)
                case NudgeTask():
                    await self._trying(self._nudge(action.key), f"request {action.key} to stop")
                case ForgetJob():
                    await self._trying(self._forget(action.key), f"forget {action.key}")
                case ForgetLogs():
                    self._keeping.forget(action.key)
        return reports

    async def _trying(self, work: Awaitable[object], what: str) -> None:
        try:
            await work
        except FairwayError as error:
            log.warning("could not %s: %s", what, error)

    async def _create(self, action: CreateTask) -> TaskReport:
        key = action.task.key
        too_long = pod_name.too_long(action.job)
        if too_long:
            return TaskReport(key, TaskPhase.FAILED, exit=TaskExit(126), message=too_long)
        try:
            await self._reach(action.job.key)
        except FairwayError as error:
            self._unprepared[key] = action
            asyncio.get_running_loop().call_later(TRY_AGAIN_AFTER, self._wake)
            return TaskReport(key, TaskPhase.PENDING, ready=False, message=str(error))
        self._unprepared.pop(key, None)
        self._prepared.add(key)
        return TaskReport(key, action.task.phase, ready=True, message="")

    async def _reach(self, run: JobKey) -> None:
        """Apply the Service that all tasks of a run share; once per `perform` is enough."""
        if run not in self._reachable:
            await self._gangs.reach(run, self._owner(run))
            self._reachable.add(run)

    async def _bind(self, action: BindGang) -> list[TaskReport]:
        withdrawn = [task.key for task in action.tasks if task.key in self._withdrawn]
        if withdrawn:
            return [_never_started(key) for key in withdrawn]
        self._prepared.difference_update(task.key for task in action.tasks)
        try:
            pods = await self._gangs.make(action)
        except (errors.Unavailable, errors.TooManyRequests, errors.Forbidden, errors.Conflict) as error:
            # A quota, an admission rule, a restarting server: the obstacle may pass.
            return [TaskReport(task.key, TaskPhase.PENDING, message=pod_cause.refusal(str(error))) for task in action.tasks]
        except FairwayError as error:
            return [TaskReport(task.key, TaskPhase.FAILED, exit=TaskExit(126), message=str(error)) for task in action.tasks]
        for pod in pods:
            self._remember(pod)
        return [report for task in action.tasks if (report := self._report(task.key)) is not None]

    async def _evict(self, action: EvictTask) -> list[TaskReport]:
        self._unprepared.pop(action.key, None)
        pod = self._find(action.key)
        if pod is None:
            # It was never created, or it is gone already: either way nothing remains to be done.
            if action.key in self._prepared:
                self._withdrawn.add(action.key)
            return [_never_started(action.key)]
        if pod.over:
            return []
        name, namespace, uid = pod.metadata.name, pod.metadata.namespace, pod.metadata.uid
        try:
            if annotation.DELETED_FOR not in pod.metadata.annotations:
                path = "/metadata/annotations/" + annotation.DELETED_FOR.replace("/", "~1")
                test = {"op": "test", "path": "/metadata/uid", "value": uid}
                change = {"op": "add", "path": path, "value": action.reason}
                await self._client.patch(api_resource.PODS, name, namespace, [test, change])
            # With 0 the object would be deleted before the processes end.
            grace = int(action.grace) + self._gangs.margin if action.grace else 1
            await self._client.delete(api_resource.PODS, name, namespace, uid=uid, grace=grace)
        except FairwayError as error:
            log.warning("could not end %s: %s; this is retried", action.key, error)
        return []

    async def _nudge(self, key: TaskKey) -> None:
        pod = self._find(key)
        if pod is not None and not pod.over:
            await self._keeping.touch_stop(pod, key)

    async def _forget(self, key: JobKey) -> None:
        self.forgetting(key)
        for pod in list(self._pods.indexed(BY_RUN, str(key))):
            await self._client.delete(api_resource.PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid, grace=1)
            await self._keeping.let_go(pod)
            self._forgotten.add(pod.metadata.uid)
        await self._gangs.unreach(key)
        self._keeping.forget_all(key)

    # Seeing

    def _remember(self, pod: Pod) -> None:
        """Remember a created pod until the mirror shows it. A version in the mirror is at least as new as the response."""
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if self._pods.get(key) is None:
            self._made[key] = (pod, _steady())

    def _pods_of(self, run: JobKey) -> list[Pod]:
        made = [pod for pod, _ in self._made.values() if by_run(pod) == (str(run),)]
        return [*self._pods.indexed(BY_RUN, str(run)), *made]

    def _find(self, key: TaskKey) -> Pod | None:
        name = f"{key.namespace}/{pod_name.pod_name(key)}"
        mirrored = self._pods.get(name)
        if mirrored is not None and mirrored.metadata.uid in self._forgotten:
            return None
        made = self._made.get(name)
        if mirrored is not None or made is None:
            return mirrored
        if _steady() - made[1] < TRUSTED:
            return made[0]
        # The mirror would show it by now: the pod was deleted before the mirror saw it.
        del self._made[name]
        return None

    def _report(self, key: TaskKey) -> TaskReport | None:
        pod = self._find(key)
        if pod is None:
            return None
        lost = self._lost_node(pod) if not pod.over else ""
        if lost:
            return TaskReport(key, TaskPhase.LOST, node=lost, exit=TaskExit(disrupted=f"its node {lost} was lost"))
        report = pod_report.report(key, pod)
        message = self._outside.why(pod) if self._outside is not None and report.phase is TaskPhase.PLACED else ""
        message = self._stuck.why(pod) if self._stuck is not None and report.phase is TaskPhase.STARTING else message
        if report.phase is TaskPhase.RUNNING and not report.message:
            task, words = self._refused.get(key.run, ("", ""))
            message = words if task in ("", key.task) else message
        return replace(report, message=message) if message else report

    def refuse(self, run: JobKey, task: str, words: str) -> None:
        """Show on the run's task, until the run is over, that a report of it was rejected."""
        if self._refused.get(run) != (task, words):
            log.warning("%s%s: %s", run, f"/{task}" if task else "", words)
            self._refused[run] = (task, words)
            self._wake()

    async def observe(self, keys: Iterable[TaskKey]) -> list[TaskReport]:
        """Return the reports of these tasks.

        Ended tasks that are no longer observed are in the record, so their pods are released.
        """
        observed = list(keys)
        await self._settle(set(observed))
        reports = []
        for key in observed:
            try:
                reports.append(await self._observe_one(key))
            except Exception as error:  # One pod that cannot be observed must not hide the others.
                # The task stays as it was; the next call tries again.
                log.debug("%s", key, exc_info=True)
                self.refuse(key.run, key.task, f"its pod could not be observed: {type(error).__name__}: {error}")
        return reports

    async def _observe_one(self, key: TaskKey) -> TaskReport:
        unprepared = self._unprepared.get(key)
        prepared = await self._create(unprepared) if unprepared is not None else None
        report = self._report(key) or prepared or self._without_pod(key)
        if report.phase.over:
            report = await self._with_last_words(key, report)
            self._told_over.add(key)
        return report

    def _without_pod(self, key: TaskKey) -> TaskReport:
        return TaskReport(key, TaskPhase.PENDING, ready=True) if key in self._prepared else _vanished(key)

    async def _with_last_words(self, key: TaskKey, report: TaskReport) -> TaskReport:
        """Keep the logs now, while the pod exists, and extract the program's last words from them."""
        pod = self._find(key)
        if pod is None or not pod.over or report.exit is None:
            return report
        return replace(report, exit=pod_report.with_last_words(report.exit, await self._keeping.keep(pod, key)))

    async def _settle(self, asked: set[TaskKey]) -> None:
        self._told_over |= self._strays.found(asked, _steady())
        for key in self._told_over - asked:
            if self.may_end(key.run):
                await self._settle_one(key)

    async def measure(self, jobs: Iterable[JobState]) -> list[Observation]:
        """Return nothing: pods send their metrics to the operator themselves (`listening`)."""
        del jobs
        return []

    def logs(self, job: JobState, query: LogQuery) -> AsyncIterator[LogChunk]:
        """Return the output of the run's tasks: of running pods from their nodes, of others from the record."""
        if query.timed:
            message = f"on a cluster, the times of the lines of {job.key.name} are not recorded"
            raise RefusedError(message, fix="omit --timestamps; while the pod exists: kubectl logs --timestamps POD")
        if query.follow and not job.phase.over:
            return self._following.logs(job, query)
        return self._keeping.logs(job, by_task(self._pods.indexed(BY_RUN, str(job.key))), replace(query, follow=False))

    async def kept(self) -> list[JobKey]:
        """Return the runs that have pods or logs."""
        runs = {key for pod in self._pods if (key := _run_of(pod)) is not None}
        return sorted(runs | set(self._keeping.kept()))

    def release(self, key: JobKey) -> None:
        """Release what is kept for a run that is over; readers that follow its logs finish."""
        self._following.end(key)
        self._refused.pop(key, None)
        self._prepared = {task for task in self._prepared if task.run != key}
        self._withdrawn = {task for task in self._withdrawn if task.run != key}
        for task in [task for task in self._told_over if task.run == key]:
            settling = asyncio.ensure_future(self._settle_one(task))
            self._background.add(settling)
            settling.add_done_callback(self._background.discard)

    async def _settle_one(self, task: TaskKey) -> None:
        self._told_over.discard(task)
        pod = self._find(task)
        if pod is None:
            return
        if not pod.over:
            # Its node is lost, and with it the kubelet that would confirm a deletion.
            deletion = self._client.delete(
                api_resource.PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid, grace=0
            )
            await self._trying(deletion, f"delete {task}")
        await self._trying(self._keeping.let_go(pod), f"release the pod of {task}")

    # Beside a task

    async def type_in(self, key: TaskKey, data: bytes) -> None:
        """Refuse: pods of runs have no input."""
        del data
        raise _not_here(key, "has no input")

    async def resize(self, key: TaskKey, rows: int, columns: int) -> None:
        """Refuse: pods of runs have no terminal."""
        del rows, columns
        raise _not_here(key, "has no terminal")

    async def inside(self, key: TaskKey) -> TaskSite:
        """Refuse: a client enters a pod through the API server itself."""
        raise _not_here(key, "is a pod")

    async def usage(self, keys: Iterable[TaskKey]) -> dict[TaskKey, TaskUsage]:
        """Return what the tasks' pods use, as far as it is known."""
        pods = {key: pod for key in keys if (pod := self._find(key)) is not None}
        return await pod_usage.look(self._client, pods, self._gpu_nodes, self.trusted)


def _run_of(pod: Pod) -> JobKey | None:
    run = pod.metadata.labels.get(annotation.RUN)
    ours = pod.metadata.labels.get(annotation.MANAGED_BY) == annotation.MANAGER
    return JobKey(pod.metadata.namespace, run) if run is not None and ours else None


def _never_started(key: TaskKey) -> TaskReport:
    return TaskReport(key, TaskPhase.STOPPED, exit=TaskExit(by_us=True))


def _vanished(key: TaskKey) -> TaskReport:
    return TaskReport(key, TaskPhase.LOST, exit=TaskExit(disrupted="its pod was deleted before its exit was observed"))


def _not_here(key: TaskKey, why: str) -> ConflictError:
    return ConflictError(f"{key.task} of {key.job} {why}", fix=f"use `kubectl exec -n {key.namespace} {pod_name.pod_name(key)}`")


def _steady() -> float:
    return asyncio.get_running_loop().time()
