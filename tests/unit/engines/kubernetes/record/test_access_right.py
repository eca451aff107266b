"""Rights to read versions of other namespaces, with an API server with a few bindings; and a registry of an earlier version."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairway.app.port.port import ChangeSet
from fairway.app.submission import Submission
from fairway.bootstrap.cluster_registry import ClusterRegistry, ClusterSubmissions
from fairway.bootstrap.pod_route import following
from fairway.engines.kubernetes.identity.caller import CALLER, ClusterCaller
from fairway.engines.kubernetes.objects import CustomObject
from fairway.engines.kubernetes.record.access_right import (
    AUTHENTICATED,
    REMEMBERED,
    AccessReviewer,
    account_of,
    asking,
    vouched,
)
from fairway.errors import DeniedError, RefusedError, UsageError
from fairway.registry.model import ModelRegistry
from fairway.spec.job import TrainingJob
from fairway.state.job import JobKey, JobState, SubmissionOrigin
from fairway.state.model import ModelFacts
from fairway.state.service import ServiceKey, ServiceRecord
from fairway.testing.builder.model_file import onnx_file
from fairway.testing.conformance.service_conformance import a_service
from fairway.testing.fake.memory_store import MemoryStore

CODE = "c0de" * 16


class Roles:
    """An API server that grants `(subject, kind, namespace, name)`; an empty name grants any."""

    def __init__(self, *granted: tuple[str, str, str, str]) -> None:
        self.granted = set(granted)
        self.asked: list[dict[str, Any]] = []

    async def create(self, _resource: object, body: dict[str, Any], _namespace: str = "") -> dict[str, Any]:
        spec = body["spec"]
        self.asked.append(spec)
        about = spec["resourceAttributes"]
        assert (about["verb"], about["group"]) == ("get", "record.fairway.dev")
        names = {about.get("name", ""), ""} if about.get("name") else {""}
        wanted = {
            (subject, about["resource"], about["namespace"], name)
            for subject in (spec["user"], *(f"group:{group}" for group in spec["groups"]))
            for name in names
        }
        return {"status": {"allowed": bool(wanted & self.granted)}}


class Clock:
    time = 1000.0

    def now(self) -> float:
        return self.time


class World:
    def __init__(self, home: Path, *granted: tuple[str, str, str, str]) -> None:
        self.registry, self.roles, self.clock = ClusterRegistry.open(home), Roles(*granted), Clock()
        self.rights: AccessReviewer = self.registry.rights(self.roles, self.clock)  # type: ignore[arg-type]


def registered(models: ModelRegistry, folder: Path, name: str, *weights: str) -> None:
    folder.mkdir(exist_ok=True)
    for weight in weights:
        (folder / "model.onnx").write_bytes(onnx_file(weights=(weight,)))
        models.register(name, str(folder), ModelFacts(), 1.0)


ANN, BOB = ClusterCaller("ann", ("nlp", AUTHENTICATED)), ClusterCaller("bob", (AUTHENTICATED,))


async def test_what_is_ones_own_needs_no_right_and_what_is_not_needs_one(tmp_path: Path) -> None:
    world = World(tmp_path, ("ann", "datasets", "team-a", "rows"), ("group:nlp", "models", "team-a", ""))
    check = world.rights.check_reads
    await check(BOB, "team-b", {"a": "rows@1", "b": "model://mnist@2", "c": "s3://x/y@1", "d": "/data", "e": "pvc://claim/x@1"})
    await check(BOB, "team-b", {"a": "team-b/rows@1", "b": "model://team-b/mnist"})
    assert world.roles.asked == [], "nothing of another namespace was named"
    await check(ANN, "team-b", {"a": "team-a/rows@1", "b": "model://team-a/mnist@champion"})
    for data in ({"a": "team-a/rows@1"}, {"a": "model://team-a/mnist"}, {"a": "default/rows@1"}):
        with pytest.raises(DeniedError, match=r'data.a: .* User "bob" cannot get resource "(models|datasets)"'):
            await check(BOB, "team-b", data)
    with pytest.raises(DeniedError, match='in the namespace "default"'):
        await check(ANN, "team-b", {"a": "default/rows@1"})


async def test_a_right_that_was_confirmed_counts_for_a_moment_and_a_refusal_never(tmp_path: Path) -> None:
    world = World(tmp_path, ("ann", "datasets", "team-a", ""))
    data = {"a": "team-a/rows@1"}
    await world.rights.check_reads(ANN, "team-b", data)
    world.roles.granted.clear()
    await world.rights.check_reads(ANN, "team-b", data)
    world.clock.time += REMEMBERED
    with pytest.raises(DeniedError):
        await world.rights.check_reads(ANN, "team-b", data)
    world.roles.granted.add(("ann", "datasets", "team-a", ""))
    await world.rights.check_reads(ANN, "team-b", data)


async def test_an_object_notes_the_group_that_gives_the_right_and_no_other(tmp_path: Path) -> None:
    groups = tuple(f"group-{number}" for number in range(100))
    caller = ClusterCaller("ann", (*groups, AUTHENTICATED))
    world = World(tmp_path, ("group:group-37", "models", "team-a", ""), ("ann", "datasets", "team-a", ""))
    assert await world.rights.granting(caller, "team-b", {"a": "team-a/rows@1"}) == ()
    assert await world.rights.granting(caller, "team-b", {"a": "model://team-a/mnist", "b": "team-a/rows@1"}) == ("group-37",)
    assert len(world.roles.asked) < 20
    with pytest.raises(DeniedError):
        await world.rights.granting(BOB, "team-b", {"a": "model://team-a/mnist"})


def test_an_object_that_names_no_user_has_the_rights_of_its_namespaces_account() -> None:
    assert vouched({}, "team-b") == account_of("team-b") == asking("team-b")
    assert account_of("team-b").user == "system:serviceaccount:team-b:default"
    noted = {"fairway.dev/user": "ann", "fairway.dev/groups": '["nlp"]'}
    assert vouched(noted, "team-b") == ClusterCaller("ann", ("nlp", AUTHENTICATED))
    token = CALLER.set(ClusterCaller(""))
    try:
        assert asking("team-b") == account_of("team-b")
    finally:
        CALLER.reset(token)


async def test_pods_get_what_their_document_names_and_its_user_may_read(tmp_path: Path) -> None:
    world = World(tmp_path, ("ann", "models", "team-a", "mnist"))
    data = {"a": "model://team-a/mnist@champion", "b": "rows@1"}

    async def entitled(kind: str, reference: str, caller: ClusterCaller = ANN) -> str:
        return await world.rights.entitled(caller, "team-b", data, kind, reference)

    assert await entitled("models", "team-a/mnist@3") == "team-a/mnist@3"
    assert await entitled("datasets", "rows@1") == "team-b/rows@1"
    for kind, reference in (
        ("models", "mnist@3"),
        ("models", "team-a/other"),
        ("datasets", "team-a/rows@1"),
        ("models", "rows@1"),
    ):
        with pytest.raises(DeniedError, match="is not one of the inputs"):
            await entitled(kind, reference)
    with pytest.raises(DeniedError, match='User "bob" cannot get'):
        await entitled("models", "team-a/mnist@3", BOB)


async def test_bytes_need_not_be_sent_by_who_may_read_all_of_the_namespace(tmp_path: Path) -> None:
    everything = [("ann", kind, "team-a", "") for kind in ("models", "datasets")]
    world = World(tmp_path / "home", *everything, ("bob", "models", "team-a", ""), ("eve", "models", "team-a", "mnist"))
    registered(world.registry.models, tmp_path / "m", "team-a/mnist", "one")
    digest = world.registry.models.get("team-a/mnist").digest
    assert (await world.rights.held(ANN, "team-a"))(digest)
    assert not (await world.rights.held(ANN, "team-b"))(digest)
    assert not (await world.rights.held(BOB, "team-a"))(digest), "who may not read datasets could learn of one"
    assert not (await world.rights.held(ClusterCaller("eve"), "team-a"))(digest)


async def test_a_run_has_code_that_was_sent_to_its_namespace_or_by_its_user(tmp_path: Path) -> None:
    world = World(tmp_path)
    receive = ClusterSubmissions(world.rights).receive

    def asked(namespace: str, user: str, code: str = CODE) -> Submission:
        worker = {"worker": {"command": ["a"]}}
        document = TrainingJob.model_validate({"metadata": {"name": "mnist", "namespace": namespace}, "spec": {"roles": worker}})
        return Submission(document, SubmissionOrigin(user=user, code_digest=code))

    world.rights.note_code(ANN, "team-a", CODE)
    for namespace, user in (("team-a", ""), ("team-a", "bob"), ("team-b", "ann")):
        assert (await receive(asked(namespace, user))).spread
    for namespace, user in (("team-b", ""), ("team-b", "bob"), ("default", "")):
        with pytest.raises(RefusedError, match="was never sent to the namespace"):
            await receive(asked(namespace, user))
    assert (await receive(asked("team-b", "", "my-config-map"))).spread


async def test_a_home_from_before_is_read_as_the_namespace_default(tmp_path: Path) -> None:
    home, store = tmp_path / "home", MemoryStore()
    registered(ModelRegistry(home, ClusterRegistry.open(home).blobs), tmp_path / "m", "mnist", "one", "two")
    ClusterRegistry.open(home).datasets.add("rows", tmp_path / "m", 1.0)
    service = a_service(namespace="team-a")
    revision = replace(service.revisions[0], model="mnist@2", origin=SubmissionOrigin(user="ana", code_digest=f"blob:{CODE}"))
    store.commit(ChangeSet(services=(ServiceRecord(replace(service, revisions=(revision,))),)))
    worker = {"worker": {"command": ["a"]}}
    spec = TrainingJob.model_validate({"metadata": {"name": "x"}, "spec": {"roles": worker, "data": {"train": "rows@1"}}}).spec
    store.commit(ChangeSet(jobs=(JobState(JobKey("team-b", "x-1"), "x", 1, spec, SubmissionOrigin(code_digest="d" * 64)),)))

    world = World(home)
    world.registry.take_up(store)
    models, datasets = world.registry.models, world.registry.datasets
    assert [str(one) for one in (*models.list(), *datasets.list())] == ["mnist@1", "mnist@2", "rows@1"]
    # Earlier runs and services continue without rights in `default`; other namespaces get no access.
    assert await world.rights.entitled(BOB, "team-a", {"1": "model://mnist@2"}, "models", "mnist@2") == "mnist@2"
    assert world.registry.finder("team-b")("rows@1").path == "/v1/given/datasets/rows@1"
    assert models.meant("mnist@2", "team-b") == "team-b/mnist@2"
    await world.rights.check_reads(BOB, "team-a", {"a": "model://mnist@2"})
    with pytest.raises(DeniedError):
        await world.rights.check_reads(BOB, "team-b", {"a": "model://default/mnist@2"})
    for namespace, code in (("team-a", CODE), ("team-b", "d" * 64)):
        world.rights.check_code("", namespace, code)
        with pytest.raises(RefusedError):
            world.rights.check_code("", "team-c", code)
    # Ownership is assigned once: a service that appears later does not change it.
    store.commit(ChangeSet(services=(ServiceRecord(replace(service, key=ServiceKey("team-c", "late"))),)))
    ClusterRegistry.open(home).take_up(store)
    assert ClusterRegistry.open(home).models.meant("mnist@2", "team-c") == "team-c/mnist@2"


def test_a_name_does_not_lead_into_another_namespace(tmp_path: Path) -> None:
    models = ClusterRegistry.open(tmp_path).models
    for name in ("team-a/mnist", "../mnist", "default/mnist"):
        with pytest.raises(UsageError, match="names a namespace"):
            models.own(name, "team-b")


async def test_a_service_follows_a_model_of_another_namespace_by_the_rights_of_its_user(tmp_path: Path) -> None:
    world = World(tmp_path, ("ann", "models", "vision", "mnist"))
    of_ann, of_bob = ({"fairway.dev/user": user, "fairway.dev/groups": "[]"} for user in ("ann", "bob"))
    objects = {f"team/{name}": _object(notes) for name, notes in (("ann", of_ann), ("bob", of_bob))}
    check = following(world.rights, objects)  # type: ignore[arg-type]
    service = a_service()

    def of(name: str, model: str) -> Any:
        return replace(service, key=ServiceKey("team", name), spec=service.spec.model_copy(update={"model": model}))

    await check(of("ann", "vision/mnist@champion"))
    await check(of("bob", "mnist@champion"))
    await check(of("bob", ""))
    for name in ("bob", "gone"):
        with pytest.raises(DeniedError, match="model"):
            await check(of(name, "vision/mnist@champion"))


def _object(annotations: dict[str, str]) -> CustomObject:
    return msgspec.convert({"metadata": {"name": "x", "namespace": "team", "annotations": annotations}}, CustomObject)
