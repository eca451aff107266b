"""The daemon: the application with the local engine."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
import socket
import sys
from pathlib import Path

import uvloop

from fairway.api.asgi import DaemonInfo, make_api
from fairway.api.mlflow.asgi import make_mlflow
from fairway.api.mlflow.endpoint import MlflowEndpoint
from fairway.app.application import Application
from fairway.app.key import KeyUseCases
from fairway.app.port.serving import ServingPorts
from fairway.app.service import ServiceUseCases
from fairway.app.system.clock import CLOCK, SystemClock
from fairway.app.tracking.model import TrackedModelUseCases
from fairway.app.tracking.run import TokenCaller, TrackingUseCases
from fairway.bootstrap.database import DATABASE, attach
from fairway.bootstrap.server import DaemonServer, EmbeddedServer, config
from fairway.devices.device_probe import pick_probe
from fairway.engines.local.artifact import LocalArtifacts
from fairway.engines.local.engine import LocalEngine
from fairway.engines.local.home import EngineHome
from fairway.engines.local.provision.caller_environment import forget_environments
from fairway.engines.local.provision.preparer import RunPreparer
from fairway.engines.local.run_record import LocalRunRecords
from fairway.engines.local.secret import FileSecrets
from fairway.engines.local.submission import LocalSubmissions
from fairway.errors import UnavailableError
from fairway.registry.dataset import DatasetRegistry
from fairway.registry.model import ModelRegistry
from fairway.registry.remote_blob import open_blobs
from fairway.sdk.transport import local_path
from fairway.serving.model_admission import ModelAdmission
from fairway.serving.replica_prober import HttpReplicaProber
from fairway.serving.router.access.endpoint_check import endpoint_lacks
from fairway.serving.router.daemon.local_router import LocalRouter
from fairway.serving.router.daemon.router_selector import RouterSelector, needs_own
from fairway.serving.router.envoy.envoy_router import EnvoyRouter, find_envoy
from fairway.serving.router.router_folder import ROUTERS
from fairway.serving.sample_folder import LocalSampleFolder
from fairway.settings import Settings
from fairway.state.job import JobKey
from fairway.state.service import ServiceKey
from fairway.stores.sqlite.maintenance import StoreMaintenance, is_suspect
from fairway.stores.sqlite.recovery import open_store
from fairway.version import VERSION

MOST_RESTARTS = 5
"""Maximum number of times one process reopens its database after damage."""


def build(settings: Settings, door: MlflowEndpoint) -> tuple[Application, StoreMaintenance]:
    """Build the application with the local engine, and the upkeep of its database."""
    home = EngineHome.open(settings.home)
    clock = SystemClock(settings.home / CLOCK)
    blobs = open_blobs(home.path / "blobs", settings.blobs)
    kept_runs = LocalRunRecords(home, clock)
    opened = open_store(home.path / DATABASE, clock.now(), kept_runs.any, suspect=is_suspect(home.path))
    store = opened.store
    if opened.recovery is None and not store.active_jobs():
        clock.follow_wall()
    hidden = FileSecrets(settings.home / "secrets")
    engine = LocalEngine(
        home,
        machine_folder=settings.machine_folder,
        node_name=settings.node_name,
        probe=pick_probe(settings.fake_gpus, settings.machine_folder),
        preparer=RunPreparer(home, blobs=blobs),
        reveal=hidden.reveal,
        clock=clock,
        cpus=settings.cpus,
        other=settings.other_resources(),
        tracks=door.variables,
        held=door.held,
    )
    models = ModelRegistry(home.path, blobs)
    # Socket paths must be short, so they are placed beside the daemon's own socket.
    own_router = LocalRouter(home.path / ROUTERS, settings.socket.parent, clock, hosts=settings.hosts)
    router = choose_router(settings, home, clock, own_router)
    application = Application(
        store,
        engine,
        clock,
        hidden,
        LocalSubmissions(home, blobs),
        DatasetRegistry(home.path, blobs),
        models=models,
        serving=ServingPorts(router, HttpReplicaProber(clock), models, sys.executable, LocalSampleFolder(home.path / "jobs")),
    )
    application.loop.stalls.after = settings.stall_after
    engine.activity.every = min(engine.activity.every, settings.stall_after / 4)
    engine.is_over = application.is_over
    engine.forgetting = lambda key: store.mark_deleted([key])
    application.loop.watchers.over.append(engine.note_end)
    upkeep = attach(application, opened, kept_runs, home.path, clock)
    if application.services is not None:
        router.reason = application.services.asking(needs_own)
        application.services.routed_by = router.told
        application.services.check_model = ModelAdmission(models.folder).check
        application.services.outcome_token = router.outcome_token
        guard_endpoints(application.services, own_router, clock)
        application.services.access_folder = router.access_folder
    application.models.output_of = lambda key, name: str(home.job(key) / "outputs" / name)
    return application, upkeep


def guard_endpoints(services: ServiceUseCases, own: LocalRouter, clock: SystemClock) -> None:
    """Give services API keys and certificates, which their router stores and checks."""
    services.keys = KeyUseCases(own, clock, secrets.token_hex)
    services.keys.noted = lambda service, reason, message: services.note(ServiceKey(*service.split("/", 1)), reason, message)
    services.access_state = own.access_state
    services.check_endpoint = lambda service: endpoint_lacks(service, clock.now())


def choose_router(settings: Settings, home: EngineHome, clock: SystemClock, own: LocalRouter) -> RouterSelector:
    """Build Fairway's own router and Envoy, and choose which of them new services get."""
    program: Path | None = None
    try:
        program = find_envoy()
    except UnavailableError:
        if settings.router == "envoy":
            raise
    # Also if Envoy is not wanted or no longer installed: routers started earlier must be ended.
    envoy = EnvoyRouter(program or Path("envoy"), home.path / "envoys", settings.socket.parent, clock, settings.hosts)
    return RouterSelector(
        own, envoy, wanted=program is not None and settings.router != "fairway", tokens=own.outcome_token, logs=own.access_folder
    )


