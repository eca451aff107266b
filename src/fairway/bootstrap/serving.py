"""Assembles serving in a cluster: what the operator adds to its loop so that ModelService objects become services."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path

from fairway.api.mlflow.token import token_of
from fairway.app.application import Application
from fairway.app.ports import Clock
from fairway.app.service_keys import ServiceKeys
from fairway.app.service_ports import ModelCatalogue, Serving
from fairway.app.services import Services
from fairway.app.tracking import Speaker
from fairway.bootstrap.cluster_keys import ClusterKeys
from fairway.engines.kubernetes.authority import Authority
from fairway.engines.kubernetes.client import kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.mirror import Mirror
from fairway.engines.kubernetes.client.watch import Scope
from fairway.engines.kubernetes.controller import Controller
from fairway.engines.kubernetes.marks import MANAGED_BY, MANAGER, SERVICE
from fairway.engines.kubernetes.objects import Custom, Deployment, GpuNode, Pod
from fairway.engines.kubernetes.objects import Service as ServiceObject
from fairway.engines.kubernetes.operator.engine import KubernetesEngine
from fairway.engines.kubernetes.operator.happenings import Happenings
from fairway.engines.kubernetes.operator.installation import Installation
from fairway.engines.kubernetes.operator.keeping import Keeping
from fairway.engines.kubernetes.serving.controller import Mirrors, ServiceObjects
from fairway.engines.kubernetes.serving.exposure import cluster_lacks
from fairway.engines.kubernetes.serving.gateways import Way
from fairway.engines.kubernetes.serving.intake import ServiceIntake
from fairway.engines.kubernetes.serving.lasting import ReplicaLogs
from fairway.engines.kubernetes.serving.manifests import PYTHON
from fairway.engines.kubernetes.serving.replicas import Replicas
from fairway.engines.kubernetes.serving.router import ClusterRouter
from fairway.engines.kubernetes.serving.sights import PodWatch
from fairway.engines.kubernetes.serving.split import ClusterEngine
from fairway.serving.router.remote import RemoteRouters
from fairway.serving.router.wire import encode_plan
from fairway.serving.samples import ReceivedSamples
from fairway.serving.watch import PodLoads
from fairway.state.access import AccessState
from fairway.state.job import JobKey
from fairway.state.route import RoutePlan
from fairway.state.service import Service, ServiceKey
from fairway.state.snapshot import Snapshot

TOLD = 100
"""Number of a service's latest events that are checked for new ones."""


class ServingMirrors:
    """The mirrors of objects needed for services, besides pods."""

    def __init__(self, client: Client, gpu_nodes: Mirror[GpuNode]) -> None:
        self.gpu_nodes = gpu_nodes
        ours = f"{MANAGED_BY}={MANAGER}"
        self.deployments: Mirror[Deployment] = Mirror(client, kinds.DEPLOYMENTS, Scope(labels=f"{ours},{SERVICE}"))
        self.services: Mirror[ServiceObject] = Mirror(client, kinds.SERVICES, Scope(labels=ours))
        self.objects: Mirror[Custom] = Mirror(client, kinds.MODEL_SERVICES)

    @property
    def all(self) -> tuple[Mirror[Deployment], Mirror[ServiceObject], Mirror[Custom]]:
        """All mirrors."""
        return self.deployments, self.services, self.objects


