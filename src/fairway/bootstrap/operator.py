"""A cluster's operator: the same loop, store and application as the daemon's, with pods as tasks."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from starlette.types import ASGIApp

from fairway.api.mlflow.token import token_of
from fairway.api.pods.download import make_given
from fairway.api.pods.metric import Refused, make_told
from fairway.app.application import Application
from fairway.app.job_resize import resize
from fairway.app.loop.fault_register import FaultRegister
from fairway.app.submission import Submission
from fairway.app.system import crash_point
from fairway.app.system.clock import SystemClock
from fairway.app.tracking.run import TokenCaller
from fairway.bootstrap.cluster_api import ClusterApi
from fairway.bootstrap.cluster_registry import ClusterRegistry, ClusterSubmissions
from fairway.bootstrap.cluster_serving import ClusterServing, ServingMirrors
from fairway.bootstrap.database import DATABASE, attach
from fairway.bootstrap.pod_certificate import PodCertificateRoutes, publish
from fairway.bootstrap.pod_route import entitling, following, given_to_pods, output_place, plain_of_older, samples_of
from fairway.bootstrap.pod_server import PodServer
from fairway.engines.kubernetes import health_endpoint
from fairway.engines.kubernetes.annotation import BLOB, CODE, MANAGED_BY, MANAGER, RUN
from fairway.engines.kubernetes.certificate_authority import for_endpoint
from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client import kubeconfig as clusters
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.connection import ApiConnection
from fairway.engines.kubernetes.client.informer import Informer, all_synced
from fairway.engines.kubernetes.client.watch import UndecodableObject, WatchScope
from fairway.engines.kubernetes.controller import KeyController
from fairway.engines.kubernetes.identity.caller import ClusterGroups
from fairway.engines.kubernetes.identity.pod_authenticator import PodAuthenticator
from fairway.engines.kubernetes.leader_election import LeaderElection
from fairway.engines.kubernetes.objects import CustomObject
from fairway.engines.kubernetes.objects.meta import key_of
from fairway.engines.kubernetes.operator.engine import BY_RUN, KubernetesEngine, by_run
from fairway.engines.kubernetes.operator.event import EventRecorder
from fairway.engines.kubernetes.operator.gang import GangContext, GangCreator
from fairway.engines.kubernetes.operator.installation import InstallationSettings
from fairway.engines.kubernetes.operator.log.archive import LogArchive
from fairway.engines.kubernetes.operator.node import both
from fairway.engines.kubernetes.operator.pod.start_diagnosis import PodStartDiagnosis
from fairway.engines.kubernetes.operator.queueing_system import QueueingSystemClient
from fairway.engines.kubernetes.operator.run.recovery import ClusterRunRecovery
from fairway.engines.kubernetes.operator.run.tensorboard import TensorBoardReconciler
from fairway.engines.kubernetes.operator.run.training_job import UID, TrainingJobReconciler
from fairway.engines.kubernetes.serving.naming import BY_SERVICE, by_service
from fairway.engines.kubernetes.shutdown_signal import until_told
from fairway.engines.local.secret import FileSecrets
from fairway.errors import FairwayError, NotFoundError, UsageError
from fairway.registry.upload.run_upload import RunUploads
from fairway.serving.sample_folder import UploadedSampleFolder
from fairway.settings import environment
from fairway.spec.job import RoleReplicas
from fairway.state.event import RunEvent
from fairway.state.fault import WorkFault
from fairway.state.job import JobKey, JobState
from fairway.state.task import Task
from fairway.stores.sqlite.maintenance import StoreMaintenance, is_suspect
from fairway.stores.sqlite.recovery import open_store
from fairway.stores.sqlite.store import SqliteStore

LEASE = "fairway-operator"


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """The settings in the operator's Deployment."""

    installation: Path
    """`FAIRWAY_INSTALLATION`: the administrator's file."""
    home: Path
    """`FAIRWAY_HOME`: folder of the database, on a volume."""
    runs: Path
    """`FAIRWAY_RUNS`: mount point of the volume that runs share."""
    port: int
    """`FAIRWAY_OPERATOR_PORT`: the port to which pods report."""
    endpoint: str
    """`FAIRWAY_OPERATOR_ENDPOINT`: the address of that port for pods."""
    crash_at: str
    identity: str
    health_port: str = ""
    """`FAIRWAY_HEALTH_PORT`: the port for health checks of kubelets."""

    @classmethod
    def from_environment(cls, given: Mapping[str, str]) -> OperatorSettings:
        """Read the settings from environment variables."""
        return cls(
            installation=Path(given.get("FAIRWAY_INSTALLATION") or "/etc/fairway/installation.json"),
            home=Path(given.get("FAIRWAY_HOME") or "/var/lib/fairway"),
            runs=Path(given.get("FAIRWAY_RUNS") or "/var/lib/fairway-runs"),
            port=_port(given.get("FAIRWAY_OPERATOR_PORT") or "8080"),
            endpoint=given.get("FAIRWAY_OPERATOR_ENDPOINT", ""),
            crash_at=given.get("FAIRWAY_CRASH_AT", ""),
            identity=f"{given.get('HOSTNAME') or socket.gethostname()}_{os.getpid()}",
            health_port=given.get(health_endpoint.PORT, ""),
        )


