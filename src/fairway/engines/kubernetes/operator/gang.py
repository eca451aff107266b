"""Creates the pods of a gang: all of them or none, and none twice."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.objects import KubernetesService, Pod
from fairway.engines.kubernetes.operator.initializer import git_checkout
from fairway.engines.kubernetes.operator.installation import FrameworkRuntime, InstallationSettings
from fairway.engines.kubernetes.operator.manifest import gpu, network
from fairway.engines.kubernetes.operator.manifest.headless_service import service
from fairway.engines.kubernetes.operator.manifest.init_container import BRINGER, INJECTED
from fairway.engines.kubernetes.operator.manifest.input import Find, inputs, nowhere
from fairway.engines.kubernetes.operator.manifest.mlflow import track
from fairway.engines.kubernetes.operator.manifest.pod import Manifest, margin, pod
from fairway.engines.kubernetes.operator.pod import name as pod_name
from fairway.engines.kubernetes.operator.pod import policy
from fairway.engines.kubernetes.operator.pod.report import TASK
from fairway.engines.kubernetes.operator.queueing_system import QueueingSystemClient
from fairway.engines.kubernetes.operator.unpack import AUTHORITY_FILE
from fairway.errors import ConflictError, FairwayError, RefusedError
from fairway.plan.action import BindGang
from fairway.runtime import task_contract
from fairway.runtime.pod.fetch import TOKEN as GIVEN_TOKEN
from fairway.runtime.pod.operator_tls import AUTHORITY
from fairway.runtime.pod.pod_order import TOKEN
from fairway.state.job import JobKey, JobState

log = logging.getLogger("fairway.operator")

MANAGER = "fairway-operator"
TOGETHER = 16
"""Maximum number of pods created concurrently."""


class GangContext:
    """What the pods of a run have in common on the cluster."""

    def __init__(
        self,
        owner: Manifest | None = None,
        code: str = "",
        token: str = "",
        endpoint: str = "",
        find: Find = nowhere,
        authority: str = "",
    ) -> None:
        self.owner = owner
        """The TrainingJob object as owner reference: when it is deleted, the pods are deleted."""
        self.code = code
        """The ConfigMap with the code, or `blob:DIGEST`."""
        self.token = token
        """The token with which pods authenticate to the operator."""
        self.endpoint = endpoint
        """The operator's endpoint for reports from pods."""
        self.find = find
        """Resolves references to versions of models and datasets."""
        self.authority = authority
        """The operator's certificate authority, in PEM; empty where there is no TLS."""


