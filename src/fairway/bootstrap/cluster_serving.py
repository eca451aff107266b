"""Assembles serving in a cluster: what the operator adds to its loop so that ModelService objects become services."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path

from fairway.api.mlflow.token import token_of
from fairway.app.application import Application
from fairway.app.key import KeyUseCases
from fairway.app.port.port import Clock
from fairway.app.port.serving import ModelResolver, ServingPorts
from fairway.app.service import ServiceUseCases
from fairway.app.tracking.run import TokenCaller
from fairway.bootstrap.cluster_key import ClusterKeys
from fairway.engines.kubernetes.annotation import MANAGED_BY, MANAGER, SERVICE
from fairway.engines.kubernetes.certificate_authority import CertificateAuthority
from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.client.watch import WatchScope
from fairway.engines.kubernetes.controller import KeyController
from fairway.engines.kubernetes.objects import CustomObject, Deployment, GpuNode, Pod
from fairway.engines.kubernetes.objects import KubernetesService as ServiceObject
from fairway.engines.kubernetes.operator.engine import KubernetesEngine
from fairway.engines.kubernetes.operator.event import EventRecorder
from fairway.engines.kubernetes.operator.installation import InstallationSettings
from fairway.engines.kubernetes.operator.log.archive import LogArchive
from fairway.engines.kubernetes.serving.cluster_engine import ClusterEngine
from fairway.engines.kubernetes.serving.cluster_router import ClusterRouter
from fairway.engines.kubernetes.serving.endpoint_exposure import cluster_lacks
from fairway.engines.kubernetes.serving.gateway_sync import RequestPath
from fairway.engines.kubernetes.serving.manifest import PYTHON
from fairway.engines.kubernetes.serving.model_service_intake import ModelServiceIntake
from fairway.engines.kubernetes.serving.pod_watch import PodWatch
from fairway.engines.kubernetes.serving.replica_engine import ReplicaEngine
from fairway.engines.kubernetes.serving.replica_log import ReplicaLogs
from fairway.engines.kubernetes.serving.service_controller import ServiceController, ServiceMirrors
from fairway.serving.replica_prober import PodLoadClient
from fairway.serving.router.daemon.remote_router import RemoteRouters
from fairway.serving.router.wire_format import encode_plan
from fairway.serving.sample_folder import UploadedSampleFolder
from fairway.state.job import JobKey
from fairway.state.service import ServiceKey, ServiceState
from fairway.state.serving.access import PortProtection
from fairway.state.serving.route import RoutePlan
from fairway.state.snapshot import PlannerSnapshot

TOLD = 100
"""Number of a service's latest events that are checked for new ones."""


class ServingMirrors:
    """The mirrors of objects needed for services, besides pods."""

    def __init__(self, client: ApiClient, gpu_nodes: Informer[GpuNode]) -> None:
        self.gpu_nodes = gpu_nodes
        ours = f"{MANAGED_BY}={MANAGER}"
        self.deployments: Informer[Deployment] = Informer(
            client, api_resource.DEPLOYMENTS, WatchScope(labels=f"{ours},{SERVICE}")
        )
        self.services: Informer[ServiceObject] = Informer(client, api_resource.SERVICES, WatchScope(labels=ours))
        self.objects: Informer[CustomObject] = Informer(client, api_resource.MODEL_SERVICES)

    @property
    def all(self) -> tuple[Informer[Deployment], Informer[ServiceObject], Informer[CustomObject]]:
        """All mirrors."""
        return self.deployments, self.services, self.objects


