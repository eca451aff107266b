"""Arguments of the clients' methods: signatures, unknown keywords, wrong types; and their results."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fairway
from fairway.errors import UsageError
from fairway.sdk.client import AsyncClient, Client
from fairway.sdk.job import ClientMethods
from fairway.sdk.method.argument import ArgumentError, fits
from fairway.sdk.method.call import client_method, streaming_method
from fairway.sdk.run import Run
from fairway.sdk.run_option import RunOptions
from fairway.testing.fake.fake_daemon import FakeDaemon

VIEW: dict[str, Any] = {
    "name": "mnist-1", "namespace": "default", "series": "mnist", "number": 1, "phase": "Running", "framework": "auto",
    "roles": {}, "ready": 1, "replicas": 1, "gpus": 0, "priority": 0, "queue": "default", "user": "ada", "created": 1.0,
    "started": 2.0, "finished": None, "duration": 3.0, "attempt": 0, "restarts": 0, "restarts_max": 3, "progress": {},
    "hold": None, "position": 0, "outcome": None, "resume": "", "nodes": [], "labels": {}, "outputs": {}, "folder": "",
    "origin": "", "code_digest": "", "warnings": [],
}  # fmt: skip


def view(**changes: object) -> dict[str, Any]:
    return {**VIEW, **changes}


def line(**told: object) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


NAMES = sorted(
    name
    for owner in (ClientMethods, *ClientMethods.__bases__)
    for name, value in vars(owner).items()
    if isinstance(value, client_method | streaming_method)
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_every_method_has_a_signature_and_words(kind: type, name: str) -> None:
    of_class, of_client = getattr(kind, name), getattr(kind(), name)
    assert next(iter(inspect.signature(of_class).parameters)) == "self"
    bound = inspect.signature(of_client)
    assert "self" not in bound.parameters
    assert "Steps" not in str(bound)
    assert "Lines" not in str(bound)
    assert of_client.__name__ == name
    assert inspect.getdoc(of_client)


@pytest.mark.parametrize("name", [*NAMES, "fairway.report", *(name for name in vars(Run) if inspect.isfunction(vars(Run)[name]))])
def test_the_reference_has_every_method(name: str) -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "python.md"
    if not name.startswith("_"):
        assert f"# {name}\n" in page.read_text()


def test_wishes_are_keywords_of_their_own() -> None:
    known = inspect.signature(Client().submit).parameters
    assert set(RunOptions.__annotations__) <= set(known)
    assert str(known["workers"]).startswith("workers: 'int'") or "int" in str(known["workers"])


@pytest.mark.parametrize(
    ("call", "words", "fix"),
    [
        (lambda client: client.submit("kind: x\n", worker=2), "submit() has no keyword 'worker'", "did you mean `workers`?"),
        (lambda client: client.submit("kind: x\n", wrokers=2), "no keyword 'wrokers'", "did you mean `workers`?"),
        (lambda client: client.logs("a", folow=True), "logs() has no keyword 'folow'", "did you mean `follow`?"),
        (lambda client: client.stop("a", zzzz=1), "stop() has no keyword 'zzzz'", "it takes job, now"),
        (lambda client: client.get(), "missing a required argument: 'job'", "call it as get(job: Job)"),
        (lambda client: client.submit("kind: x\n", workers="2"), "workers='2' is of type str", "give int: 2"),
        (lambda client: client.submit("kind: x\n", workers=True), "workers=True is of type bool", "give int"),
        (
            lambda client: client.submit("kind: x\n", env={"A": 64}),
            "env={'A': 64} is of type dict",
            "give a dict of str to str: {'A': '64'}",
        ),
        (lambda client: client.submit("kind: x\n", secrets="TOKEN"), "secrets='TOKEN'", "give a list of str: ['TOKEN']"),
        (lambda client: client.submit(5), "what=5 is of type int", "a function"),
        (lambda client: client.submit("kind: x\n", timeout=90), "timeout=90 is of type int", 'give str: "90"'),
        (lambda client: client.get(7), "job=7 is of type int", "give str or JobView"),
        (lambda client: client.list(limit="5"), "limit='5'", "give int: 5"),
        (lambda client: client.wait("a", timeout="soon"), "timeout='soon'", "give float or None"),
        (lambda client: client.scale("a", 1.5), "floor=1.5 is of type float", "give int"),
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_wrong_arguments_are_refused_before_anything_is_asked(
    kind: type, call: Callable[[Any], object], words: str, fix: str, daemon: FakeDaemon
) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(kind())
    assert words in caught.value.message
    assert fix in caught.value.fix
    assert isinstance(caught.value, UsageError)
    assert isinstance(caught.value, TypeError)
    assert daemon.asked == []


def test_types_that_fit() -> None:
    assert fits(1, float)
    assert fits(2, str | float)
    assert not fits(True, int | float)
    assert fits((), list[str])
    assert fits(Path("a"), str | Path)
    assert not fits([1], list[str])
    assert fits(None, float | None)


def test_a_run_knows_its_client(daemon: FakeDaemon) -> None:
    daemon.answers["GET /v1/jobs/mnist"] = view()
    daemon.answers["GET /v1/jobs/mnist-1/logs"] = b"one\ntwo\n"
    daemon.answers["GET /v1/jobs/mnist-1/watch"] = line(end=view(phase="Succeeded"))
    daemon.answers["GET /v1/jobs"] = {"jobs": [view()], "total": 1}
    run = Client().get("mnist")
    assert list(run.logs(tail=2)) == ["one", "two"]
    assert daemon.of("GET", "/v1/jobs/mnist-1/logs")[0].query["tail"] == "2"
    ended = run.wait(timeout=5)
    assert ended.phase.value == "Succeeded"
    assert isinstance(ended, Run)
    assert [job.name for job in Client().list().jobs] == ["mnist-1"]
    assert list(Client().list().jobs[0].logs()) == ["one", "two"]
    assert repr(run) == "Run(mnist-1, Running)"
    assert repr(Client().list()) == "RunList(1, 1 jobs: mnist-1)"


async def test_of_an_awaited_client_methods_of_a_run_are_awaited(daemon: FakeDaemon) -> None:
    daemon.answers["GET /v1/jobs/mnist"] = view()
    daemon.answers["GET /v1/jobs/mnist-1"] = view(phase="Failed")
    daemon.answers["GET /v1/jobs/mnist-1/logs"] = b"one\n"
    run = await AsyncClient().get("mnist")
    assert (await run.refresh()).phase.value == "Failed"
    assert [text async for text in run.logs()] == ["one"]


def test_run_waits_for_a_document(daemon: FakeDaemon) -> None:
    daemon.answers["POST /v1/jobs"] = view()
    daemon.answers["GET /v1/jobs/mnist-1/watch"] = line(end=view(phase="Succeeded"))
    ended = Client().run("kind: TrainingJob\n")
    assert (ended.name, ended.phase.value) == ("mnist-1", "Succeeded")


def test_top_of_one_and_of_all(daemon: FakeDaemon) -> None:
    daemon.answers["GET /v1/top/jobs"] = {"jobs": [view()], "total": 1}
    used = {"name": "worker-0", "phase": "Running", "cpu": 1, "cpu_used": 0.5, "memory": 5, "memory_used": 4}
    daemon.answers["GET /v1/top/jobs/mnist-1"] = {"name": "mnist-1", "phase": "Running", "tasks": [used]}
    client = Client()
    (run,) = client.top().jobs
    assert client.top(run).tasks[0].cpu_used == run.top().tasks[0].cpu_used == 0.5


def test_predict_submits_the_job_that_the_command_does(daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.answers["GET /v1/models/mnist%40champion"] = {"name": "mnist", "version": 3, "format": "onnx"}
    daemon.answers["GET /v1/models/mnist@champion"] = {"name": "mnist", "version": 3, "format": "onnx"}
    daemon.answers["GET /v1/datasets/new"] = {"name": "new", "version": 2}
    daemon.answers["POST /v1/jobs"] = view(name="predict-mnist-1")
    rows = tmp_path / "rows.csv"
    rows.write_text("1\n")
    client = Client()
    assert client.predict("mnist@champion", "new", "scored", workers=2).name == "predict-mnist-1"
    client.predict("mnist@champion", rows, "scored")
    specs: list[Any] = [asked.data["document"]["spec"] for asked in daemon.of("POST", "/v1/jobs")]  # type: ignore[index]
    assert [spec["data"] for spec in specs] == [
        {"model": "model://mnist@3", "rows": "new@2"},
        {"model": "model://mnist@3", "rows": str(rows)},
    ]
    assert specs[0]["roles"]["worker"]["replicas"] == {"min": 2, "max": 2}
    assert specs[0]["outputs"] == {"dataset": "scored"}
    with pytest.raises(UsageError, match="out: Not A Name"):
        client.predict("mnist@champion", "new", "Not A Name")


def test_the_package_has_both_clients() -> None:
    assert (fairway.Client, fairway.AsyncClient) == (Client, AsyncClient)
