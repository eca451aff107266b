"""The cluster's engine keeps the port's contract: the suite of the local and the simulated one, with pods on real nodes.

Four promises are kept by other components on a cluster, or a moment later; each is tested here in the form in which it holds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from cluster import image
from cluster.installed import Installed
from cluster.nodes import RealCluster
from cluster.process import wait_for

from fairway.app.port.port import Engine
from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes.annotation import MANAGED_BY, MANAGER
from fairway.engines.kubernetes.client import api_resource, kubeconfig
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.connection import ApiConnection
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.client.watch import WatchScope
from fairway.engines.kubernetes.operator.engine import BY_RUN, KubernetesEngine, by_run
from fairway.engines.kubernetes.operator.gang import GangContext, GangCreator
from fairway.engines.kubernetes.operator.installation import FrameworkRuntime, InstallationSettings
from fairway.engines.kubernetes.operator.log.archive import LogArchive
from fairway.plan.action import BindGang, CreateTask, ForgetJob
from fairway.runtime import task_contract
from fairway.state.job import JobState
from fairway.state.phase import TaskPhase
from fairway.state.task import TaskKey
from fairway.testing.builder.job_builder import a_job
from fairway.testing.conformance import engine_conformance
from fairway.testing.conformance.engine_conformance import (
    ConformanceBehaviour,
    EngineConformance,
    bound,
    ended,
    ready,
    started_once,
    until,
)

pytestmark = pytest.mark.timeout(300)
PATIENCE = 120.0

SAY = 'echo hello; echo x >> "$FAIRWAY_ATTEMPT_DIR/starts"; '
COMMANDS = {
    ConformanceBehaviour.SUCCEEDS: SAY + "exit 0",
    ConformanceBehaviour.FAILS: SAY + "exit 3",
    ConformanceBehaviour.REQUEUES: SAY + "exit 75",
    ConformanceBehaviour.STAYS: SAY + "exec sleep 600",
    ConformanceBehaviour.STUBBORN: "trap '' TERM INT HUP; " + SAY + "while :; do sleep 600 & wait; done",
    ConformanceBehaviour.BREEDS: SAY
    + "trap '' TERM; sleep 600 & setsid sleep 600 & (setsid sh -c 'sleep 600 & sleep 600' &) ; exit 0",
}


@dataclass
class World:
    """A cluster with our scheduler, and a folder that all pods share."""

    cluster: RealCluster
    runs: Path
    installation: InstallationSettings
    record: Path


@pytest.fixture(scope="module")
def world(real_nodes: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("conformance")
    runs = folder / "runs"
    runs.mkdir()
    real_nodes.load(image.fairway(real_nodes.plane.folder / "fairway.tar"))
    installed = Installed(real_nodes.plane, folder)
    installed.install()
    installed.start("scheduler")
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    wait_for("the service account", lambda: real_nodes.plane.get(account)[0] == 200)
    volume = {"hostPath": {"path": str(runs)}}
    own = InstallationSettings(image.FAIRWAY, runtimes={"default": FrameworkRuntime(image.FAIRWAY)}, run_volume=volume)
    yield World(real_nodes, runs, own, folder / "logs")
    installed.kill("scheduler")
    installed.stop()


@dataclass
class KubernetesStage:
    """Engines over one cluster, each with its own cache of the cluster's state."""

    world: World
    connection: ApiConnection
    engine: Engine = field(init=False)
    following: list[asyncio.Task[None]] = field(default_factory=list)

    async def another(self) -> Engine:
        client = ApiClient(self.connection)
        pods = Informer(client, api_resource.PODS, WatchScope(labels=f"{MANAGED_BY}={MANAGER}"), {BY_RUN: by_run})
        nodes = Informer(client, api_resource.NODES)
        for mirror in (pods, nodes):
            self.following.append(asyncio.create_task(mirror.run()))
            await mirror.synced()
        gangs = GangCreator(client, self.world.installation, lambda _job: GangContext())
        engine = KubernetesEngine(client, pods, nodes, gangs, LogArchive(client, self.world.record), lambda _key: None)
        await engine.start(lambda: None)
        return engine

    def job(self, name: str, behaviour: ConformanceBehaviour, replicas: int = 1) -> JobState:
        command = ["sh", "-c", COMMANDS[behaviour]] if behaviour in COMMANDS else ["no-such-program"]
        roles = {"worker": {"command": command, "replicas": {"min": replicas, "max": replicas}, "resources": {"cpu": "10m"}}}
        return a_job(name=name, roles=roles, framework="command")  # type: ignore[arg-type]

    def starts(self, key: TaskKey) -> int:
        file = self.world.runs / key.namespace / key.job / "attempts" / f"{key.task}-{key.attempt}" / "starts"
        return len(file.read_text().split()) if file.exists() else 0

    def left(self, key: TaskKey) -> Sequence[str]:
        """Return the processes with the task's own environment: the nodes run on this machine."""
        marks = {f"{task_contract.JOB}={key.job}", f"{task_contract.TASK}={key.task}", f"{task_contract.ATTEMPT}={key.attempt}"}
        return [path.name for path in Path("/proc").glob("[0-9]*") if marks <= environment_of(path)]

    async def pass_time(self) -> None:
        await asyncio.sleep(0.05)


