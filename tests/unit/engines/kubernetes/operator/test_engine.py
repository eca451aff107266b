"""The operator's view of a pod while answers and watch events arrive in any order."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.objects import KubernetesNode, KubernetesService, Pod
from fairway.engines.kubernetes.operator import engine as engines
from fairway.engines.kubernetes.operator.engine import BY_RUN, KubernetesEngine, by_run
from fairway.engines.kubernetes.operator.gang import GangContext, GangCreator
from fairway.engines.kubernetes.operator.installation import FrameworkRuntime, InstallationSettings
from fairway.engines.kubernetes.operator.log.archive import LogArchive
from fairway.errors import ConflictError, RefusedError
from fairway.plan.action import BindGang, CreateTask
from fairway.plan.task_expansion import make_tasks
from fairway.runtime.pod.pod_order import VARIABLE, PodOrder
from fairway.spec.job import JobSpec, RuntimeEnvironment
from fairway.state.job import JobKey, JobState
from fairway.state.phase import TaskPhase


class Server:
    """An API server that, on request, delivers the event of a create to the mirror before it answers."""

    def __init__(self) -> None:
        self.pods: Any = Informer(self, None, indexes={BY_RUN: by_run})  # type: ignore[arg-type, var-annotated]
        self.nodes: Any = None
        self.shows_first = False
        self.made: list[str] = []

    async def get(self, _resource: Any, name: str, _namespace: str) -> Any:
        raise errors.NotFound(f"there is no {name}", fix="")

    async def create(self, _resource: Any, body: dict[str, Any], _namespace: str) -> Pod:
        name = body["metadata"]["name"]
        if name in self.made:
            raise errors.AlreadyExists("there is one", fix="")
        self.made.append(name)
        pod = as_pod(body, "1")
        if self.shows_first:
            self.pods.put(pod)
            self.pods.put(as_pod(body, "2", node="a", phase="Running"))
        return pod


def as_pod(body: dict[str, Any], version: str, node: str = "", phase: str = "Pending") -> Pod:
    metadata = {**body["metadata"], "resourceVersion": version, "uid": "u"}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}}, Pod, strict=False)


def node(ready: str) -> KubernetesNode:
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return msgspec.convert({"metadata": {"name": "a"}, "status": status}, KubernetesNode)


def make(folder: Path) -> tuple[Server, KubernetesEngine, BindGang]:
    server = Server()
    installation = InstallationSettings(image="f", runtimes={"default": FrameworkRuntime("x")})
    nodes: Informer[KubernetesNode] = Informer(server, None)  # type: ignore[arg-type]
    server.nodes = nodes
    gangs = GangCreator(server, installation, lambda _job: GangContext())  # type: ignore[arg-type]
    engine = KubernetesEngine(server, server.pods, nodes, gangs, LogArchive(server, folder), lambda _key: None)  # type: ignore[arg-type]
    spec = JobSpec.model_validate({"roles": {"worker": {"command": ["x"]}}})
    job = JobState(JobKey("team", "m-1"), "m", 1, spec)
    return server, engine, BindGang(job, tuple(make_tasks(job, {"worker": 1}, 1.0, 0.0)))


async def test_an_answer_that_comes_after_the_event_does_not_hide_what_was_seen_since(tmp_path: Path) -> None:
    server, engine, action = make(tmp_path)
    await engine.start(lambda: None)
    server.shows_first = True
    await engine.perform([action])
    (report,) = await engine.observe([action.tasks[0].key])
    assert (report.phase, report.node) == (TaskPhase.RUNNING, "a")


async def test_what_was_not_taken_of_a_task_is_shown_on_it_until_its_run_is_over(tmp_path: Path) -> None:
    server, engine, action = make(tmp_path)
    woken: list[None] = []
    await engine.start(lambda: woken.append(None))
    server.shows_first = True
    await engine.perform([action])
    key, before = action.tasks[0].key, len(woken)
    engine.refuse(key.run, "worker-0", "step is too large")
    engine.refuse(key.run, "worker-0", "step is too large")
    assert len(woken) == before + 1
    assert [report.message for report in await engine.observe([key])] == ["step is too large"]
    engine.refuse(key.run, "worker-7", "of another")
    assert [report.message for report in await engine.observe([key])] == [""]
    engine.refuse(key.run, "", "of all")
    engine.release(key.run)
    assert [report.message for report in await engine.observe([key])] == [""]


async def test_a_pod_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path, monkeypatch: Any) -> None:
    server, engine, action = make(tmp_path)
    await engine.start(lambda: None)
    server.shows_first = True
    await engine.perform([action])
    key = action.tasks[0].key
    bad = replace(key, index=1)
    read = engine._report

    def report(asked: Any) -> Any:
        if asked == bad:
            raise OverflowError("too large")
        return read(asked)

    monkeypatch.setattr(engine, "_report", report)
    assert [found.key for found in await engine.observe([bad, key])] == [key]


async def test_a_pod_that_was_made_is_there_before_the_mirror_shows_it(tmp_path: Path) -> None:
    server, engine, action = make(tmp_path)
    await engine.start(lambda: None)
    (told,) = await engine.perform([action])
    (seen,) = await engine.observe([action.tasks[0].key])
    assert told.phase is seen.phase is TaskPhase.PLACED
    assert len(server.made) == 1


async def test_a_pod_that_never_shows_is_given_up(tmp_path: Path, monkeypatch: Any) -> None:
    _, engine, action = make(tmp_path)
    await engine.start(lambda: None)
    await engine.perform([action])
    monkeypatch.setattr(engines, "TRUSTED", 0.0)
    (report,) = await engine.observe([action.tasks[0].key])
    assert report.phase is TaskPhase.LOST
    assert report.exit is not None
    assert report.exit.disrupted


async def test_pods_of_a_node_that_does_not_answer_for_long_are_lost_without_a_fault(tmp_path: Path, monkeypatch: Any) -> None:
    server, engine, action = make(tmp_path)
    server.nodes.put(node("True"))
    await engine.start(lambda: None)
    server.shows_first = True
    await engine.perform([action])
    server.nodes.put(node("Unknown"))
    (report,) = await engine.observe([action.tasks[0].key])
    assert report.phase is TaskPhase.RUNNING  # not long enough yet
    monkeypatch.setattr(engines, "LOST_AFTER", 0.0)
    (report,) = await engine.observe([action.tasks[0].key])
    assert (report.phase, report.exit and report.exit.disrupted) == (TaskPhase.LOST, "its node a was lost")
    server.nodes.put(node("True"))
    (report,) = await engine.observe([action.tasks[0].key])
    assert report.phase is TaskPhase.RUNNING


async def test_a_document_without_an_image_is_refused_with_both_fixes(tmp_path: Path) -> None:
    server, _, action = make(tmp_path)
    gangs = GangCreator(
        server, InstallationSettings(image="f", runtimes={"jax": FrameworkRuntime("x")}), lambda _job: GangContext()
    )  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="m-1 names no image, and the cluster has none for auto") as refused:
        gangs.manifests(action)
    assert refused.value.fix == "set environment.image, or have an administrator add `runtimes: {auto: ...}`"


async def test_the_token_of_a_run_reaches_the_two_that_speak_and_nobody_else(tmp_path: Path) -> None:
    server, _, action = make(tmp_path)
    around = GangContext(token="secret", endpoint="http://operator:8080")
    spec = action.job.spec.model_copy(update={"environment": RuntimeEnvironment(requirements="requirements.txt")})
    action = replace(action, job=replace(action.job, spec=spec))
    gangs = GangCreator(server, InstallationSettings(image="f", runtimes={"default": FrameworkRuntime("x")}), lambda _job: around)  # type: ignore[arg-type]
    (body,) = gangs.manifests(action)
    spoken = {
        one["name"]: [variable["name"] for variable in one.get("env", ()) if "secretKeyRef" in variable.get("valueFrom", {})]
        for one in (*body["spec"]["initContainers"], *body["spec"]["containers"])
    }
    assert spoken == {"code": ["FAIRWAY_GIVEN_TOKEN"], "environment": [], "task": ["FAIRWAY_TOKEN", "MLFLOW_TRACKING_TOKEN"]}
    assert "secret" not in str(body["spec"]).replace("secretKeyRef", ""), "only its name is in the pod"


async def test_the_operators_authority_reaches_the_two_that_speak(tmp_path: Path) -> None:
    server, _, action = make(tmp_path)
    around = GangContext(token="t", endpoint="https://operator:8080", authority="PEM")
    gangs = GangCreator(server, InstallationSettings(image="f", runtimes={"default": FrameworkRuntime("x")}), lambda _job: around)  # type: ignore[arg-type]
    (body,) = gangs.manifests(action)
    for one in (*body["spec"]["initContainers"], *body["spec"]["containers"]):
        env = {variable["name"]: variable.get("value") for variable in one["env"]}
        assert (env["FAIRWAY_OPERATOR_CA"], env["FAIRWAY_ENDPOINT"]) == ("PEM", "https://operator:8080")
        assert (env.get("MLFLOW_TRACKING_SERVER_CERT_PATH") == "/fairway/inject/operator-ca.pem") == (one["name"] == "task")


async def test_what_could_not_be_made_is_tried_again_until_it_is(tmp_path: Path, monkeypatch: Any) -> None:
    server, engine, action = make(tmp_path)
    woken: list[bool] = []
    answers = [errors.Conflict("modified", fix=""), None]

    async def apply(*_: Any, **__: Any) -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    server.apply = apply  # type: ignore[attr-defined]
    monkeypatch.setattr(engines, "TRY_AGAIN_AFTER", 0.0)
    await engine.start(lambda: woken.append(True))
    wish = CreateTask(action.job, action.tasks[0])
    (report,) = await engine.perform([wish])
    assert (report.phase, report.ready, "modified" in (report.message or "")) == (TaskPhase.PENDING, False, True)
    await asyncio.sleep(0.01)
    assert woken
    (report,) = await engine.observe([wish.task.key])
    assert (report.phase, report.ready, report.message) == (TaskPhase.PENDING, True, "")


async def test_of_a_task_that_has_a_pod_the_pod_tells(tmp_path: Path) -> None:
    server, engine, action = make(tmp_path)

    async def refuse(*_: Any, **__: Any) -> None:
        raise errors.Conflict("modified", fix="")

    await engine.start(lambda: None)
    server.shows_first = True
    await engine.perform([action])
    server.apply = refuse  # type: ignore[attr-defined]
    assert await engine.perform([CreateTask(action.job, action.tasks[0])]) == []
    (report,) = await engine.observe([action.tasks[0].key])
    assert report.phase is TaskPhase.RUNNING


class Named(Server):
    """A server with Services too, by name; each value is the run of the Service."""

    def __init__(self, **services: str) -> None:
        super().__init__()
        self.services = services
        self.deleted: list[str] = []

    async def get(self, _resource: Any, name: str, _namespace: str) -> Any:
        if name not in self.services:
            raise errors.NotFound("there is none", fix="")
        labels = {annotation.RUN: self.services[name]} if self.services[name] else {}
        return msgspec.convert({"metadata": {"name": name, "uid": "u", "labels": labels}}, KubernetesService)

    async def apply(self, _resource: Any, body: dict[str, Any], **_: Any) -> None:
        self.services[body["metadata"]["name"]] = body["metadata"]["labels"][annotation.RUN]

    async def delete(self, _resource: Any, name: str, _namespace: str, **_: Any) -> bool:
        self.deleted.append(name)
        return True


def gangs_on(server: Server) -> GangCreator:
    return GangCreator(
        server, InstallationSettings(image="f", runtimes={"default": FrameworkRuntime("x")}), lambda _job: GangContext()
    )  # type: ignore[arg-type]


async def test_the_name_of_a_job_is_left_to_others_and_nothing_of_theirs_is_deleted(tmp_path: Path) -> None:
    _, _, action = make(tmp_path)
    run, server = action.job.key, Named(**{"m-1": ""})
    gangs = gangs_on(server)
    await gangs.reach(run, None)
    await gangs.reach(run, None)
    assert server.services == {"m-1": "", "m-1-run": "m-1"}
    (body,) = gangs.manifests(action)
    assert body["spec"]["subdomain"] == "m-1-run"
    await gangs.unreach(run)
    assert server.deleted == ["m-1-run"]
    with pytest.raises(ConflictError, match="the Service team/m-1-run exists and does not belong to this run"):
        await gangs_on(Named(**{"m-1-run": ""})).reach(run, None)


async def test_pods_of_an_earlier_version_keep_the_name_by_which_they_find_each_other(tmp_path: Path) -> None:
    _, _, action = make(tmp_path)
    run, server = action.job.key, Named(**{"m-1": "m-1"})
    gangs = gangs_on(server)
    old = msgspec.convert({"spec": {"subdomain": "m-1"}, "status": {"phase": "Running"}}, Pod)
    gangs.pods = lambda _run: [old]
    await gangs.reach(run, None)
    assert server.services == {"m-1": "m-1"}
    (body,) = gangs.manifests(action)
    assert body["spec"]["subdomain"] == "m-1"
    order = PodOrder.decode(next(one["value"] for one in body["spec"]["containers"][0]["env"] if one["name"] == VARIABLE))
    assert order.starts[0].env["MASTER_ADDR"] == "m-1-worker-0.m-1.team.svc.cluster.local"
    # When no such pod is left, the run uses the new name.
    gangs.pods = lambda _run: [msgspec.structs.replace(old, status=msgspec.structs.replace(old.status, phase="Failed"))]
    await gangs.reach(run, None)
    assert gangs.manifests(action)[0]["spec"]["subdomain"] == "m-1-run"
    await gangs.unreach(run)
    assert server.deleted == ["m-1-run", "m-1"]


class Letting(Server):
    """Records the deleted pods, and those whose finalizer was removed."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[str] = []
        self.let_go: list[str] = []

    async def delete(self, _resource: Any, name: str, _namespace: str, **_: Any) -> bool:
        self.deleted.append(name)
        return True

    async def patch(self, _resource: Any, name: str, _namespace: str, _operations: Any) -> None:
        self.let_go.append(name)