def about(settings: Settings) -> DaemonInfo:
    """Return information about the daemon."""
    try:
        envoy = f"Envoy at {find_envoy()}"
    except UnavailableError as problem:
        envoy = problem.fix
    uses_envoy = settings.router != "fairway" and envoy.startswith("Envoy")
    return DaemonInfo(VERSION, os.getpid(), str(settings.home), "envoy" if uses_envoy else "fairway", envoy)


def build_mlflow(application: Application, settings: Settings, door: MlflowEndpoint) -> EmbeddedServer:
    """Build the server for MLflow clients."""
    artifacts = LocalArtifacts(EngineHome.open(settings.home))
    artifacts.forget_halves()
    models = TrackedModelUseCases(TrackingUseCases(application.loop), artifacts, application.models)

    def is_there(speaker: TokenCaller) -> bool:
        return not speaker.run or application.store.get_job(JobKey(speaker.namespace, speaker.run)) is not None

    return EmbeddedServer(config(make_mlflow(models, door.secret, is_there)))


async def serve(settings: Settings) -> bool:
    """Run the daemon until it is stopped. Tasks outlive it. True: the database is damaged, and the daemon must start again."""
    door = MlflowEndpoint.open(settings.home)
    application, upkeep = build(settings, door)
    await application.loop.start()
    await application.models.start()
    forget_environments(EngineHome.open(settings.home), application.is_over)
    loop_task = asyncio.create_task(application.loop.run())
    # Listen only now, so that every client that can connect gets a response.
    listener = _listen(settings)
    server = DaemonServer(config(make_api(application, about(settings))))
    mlflow_server = build_mlflow(application, settings, door)
    await mlflow_server.open(door.listening)
    upkeep.restart = lambda: server.handle_exit(0, None)
    upkeep_task = asyncio.create_task(upkeep.run())
    # Everything loaded so far is permanent: exclude it from garbage collection.
    gc.collect()
    gc.freeze()
    try:
        await server.serve(sockets=[listener])
    finally:
        with contextlib.suppress(FileNotFoundError):
            settings.socket.unlink()
        await mlflow_server.close(door.listening)
        await application.loop.close()
        await loop_task
        upkeep.close()
        await upkeep_task
        application.store.close()
    return bool(upkeep.damage)


def _listen(settings: Settings) -> socket.socket:
    """Create the daemon's socket, accessible only to its owner. The caller holds the home's lock, so an old socket is unused."""
    local_path.make_runtime_folder(str(settings.socket.parent))
    with contextlib.suppress(FileNotFoundError):
        settings.socket.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old_umask = os.umask(0o177)
    try:
        listener.bind(str(settings.socket))
    finally:
        os.umask(old_umask)
    listener.listen(512)
    link = settings.home / local_path.SOCKET_LINK
    new_link = settings.home / f".{local_path.SOCKET_LINK}.{os.getpid()}"
    new_link.symlink_to(settings.socket)
    new_link.replace(link)
    return listener


def run(settings: Settings) -> int:
    """Run the daemon until it ends; return the exit code. The caller holds the home's lock."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for _ in range(MOST_RESTARTS):
            if not runner.run(serve(settings)):
                return 0
    sys.stderr.write(f"{settings.home / DATABASE} was found damaged {MOST_RESTARTS} times\n  fix: look at the disk (dmesg)\n")
    return UnavailableError.exit_code