def environment_of(process: Path) -> set[str]:
    with contextlib.suppress(OSError):
        return set((process / "environ").read_bytes().decode(errors="replace").split("\0"))
    return set()


class TestKubernetesEngine(EngineConformance):
    @pytest.fixture
    async def stage(self, world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubernetesStage]:
        monkeypatch.setattr(engine_conformance, "PATIENCE", PATIENCE)
        target = kubeconfig.read_kubeconfig(world.cluster.plane.kubeconfig()).target()
        async with ApiConnection(target, SystemClock()) as connection:
            stage = KubernetesStage(world, connection)
            stage.engine = await stage.another()
            yield stage
            await stage.engine.perform([ForgetJob(key) for key in await stage.engine.kept()])
        # Only now: a cancelled watch leaves its stream open until the connection is closed.
        for one in stage.following:
            one.cancel()
        await asyncio.gather(*stage.following, return_exceptions=True)

    async def test_two_engines_start_a_task_once(self, stage: Any) -> None:
        """An engine remembers only what it has prepared itself: a new operator prepares everything again."""
        job = stage.job("once-3", ConformanceBehaviour.STAYS, replicas=2)
        tasks = await ready(stage, job)
        other = await stage.another()
        await other.perform([CreateTask(job, task) for task in tasks])
        await asyncio.gather(*(engine.perform([BindGang(job, tasks)]) for engine in (stage.engine, other)))
        for task in tasks:
            await until(stage, task.key, lambda seen: seen.phase is TaskPhase.RUNNING)
        await started_once(stage, tasks)
        await ended(stage, tasks)

    async def test_a_gang_with_a_task_that_cannot_be_bound_does_not_start(self, stage: Any) -> None:
        """Placement is the scheduler's task: the gang waits unbound, with its reason, and starts whole when there is room."""
        job = stage.job("gang-1", ConformanceBehaviour.STAYS, replicas=2)
        most = max(node.cpu for node in await stage.engine.nodes())
        holder = stage.job("gang-2", ConformanceBehaviour.STAYS)
        (holding,) = await ready(stage, holder)
        first, second = await ready(stage, job)
        # Of three tasks this large the two nodes can hold two.
        assert len(await stage.engine.nodes()) == 2
        large = [replace(task, need=replace(task.need, cpu=most * 0.6)) for task in (first, second)]
        held = replace(holding, need=replace(holding.need, cpu=most * 0.6))
        await stage.engine.perform([BindGang(holder, (held,))])
        await until(stage, held.key, lambda seen: seen.phase is TaskPhase.RUNNING)
        await stage.engine.perform([BindGang(job, tuple(large))])
        told = await until(stage, first.key, lambda seen: bool(seen.message))
        assert told.phase is TaskPhase.PLACED
        assert [stage.starts(task.key) for task in large] == [0, 0]
        await ended(stage, [held])
        for task in large:
            await until(stage, task.key, lambda seen: seen.phase is TaskPhase.RUNNING)
        await ended(stage, large)

    async def test_what_runs_uses_something_and_the_rest_is_left_out(self, stage: Any) -> None:
        """Usage of pods comes from metrics-server, which is not part of this cluster: without it, the engine reports nothing."""
        tasks = await bound(stage, stage.job("truth-8", ConformanceBehaviour.STAYS))
        await started_once(stage, tasks)
        assert await stage.engine.usage([tasks[0].key]) == {}
        await ended(stage, tasks)

    async def test_a_run_that_is_forgotten_while_it_runs_leaves_nothing(self, stage: Any) -> None:
        """A kubelet needs a moment to end the processes of a deleted pod."""
        job = stage.job("left-4", ConformanceBehaviour.STUBBORN)
        (task,) = await bound(stage, job)
        await until(stage, task.key, lambda seen: seen.phase is TaskPhase.RUNNING)
        await stage.engine.perform([ForgetJob(job.key)])
        async with asyncio.timeout(PATIENCE):
            while stage.left(task.key):
                await stage.pass_time()