class ClusterServing:
    """Services in a cluster, for one term of the leader."""

    def __init__(
        self,
        client: ApiClient,
        pods: Informer[Pod],
        keeping: LogArchive,
        mirrors: ServingMirrors,
        installation: InstallationSettings,
        endpoint: str,
        clock: Clock,
        secret: bytes,
        authority: CertificateAuthority | None = None,
        home: Path | None = None,
    ) -> None:
        self._client = client
        self._installation = installation
        self._clock = clock
        self._secret = secret
        self._mirrors = mirrors
        self._application: Application | None = None
        self._replicas = ReplicaEngine(client, pods, ReplicaLogs(keeping, pods.get), mirrors.gpu_nodes)
        trusted = authority.trusted() if authority is not None else None
        self._replicas.trusted = trusted
        self._watch = PodWatch(pods, clock, PodLoadClient(trusted).ask)
        talk = RemoteRouters(clock, trusted)
        self._router = ClusterRouter(pods, mirrors.deployments, talk, lambda key: self.tokens(key)[1], clock)
        self._router.cluster_domain = installation.cluster_domain
        self._router_keys = ClusterKeys((home or Path("/var/lib/fairway")) / "keys", self._router)
        whole = ServiceMirrors(pods, mirrors.deployments, mirrors.services, mirrors.objects)
        self._objects = ServiceController(client, whole, installation, endpoint, self, clock.now)
        self._objects.authority = authority.certificates if authority is not None else ""
        self._writing = KeyController("services", self._objects.look)

    def engine(self, jobs: KubernetesEngine) -> ClusterEngine:
        """Return the engine for jobs and replicas."""
        return ClusterEngine(jobs, self._replicas)

    def serving(self, models: ModelResolver, samples: UploadedSampleFolder) -> ServingPorts:
        """Return what the application needs to serve models."""
        self._replicas.forgotten = samples.forget
        return ServingPorts(self._router, self._watch, models, PYTHON, samples)

    def replica_in(self, key: ServiceKey, pod: str) -> tuple[JobKey, bool]:
        """Return the replica of a service's pod, and whether it was asked to end. Raises `FairwayError` if there is none."""
        return self._replicas.run_in(key, pod)

    async def run(self, application: Application, happenings: EventRecorder) -> None:
        """Keep objects and services in sync until cancelled."""
        services = application.services
        assert services is not None

        def said(found: CustomObject, key: ServiceKey) -> None:
            happenings.tell(found, application.events(f"service:{key}", TOLD), api_resource.MODEL_SERVICES)

        intake = ModelServiceIntake(self._client, self._mirrors.objects, services, self, self._installation, self._clock, said)
        faults = application.loop.faults
        intake_controller = KeyController(
            "ModelService",
            intake.look,
            failed=lambda key, error: faults.fail(f"service:{key}", "follow object", error),
            succeeded=lambda key: faults.clear(f"service:{key}", "follow object"),
        )
        poke = self._poking(intake_controller)
        self._objects.way_changed(lambda key: intake_controller.add(str(key)))
        self._mirrors.objects.listen(lambda key, _before, _now: intake_controller.add(key))
        self._mirrors.deployments.listen(lambda _key, before, now: poke(_service_of(now or before)))
        self._mirrors.services.listen(lambda _key, before, now: poke(_service_of(now or before)))
        for standing in services.all():
            poke(standing.service.key)  # Its object may have been deleted while no operator ran.

        async def tell() -> None:
            while True:
                await services.changed()
                for standing in services.all():
                    intake_controller.add(str(standing.service.key))

        async with asyncio.TaskGroup() as group:
            group.create_task(self._writing.run())
            group.create_task(intake_controller.run())
            group.create_task(tell())

    def attach(self, application: Application) -> None:
        """Connect to the application that holds the desired state."""
        self._application = application
        self._replicas.snapshot = self.snapshot
        if application.services is not None:
            self._guard(application.services)
        self._router.by_gateway, self._router.loads = self._objects.by_gateway, self._watch.loads
        self._replicas.changed = self._router.changed = lambda key: self._writing.add(str(key))

    def _guard(self, services: ServiceUseCases) -> None:
        """Give services API keys; endpoint fields that apply only to a single machine are refused."""
        services.keys = KeyUseCases(self._router_keys, self._clock, secrets.token_hex)
        services.keys.noted = lambda service, reason, message: services.note(ServiceKey(*service.split("/", 1)), reason, message)
        services.access_state = lambda service: PortProtection(len(self._router_keys.rules(ServiceKey(*service.split("/", 1)))))
        services.check_endpoint = cluster_lacks
        services.in_cluster = True
        self._router.dropped = self._router_keys.forget

    def _poking(self, taking: KeyController) -> Callable[[ServiceKey | None], None]:
        def poke(key: ServiceKey | None) -> None:
            if key is not None:
                self._writing.add(str(key))
                taking.add(str(key))

        return poke

    # Desired state and known state

    def service(self, key: ServiceKey) -> ServiceState | None:
        """Return the service of that name."""
        services = self._application.services if self._application is not None else None
        return services.find(key).service if services is not None and services.is_kept(key) else None

    def plan(self, key: ServiceKey) -> RoutePlan | None:
        """Return the routes of the service."""
        return self._router.plans.get(key)

    def plan_text(self, plan: RoutePlan) -> bytes:
        """Encode the plan for routers."""
        return encode_plan(plan)

    def snapshot(self) -> PlannerSnapshot:
        """Return the runs, including replicas."""
        return self._application.loop.snapshot if self._application is not None else PlannerSnapshot()

    def tokens(self, key: ServiceKey) -> tuple[str, str]:
        """Return the token of the service's pods, and the token that its router requires."""
        pod_token = token_of(self._secret, TokenCaller(key.namespace, f"service:{key.name}"))
        return pod_token, token_of(self._secret, TokenCaller(key.namespace, f"router:{key.name}"))

    def key_records(self, key: ServiceKey) -> bytes:
        """Return the records of the service's API keys, in the format of routers."""
        return self._router_keys.records(key)

    def front(self, key: ServiceKey) -> str:
        """Return the name of the Service for clients."""
        return self._objects.fronts.get(key, "")

    def way(self, key: ServiceKey) -> RequestPath:
        """Return how requests reach the service: through a gateway or through Fairway's own router."""
        return self._objects.way(key)

    def trouble(self, key: ServiceKey) -> str:
        """Return why the service's objects are not in the desired state."""
        refused = self._router.refused.get(key, "")
        return self._objects.trouble.get(key, "") or (f"a router reports impossible counts: {refused}" if refused else "")


def _service_of(found: Deployment | ServiceObject | None) -> ServiceKey | None:
    name = found.metadata.labels.get(SERVICE) if found is not None else None
    return ServiceKey(found.metadata.namespace, name) if found is not None and name is not None else None