def _port(text: str) -> int:
    try:
        port = int(text)
    except ValueError:
        port = -1
    if not 0 <= port <= 65535:
        message = f"FAIRWAY_OPERATOR_PORT={text!r} is not a port"
        raise UsageError(message, fix="write a number from 1 to 65535 in the operator's Deployment: FAIRWAY_OPERATOR_PORT=8080")
    return port


class IntakeUseCases:
    """The use cases of the application that the intake needs."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def submit(self, submission: Submission) -> JobState:
        """Queue one run."""
        return await self._application.submit(submission)

    async def delete(self, key: JobKey) -> None:
        """Delete a run; a missing run is not an error."""
        with contextlib.suppress(NotFoundError):
            await self._application.delete(key)

    async def stop(self, key: JobKey) -> JobState:
        """Stop a run; it may save first."""
        return await self._application.stop(key)

    async def resume(self, key: JobKey) -> JobState:
        """Resume a run."""
        return await self._application.resume(key)

    async def resize(self, key: JobKey, sizes: Mapping[str, RoleReplicas]) -> JobState | None:
        """Let a run save and restart with other sizes."""
        application = self._application
        return await resize(application.loop, application.store, application.clock, key, sizes)

    def known(self, key: JobKey) -> JobState | None:
        """Return the run of that name."""
        return self._application.loop.snapshot.jobs.get(key) or self._application.store.get_job(key)

    def events(self, job: JobState) -> list[RunEvent]:
        """Return the run's events."""
        return self._application.store.events_of(str(job.key))

    def tasks(self, job: JobState) -> list[Task]:
        """Return every attempt of every task."""
        return self._application.tasks(job)

    def faults(self, job: JobState) -> tuple[WorkFault, ...]:
        """Return the run's current faults."""
        return self._application.loop.faults.of(str(job.key))