async def test_pods_whose_end_was_written_down_before_a_crash_are_let_go_after_it(tmp_path: Path) -> None:
    _, engine, action = make(tmp_path)
    (body,) = engine._gangs.manifests(action)
    server = Letting()
    server.pods.put(as_pod(body, "1", node="a", phase="Succeeded"))
    gangs = GangCreator(server, InstallationSettings(image="f"), lambda _job: GangContext())  # type: ignore[arg-type]
    nodes: Informer[KubernetesNode] = Informer(server, None)  # type: ignore[arg-type]
    found = KubernetesEngine(server, server.pods, nodes, gangs, LogArchive(server, tmp_path), lambda _key: None)  # type: ignore[arg-type]
    await found.start(lambda: None)
    await found.observe([])
    assert (server.deleted, server.let_go) == ([], ["m-1-worker-0-r0"])


async def test_a_pod_that_an_operator_made_as_it_died_and_that_shows_late_goes_unless_it_is_asked_for(
    tmp_path: Path, monkeypatch: Any
) -> None:
    _, engine, action = make(tmp_path)
    (body,) = engine._gangs.manifests(action)
    server, now = Letting(), [100.0]
    monkeypatch.setattr("fairway.engines.kubernetes.operator.engine._steady", lambda: now[0])
    gangs = GangCreator(server, InstallationSettings(image="f"), lambda _job: GangContext())  # type: ignore[arg-type]
    nodes: Informer[KubernetesNode] = Informer(server, None)  # type: ignore[arg-type]
    found = KubernetesEngine(server, server.pods, nodes, gangs, LogArchive(server, tmp_path), lambda _key: None)  # type: ignore[arg-type]
    await found.start(lambda: None)
    await found.observe([])
    server.pods.put(as_pod(body, "1"))
    await found.observe([])
    assert server.deleted == [], "it may be asked for in a moment"
    await found.observe([action.tasks[0].key])
    now[0] += 60.0
    await found.observe([])
    assert server.deleted == [], "it was asked for: whoever asks sees to its end"
    server.pods.put(as_pod({"metadata": {**body["metadata"], "name": "m-1-worker-0-r7", "labels": seventh(body)}}, "2"))
    now[0] += 60.0
    await found.observe([])
    assert (server.deleted, server.let_go) == (["m-1-worker-0-r7"], ["m-1-worker-0-r7"])


def seventh(body: dict[str, Any]) -> dict[str, str]:
    return {**body["metadata"]["labels"], annotation.ATTEMPT: "7"}