class GangCreator:
    """Turns `BindGang` into pods."""

    def __init__(
        self,
        client: ApiClient,
        installation: InstallationSettings,
        around: Callable[[JobState], GangContext],
        nodes: Callable[[], gpu.Nodes] = tuple,
    ) -> None:
        self._client = client
        self._installation = installation
        self._around = around
        self._nodes = nodes
        self.outside: QueueingSystemClient | None = None
        """The external queueing system, if there is one."""
        self.pods: Callable[[JobKey], Iterable[Pod]] = lambda _run: ()
        """Returns the existing pods of a run."""
        self.margin = margin(installation)
        """Seconds added to a task's grace, for the pod to report its end and to bring its last checkpoint."""

    async def reach(self, run: JobKey, owner: Manifest | None) -> None:
        """Apply the Service by which the run's pods find each other.

        Raises `ConflictError` when a Service of that name exists that is not the run's.
        """
        body = service(run, owner, pod_name.standing_service(run, self.pods(run)))
        name = body["metadata"]["name"]
        existing = await self._there(run, name)
        if existing is not None and not _is_of(existing, run):
            message = f"the Service {run.namespace}/{name} exists and does not belong to this run"
            raise ConflictError(message, fix="delete it, or give the job another name")
        await self._client.apply(api_resource.SERVICES, body, manager=MANAGER)

    async def unreach(self, run: JobKey) -> None:
        """Delete the Service that `reach` applied, but never one that is not the run's."""
        for name in (pod_name.service_name(run), pod_name.former_service_name(run)):
            existing = await self._there(run, name)
            if existing is not None and _is_of(existing, run):
                await self._client.delete(api_resource.SERVICES, name, run.namespace, uid=existing.metadata.uid)

    async def _there(self, run: JobKey, name: str) -> KubernetesService | None:
        try:
            return await self._client.get(api_resource.SERVICES, name, run.namespace)
        except errors.NotFound:
            return None

    async def make(self, action: BindGang) -> list[Pod]:
        """Create the pods of the action's tasks and return them, with those that existed already.

        Raises `FairwayError` when not all could be created; then none of them remains.
        """
        bodies = self.manifests(action)
        await self._make_token(action.job, bodies[0])
        if self.outside is not None:
            await self.outside.make_group(action, self._around(action.job).owner)
        slots = asyncio.Semaphore(TOGETHER)

        async def make_one(body: Manifest) -> Pod:
            async with slots:
                return await self._make(body)

        results = await asyncio.gather(*(make_one(body) for body in bodies), return_exceptions=True)
        made = [result for result in results if isinstance(result, Pod)]
        failed = [result for result in results if isinstance(result, BaseException)]
        if not failed:
            return made
        for pod_ in made:
            await self._client.delete(
                api_resource.PODS, pod_.metadata.name, pod_.metadata.namespace, uid=pod_.metadata.uid, grace=0
            )
        raise failed[0]

    async def _make_token(self, job: JobState, body: Manifest) -> None:
        """Create the run's own token Secret. It is the same for every attempt, so an existing one is the right one."""
        around = self._around(job)
        if not around.token or not around.endpoint:
            return
        secret: Manifest = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": token_secret(body), "namespace": job.key.namespace, "labels": {annotation.RUN: job.key.name}},
            "stringData": {"token": around.token},
        }
        if around.owner is not None:
            secret["metadata"]["ownerReferences"] = [around.owner]
        with contextlib.suppress(errors.AlreadyExists):
            await self._client.create(api_resource.SECRETS, secret, job.key.namespace)

    def manifests(self, action: BindGang) -> list[Manifest]:
        """Return the pods as they would be created. Raises `RefusedError` for what the cluster's administrator does not allow."""
        job, allowed, around = action.job, self._installation.allowed, self._around(action.job)
        table = None if job.spec.environment.image else self._installation.runtime_for(job.spec.framework.value)
        taken = policy.taken(self._installation, table)
        refusals = policy.refusals(job.spec.kubernetes.pod, allowed, taken)
        refusals += network.refusals(job, allowed)
        refusals += inputs(job.spec.data, allowed, around.find, taken).refused
        if refusals:
            raise RefusedError("; ".join(refusals), fix="take it out of the document, or ask the administrator of the cluster")
        if job.spec.code.git is not None and not around.code:
            git_checkout.check(job.spec.code.git.url, job.spec.code.git.ref)
        runtime = self.runtime(job)
        peers, service_ = (*action.tasks, *action.peers), pod_name.standing_service(job.key, self.pods(job.key))
        topology = pod_name.topology(job, peers, self._installation.cluster_domain, service_)
        bodies = [pod(job, task, topology, self._installation, runtime, around.code, around.find) for task in action.tasks]
        roles = job.spec.roles
        needs = {task.key.role: task.need for task in action.tasks}
        givers = {role: gpu.giver(need, roles[role].placement, self._nodes, self._installation) for role, need in needs.items()}
        equipped = [
            gpu.give(body, task.need, roles[task.key.role].placement, givers[task.key.role], self._nodes, self._installation)
            for task, body in zip(action.tasks, bodies, strict=True)
        ]
        surrounded = [_surrounded(body, job, around) for body in equipped]
        return self.outside.dressed(action, surrounded, around.owner) if self.outside is not None else surrounded

    def runtime(self, job: JobState) -> FrameworkRuntime:
        """Return the runtime of the run's pods."""
        table = self._installation.runtime_for(job.spec.framework.value)
        image = job.spec.environment.image
        if image:
            return FrameworkRuntime(image)
        if table is None:
            message = f"{job.key.name} names no image, and the cluster has none for {job.spec.framework.value}"
            fix = f"set environment.image, or have an administrator add `runtimes: {{{job.spec.framework.value}: ...}}`"
            raise RefusedError(message, fix=fix)
        return table

    async def _make(self, body: Manifest) -> Pod:
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        try:
            return await self._client.create(api_resource.PODS, body, namespace)
        except errors.AlreadyExists:
            existing = await self._client.get(api_resource.PODS, name, namespace)
            if existing.metadata.labels.get(annotation.RUN) == body["metadata"]["labels"][annotation.RUN]:
                return existing
            message = f"the pod {namespace}/{name} exists and does not belong to this run"
            raise FairwayError(message, fix="delete it, or give the job another name") from None


def _is_of(found: KubernetesService, run: JobKey) -> bool:
    return found.metadata.labels.get(annotation.RUN) == run.name


def token_secret(body: Manifest) -> str:
    """Return the name of the Secret that holds the token of a pod's run."""
    return f"{body['metadata']['labels'][annotation.RUN]}-token"


def _surrounded(body: Manifest, job: JobState, around: GangContext) -> Manifest:
    if around.owner is not None:
        body["metadata"]["ownerReferences"] = [around.owner]
    if around.token and around.endpoint:
        clients = [(body["spec"]["containers"], TASK, TOKEN), (body["spec"]["initContainers"], BRINGER, GIVEN_TOKEN)]
        for containers, name, variable in clients:
            container = next(item for item in containers if item["name"] == name)
            container.setdefault("env", []).extend(
                [
                    {"name": task_contract.ENDPOINT, "value": around.endpoint},
                    {"name": variable, "valueFrom": {"secretKeyRef": {"name": token_secret(body), "key": "token"}}},
                    *([{"name": AUTHORITY, "value": around.authority}] if around.authority else []),
                ]
            )
        task = next(item for item in body["spec"]["containers"] if item["name"] == TASK)
        file = f"{INJECTED}/{AUTHORITY_FILE}" if around.authority else ""
        track(task, job, body["metadata"]["labels"][annotation.ROLE], around.endpoint, token_secret(body), file)
    return body