class OperatorProcess:
    """One operator process."""

    def __init__(self, settings: OperatorSettings, connection: ApiConnection) -> None:
        self._settings = settings
        self._installation = msgspec.json.decode(settings.installation.read_bytes(), type=InstallationSettings)
        self._clock = SystemClock()
        self._carried = RunUploads(settings.home / "carried")
        self._samples = UploadedSampleFolder(settings.home / "samples")
        self._registry = ClusterRegistry.open(settings.home)
        self._reading = ApiClient(connection)
        self._leader = LeaderElection(self._reading, self._installation.namespace, LEASE, settings.identity)
        self._acting = ApiClient(connection, permit=lambda: self._leader.leading)
        found_by = {BY_RUN: by_run, BY_SERVICE: by_service}
        self._pods = Informer(self._reading, api_resource.PODS, WatchScope(labels=f"{MANAGED_BY}={MANAGER}"), found_by)
        self._nodes = Informer(self._reading, api_resource.NODES)
        self._gpu_nodes = Informer(self._reading, api_resource.GPU_NODES)
        self._objects = Informer(self._reading, api_resource.TRAINING_JOBS)
        self._rights = self._registry.rights(self._acting, self._clock)
        self._record = ClusterApi(self._reading, self._acting, self._clock, self._installation, settings.home)
        self._gangs = GangCreator(
            self._acting,
            self._installation,
            lambda job: self._around(job, _kept_secret(settings.home)),
            both(self._nodes, self._gpu_nodes),
        )
        self._served = ServingMirrors(self._reading, self._gpu_nodes)
        self._outside = QueueingSystemClient(self._reading, self._acting, self._installation.queueing)
        self._stuck = PodStartDiagnosis(self._reading, lambda: self._pods, self._clock.now)
        self._authority = for_endpoint(settings.home, settings.endpoint, self._clock.now)
        self._trusted = self._authority.certificates if self._authority is not None else ""
        self._refused: Refused = lambda _run, _task, _words: None

    async def run(self) -> None:
        """Watch the cluster; act while this process is the leader."""
        mirrors = (self._pods, self._nodes, self._gpu_nodes, self._objects, *self._record.mirrors, *self._served.all)
        watchers = [asyncio.create_task(mirror.run()) for mirror in mirrors]
        watchers += [asyncio.create_task(self._outside.run()), asyncio.create_task(self._stuck.run())]
        watchers.append(
            asyncio.create_task(
                health_endpoint.answer(self._settings.health_port, health_endpoint.HealthEndpoint(mirrors, self._leader))
            )
        )
        try:
            await all_synced(*mirrors)
            await self._leader.run(self._lead)
        finally:
            for watcher in watchers:
                watcher.cancel()

    async def _lead(self) -> None:
        secret = _kept_secret(self._settings.home)
        keeping = LogArchive(self._acting, self._settings.home / "logs", self._carried)
        serving = ClusterServing(
            self._acting,
            self._pods,
            keeping,
            self._served,
            self._installation,
            self._settings.endpoint,
            self._clock,
            secret,
            self._authority,
            self._settings.home,
        )
        application, upkeep = self._build(serving, keeping)
        # The restarted process reopens the database and repairs it.
        upkeep.restart = lambda: os.kill(os.getpid(), signal.SIGTERM)
        self._registry.take_up(application.store)
        await application.loop.start()
        await application.models.start()
        boards = TensorBoardReconciler(self._acting, self._installation, self._owner_of, self._clock)
        happenings = EventRecorder(self._acting, self._settings.identity, self._clock)
        intake = TrainingJobReconciler(self._acting, self._objects, IntakeUseCases(application), self._clock, boards, happenings)
        faults = application.loop.faults
        controller = KeyController(
            "TrainingJob",
            intake.look,
            failed=lambda key, error: faults.fail(key, "follow object", error),
            succeeded=lambda key: faults.clear(key, "follow object"),
        )
        faults.noted.append(lambda subject: controller.add(subject) if "/" in subject and ":" not in subject else None)
        application.loop.watchers.changes.append(lambda key: controller.add(str(key)))
        self._objects.listen(lambda key, _before, _now: controller.add(key))
        self._objects.noted.append(lambda found: faults.fail(key_of(found.head), "read object", ValueError(found.cause)))
        self._pods.noted.append(lambda found: _note_pod(faults, found))
        for key in application.store.job_keys():
            controller.add(str(key))  # Its object may have been deleted while no operator ran.
        await self._record.open(application, self._objects, self._gangs, self._rights)
        if application.services is not None:
            application.services.guard_following(following(self._rights, self._served.objects))
        server = PodServer(self._answers(application, serving, secret), self._settings.port, self._authority)
        await server.open()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(application.loop.run())
                group.create_task(controller.run())
                group.create_task(happenings.run())
                group.create_task(self._record.run())
                group.create_task(serving.run(application, happenings))
                group.create_task(upkeep.run())
                group.create_task(self._publish())
        finally:
            upkeep.close()
            await self._record.close()
            await server.close()
            await application.loop.close()
            application.store.close()

    def _answers(self, application: Application, serving: ClusterServing, secret: bytes) -> ASGIApp:
        """Build the application that handles all requests of pods."""
        sampled = samples_of(application, self._samples, serving.replica_in, secret)
        entitled = entitling(application, self._rights, self._objects, self._served.objects)
        downloads = given_to_pods(self._settings.home, application, self._carried, sampled, secret, self._registry, entitled)
        answers = make_told(application.loop.report, secret, downloads, self._refused)
        answers = plain_of_older(answers, application, self._authority, secret)
        if self._authority is None:
            return answers
        proof = PodAuthenticator(self._acting, self._installation.namespace, self._pods.get)
        return make_given(PodCertificateRoutes(proof, self._authority).routes(), answers)

    async def _publish(self) -> None:
        if self._authority is not None and self._installation.agent:
            await publish(self._acting, self._installation.namespace, self._authority)

    def _build(self, serving: ClusterServing, keeping: LogArchive) -> tuple[Application, StoreMaintenance]:
        home = self._settings.home
        kept_runs = ClusterRunRecovery(self._objects, self._pods, keeping)
        opened = open_store(home / DATABASE, self._clock.now(), kept_runs.any, suspect=is_suspect(home))
        store, submissions = opened.store, ClusterSubmissions(self._rights)
        self._pods.listen(keeping.tailing.notice)
        engine = KubernetesEngine(
            self._acting,
            self._pods,
            self._nodes,
            self._gangs,
            keeping,
            self._owner_of,
            self._gpu_nodes,
        )
        engine.ask(self._outside, self._stuck)
        engine.trusted = self._authority.trusted() if self._authority is not None else None
        self._refused = engine.refuse
        application = Application(
            store,
            serving.engine(engine),
            self._clock,
            FileSecrets(home / "secrets"),
            submissions,
            self._registry.datasets,
            models=self._registry.models,
            serving=serving.serving(self._registry.models, self._samples),
            places=False,
            people=ClusterGroups(),
        )
        assert application.services is not None
        application.services.check_rights = submissions.check_service
        serving.attach(application)
        engine.may_end = lambda key: self._is_settled(store, key)
        engine.forgetting = lambda key: store.mark_deleted([key])
        upkeep = attach(application, opened, kept_runs, home, self._clock)
        application.queues.theirs = bool(self._installation.queueing)
        runs = self._settings.runs
        application.models.output_of = lambda key, name: output_place(self._carried, runs, key, name)
        return application, upkeep

    def _is_settled(self, store: SqliteStore, key: JobKey) -> bool:
        """Return whether unneeded pods of the run may be deleted: it is stored, was deleted, or its object was deleted."""
        return store.has_job(key) or store.was_deleted(key) or self._objects.get(str(key)) is None

    def _owner_of(self, key: JobKey) -> dict[str, Any] | None:
        """Return the owner reference to the object of a run."""
        custom = self._objects.get(str(key))
        return _reference(custom) if custom is not None else None

    def _around(self, job: JobState, secret: bytes) -> GangContext:
        custom = self._objects.get(str(job.key))
        owner = _reference(custom) if custom is not None and custom.metadata.uid == job.labels.get(UID) else None
        code = custom.metadata.annotations.get(CODE, "") if custom is not None else ""
        code = BLOB + job.origin.code_digest if code.startswith(BLOB) else code
        token = token_of(secret, TokenCaller(job.key.namespace, job.key.name))
        find = self._registry.finder(job.key.namespace)
        return GangContext(owner, code, token, self._settings.endpoint, find, self._trusted)