class ClusterServing:
    """Services in a cluster, for one term of the leader."""

    def __init__(
        self,
        client: Client,
        pods: Mirror[Pod],
        keeping: Keeping,
        mirrors: ServingMirrors,
        installation: Installation,
        endpoint: str,
        clock: Clock,
        secret: bytes,
        authority: Authority | None = None,
        home: Path | None = None,
    ) -> None:
        self._client = client
        self._installation = installation
        self._clock = clock
        self._secret = secret
        self._mirrors = mirrors
        self._application: Application | None = None
        self._replicas = Replicas(client, pods, ReplicaLogs(keeping, pods.get), mirrors.gpu_nodes)
        trusted = authority.trusted() if authority is not None else None
        self._replicas.trusted = trusted
        self._watch = PodWatch(pods, clock, PodLoads(trusted).ask)
        talk = RemoteRouters(clock, trusted)
        self._router = ClusterRouter(pods, mirrors.deployments, talk, lambda key: self.tokens(key)[1], clock)
        self._router.cluster_domain = installation.cluster_domain
        self._router_keys = ClusterKeys((home or Path("/var/lib/fairway")) / "keys", self._router)
        whole = Mirrors(pods, mirrors.deployments, mirrors.services, mirrors.objects)
        self._objects = ServiceObjects(client, whole, installation, endpoint, self, clock.now)
        self._objects.authority = authority.certificates if authority is not None else ""
        self._writing = Controller("services", self._objects.look)

    def engine(self, jobs: KubernetesEngine) -> ClusterEngine:
        """Return the engine for jobs and replicas."""
        return ClusterEngine(jobs, self._replicas)

    def serving(self, models: ModelCatalogue, samples: ReceivedSamples) -> Serving:
        """Return what the application needs to serve models."""
        self._replicas.forgotten = samples.forget
        return Serving(self._router, self._watch, models, PYTHON, samples)

    def replica_in(self, key: ServiceKey, pod: str) -> tuple[JobKey, bool]:
        """Return the replica of a service's pod, and whether it was asked to end. Raises `FairwayError` if there is none."""
        return self._replicas.run_in(key, pod)

    async def run(self, application: Application, happenings: Happenings) -> None:
        """Keep objects and services in sync until cancelled."""
        services = application.services
        assert services is not None

        def said(found: Custom, key: ServiceKey) -> None:
            happenings.tell(found, application.events(f"service:{key}", TOLD), kinds.MODEL_SERVICES)

        intake = ServiceIntake(self._client, self._mirrors.objects, services, self, self._installation, self._clock, said)
        faults = application.loop.faults
        intake_controller = Controller(
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

    def _guard(self, services: Services) -> None:
        """Give services API keys; endpoint fields that apply only to a single machine are refused."""
        services.keys = ServiceKeys(self._router_keys, self._clock, secrets.token_hex)
        services.keys.noted = lambda service, reason, message: services.note(ServiceKey(*service.split("/", 1)), reason, message)
        services.access_state = lambda service: AccessState(len(self._router_keys.rules(ServiceKey(*service.split("/", 1)))))
        services.check_endpoint = cluster_lacks
        services.in_cluster = True
        self._router.dropped = self._router_keys.forget

    def _poking(self, taking: Controller) -> Callable[[ServiceKey | None], None]:
        def poke(key: ServiceKey | None) -> None:
            if key is not None:
                self._writing.add(str(key))
                taking.add(str(key))

        return poke

    # Desired state and known state

    def service(self, key: ServiceKey) -> Service | None:
        """Return the service of that name."""
        services = self._application.services if self._application is not None else None
        return services.find(key).service if services is not None and services.is_kept(key) else None

    def plan(self, key: ServiceKey) -> RoutePlan | None:
        """Return the routes of the service."""
        return self._router.plans.get(key)

    def plan_text(self, plan: RoutePlan) -> bytes:
        """Encode the plan for routers."""
        return encode_plan(plan)

    def snapshot(self) -> Snapshot:
        """Return the runs, including replicas."""
        return self._application.loop.snapshot if self._application is not None else Snapshot()

    def tokens(self, key: ServiceKey) -> tuple[str, str]:
        """Return the token of the service's pods, and the token that its router requires."""
        pod_token = token_of(self._secret, Speaker(key.namespace, f"service:{key.name}"))
        return pod_token, token_of(self._secret, Speaker(key.namespace, f"router:{key.name}"))

    def key_records(self, key: ServiceKey) -> bytes:
        """Return the records of the service's API keys, in the format of routers."""
        return self._router_keys.records(key)

    def front(self, key: ServiceKey) -> str:
        """Return the name of the Service for clients."""
        return self._objects.fronts.get(key, "")

    def way(self, key: ServiceKey) -> Way:
        """Return how requests reach the service: through a gateway or through Fairway's own router."""
        return self._objects.way(key)

    def trouble(self, key: ServiceKey) -> str:
        """Return why the service's objects are not in the desired state."""
        refused = self._router.refused.get(key, "")
        return self._objects.trouble.get(key, "") or (f"a router reports impossible counts: {refused}" if refused else "")


def _service_of(found: Deployment | ServiceObject | None) -> ServiceKey | None:
    name = found.metadata.labels.get(SERVICE) if found is not None else None
    return ServiceKey(found.metadata.namespace, name) if found is not None and name is not None else None