def _reference(found: CustomObject) -> dict[str, Any]:
    return {
        "apiVersion": api_resource.TRAINING_JOBS.api_version,
        "kind": api_resource.TRAINING_JOBS.kind,
        "name": found.metadata.name,
        "uid": found.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _note_pod(faults: FaultRegister, found: UndecodableObject) -> None:
    """Record a fault of the run for a pod that cannot be read."""
    metadata = found.head.metadata
    run = metadata.labels.get(RUN, metadata.name)
    faults.fail(f"{metadata.namespace}/{run}", "read pod", ValueError(f"{metadata.name}: {found.cause}"))


def _kept_secret(home: Path) -> bytes:
    """Return the secret that signs tokens of runs; created once."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = home / "token-secret"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return hashlib.sha256(path.read_bytes()).digest()
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(32))
    return hashlib.sha256(path.read_bytes()).digest()


async def operate(settings: OperatorSettings) -> None:
    """Run the operator until it is stopped. Pods outlive it."""
    target = clusters.find(environment())
    async with ApiConnection(target, SystemClock()) as connection:
        await until_told(OperatorProcess(settings, connection).run())


def main() -> int:
    """Entry point of the operator."""
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    try:
        settings = OperatorSettings.from_environment(environment())
        crash_point.arm(settings.crash_at)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(operate(settings))
    except (FairwayError, errors.ApiError, OSError, msgspec.DecodeError) as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code if isinstance(error, FairwayError) else 1
    return 0
