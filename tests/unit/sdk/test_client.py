"""Both clients against a daemon with canned answers: the same methods, the same values."""

from __future__ import annotations

import base64
import inspect
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairway.errors import FairwayError, NotFoundError, UnavailableError, UsageError
from fairway.sdk.client import AsyncClient, Client
from fairway.sdk.job import ClientMethods
from fairway.sdk.method.call import client_method, streaming_method
from fairway.spec.text.document import read_data
from fairway.testing.fake.fake_daemon import Answer, DaemonRequestRecord, FakeDaemon

VIEW: dict[str, Any] = {
    "name": "mnist-1", "namespace": "default", "series": "mnist", "number": 1, "phase": "Running", "framework": "auto",
    "roles": {}, "ready": 1, "replicas": 1, "gpus": 0, "priority": 0, "queue": "default", "user": "ada", "created": 1.0,
    "started": 2.0, "finished": None, "duration": 3.0, "attempt": 0, "restarts": 0, "restarts_max": 3, "progress": {},
    "hold": None, "position": 0, "outcome": None, "resume": "", "nodes": [], "labels": {}, "outputs": {}, "folder": "",
    "origin": "", "code_digest": "", "warnings": [],
}  # fmt: skip

Ask = Callable[..., Any]


def view(**changes: object) -> dict[str, Any]:
    return {**VIEW, **changes}


def line(**told: object) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


@pytest.fixture(params=["blocking", "async"])
def ask(request: pytest.FixtureRequest, daemon: FakeDaemon) -> Ask:
    """Return a function that calls a method of one of the two clients by name; it is a coroutine function for both."""

    async def call(name: str, /, *args: Any, **kwargs: Any) -> Any:
        if request.param == "blocking":
            found = getattr(Client(), name)(*args, **kwargs)
            return list(found) if inspect.isgenerator(found) else found
        found = getattr(AsyncClient(), name)(*args, **kwargs)
        return [item async for item in found] if inspect.isasyncgen(found) else await found

    return call


async def test_a_run_is_a_typed_view(ask: Ask, daemon: FakeDaemon) -> None:
    daemon.answers["GET /v1/jobs/mnist"] = view()
    job = await ask("get", "mnist")
    assert (job.name, job.phase.value, job.progress.step) == ("mnist-1", "Running", None)
    assert daemon.asked[0].query == {"namespace": "default"}
    daemon.answers["GET /v1/jobs/mnist-1"] = view(phase="Failed")
    assert (await ask("get", job)).phase.value == "Failed"


async def test_an_error_of_the_daemon_is_raised(ask: Ask, daemon: FakeDaemon) -> None:
    daemon.answers["GET /v1/jobs/mnits"] = NotFoundError("there is no job mnits", fix="did you mean mnist?")
    with pytest.raises(NotFoundError, match="no job mnits"):
        await ask("get", "mnits")


async def test_an_answer_of_another_version_is_an_error_of_ours(ask: Ask, daemon: FakeDaemon) -> None:
    daemon.answers["GET /v1/jobs/mnist"] = {"name": 3}
    with pytest.raises(FairwayError, match="cannot be decoded"):
        await ask("get", "mnist")


async def test_a_document_in_any_form_is_submitted(
    ask: Ask, daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_SECRET", "1")
    daemon.answers["POST /v1/jobs"] = view()
    file = tmp_path / "job.yaml"
    file.write_text("kind: TrainingJob\nname: mnist\ncommand: a\n")
    document = {"kind": "TrainingJob", "name": "mnist", "command": "a"}
    for what in (file, str(file), file.read_text(), document, read_data(document)):
        await ask("submit", what)
    sent = [asked.data for asked in daemon.asked]
    assert sent[0]["documents"] == sent[1]["documents"] == sent[2]["documents"] == file.read_text()
    assert sent[0]["origin"]["folder"] == str(tmp_path)  # type: ignore[index]
    assert (
        read_data(json.loads(str(sent[3]["documents"])))
        == read_data(json.loads(str(sent[4]["documents"])))
        == read_data(document)
    )
    environment = sent[0]["environment"]
    assert isinstance(environment, dict)
    assert "PATH" in environment
    assert "SOME_SECRET" not in environment  # only the machine's variables, since the run does not work in place


async def test_wishes_are_laid_over_the_document(ask: Ask, daemon: FakeDaemon) -> None:
    daemon.answers["POST /v1/render"] = "apiVersion: v1\nspec: {roles: {worker: {command: [a]}}}\nmetadata: {name: mnist}\n"
    daemon.answers["POST /v1/jobs"] = view()
    await ask("submit", "kind: TrainingJob\n", workers=3)
    sent = daemon.of("POST", "/v1/jobs")[0].data
    assert sent["documents"] == ""
    assert sent["document"]["spec"]["roles"]["worker"] == {"command": ["a"], "replicas": {"min": 3, "max": 3}}  # type: ignore[index]


async def test_arguments_for_a_document_make_no_sense(ask: Ask, daemon: FakeDaemon) -> None:
    with pytest.raises(UsageError, match="args and kwargs apply only to functions"):
        await ask("submit", "kind: TrainingJob\n", args=(1,))


async def test_a_function_travels_with_its_arguments(ask: Ask, daemon: FakeDaemon) -> None:
    daemon.answers["POST /v1/jobs"] = view()
    factor = 3
    await ask("submit", lambda x, y: x * y * factor, workers=2, name="times", args=(2,), kwargs={"y": 5})
    sent: dict[str, Any] = daemon.asked[0].data
    document = read_data(sent["document"])
    assert (document.metadata.name, document.spec.roles["worker"].replicas.max, document.spec.code.in_place) == ("times", 2, True)
    assert document.spec.roles["worker"].command[1:] == ("-m", "fairway.runtime.call", "call.pkl")
    outer = pickle.loads(base64.b64decode(sent["files"]["call.pkl"]))
    inner = pickle.loads(outer["call"])
    assert inner["function"](*inner["args"], **inner["kwargs"]) == 30


def keep(folder: Path, rank: int, value: object, error: BaseException | None = None) -> None:
    (folder / "shared").mkdir(exist_ok=True)
    (folder / "shared" / f"result-{rank}.pkl").write_bytes(pickle.dumps({"value": value, "error": error}))


async def test_results_come_in_order_of_rank(ask: Ask, daemon: FakeDaemon, tmp_path: Path) -> None:
    for rank in (10, 2, 0):
        keep(tmp_path, rank, f"from {rank}")
    daemon.answers["GET /v1/jobs/times-1"] = view(name="times-1")
    daemon.answers["GET /v1/jobs/times-1/watch"] = [line(job=VIEW), line(end=view(phase="Succeeded", folder=str(tmp_path)))]
    assert await ask("results", "times-1") == ("from 0", "from 2", "from 10")
    assert await ask("result", "times-1") == "from 0"


async def test_what_a_function_raised_is_the_cause(ask: Ask, daemon: FakeDaemon, tmp_path: Path) -> None:
    keep(tmp_path, 0, None, ValueError("no such digit"))
    ended = view(phase="Failed", folder=str(tmp_path), outcome={"reason": "Error", "message": "worker-0 exited with 1"})
    daemon.answers["GET /v1/jobs/mnist-1"] = VIEW
    daemon.answers["GET /v1/jobs/mnist-1/watch"] = [line(end=ended)]
    with pytest.raises(FairwayError, match="mnist-1 did not succeed: worker-0 exited with 1") as caught:
        await ask("result", "mnist-1")
    assert repr(caught.value.__cause__) == "ValueError('no such digit')"


async def test_a_run_without_results_says_so(ask: Ask, daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.answers["GET /v1/jobs/mnist-1"] = VIEW
    daemon.answers["GET /v1/jobs/mnist-1/watch"] = [line(end=view(phase="Succeeded", folder=str(tmp_path)))]
    with pytest.raises(NotFoundError, match="returned no result"):
        await ask("results", "mnist-1")


async def test_waiting_survives_a_daemon_that_goes_away(ask: Ask, daemon: FakeDaemon) -> None:
    told = [[line(job=VIEW), b""], [line(job=VIEW), line(end=view(phase="Succeeded"))]]
    daemon.answers["GET /v1/jobs/mnist"] = VIEW

    def watch(asked: DaemonRequestRecord) -> Answer:
        assert asked.query["logs"] == "false"
        return told.pop(0)

    daemon.answers["GET /v1/jobs/mnist-1/watch"] = watch
    assert (await ask("wait", "mnist")).phase.value == "Succeeded"
    assert told == []


async def test_waiting_has_an_end(ask: Ask, daemon: FakeDaemon) -> None:
    import threading

    gate = threading.Event()
    daemon.answers["GET /v1/jobs/mnist"] = VIEW
    daemon.answers["GET /v1/jobs/mnist-1/watch"] = lambda _: (gate.wait(10), [line(job=VIEW)])[1]
    with pytest.raises(TimeoutError):
        await ask("wait", "mnist", timeout=0.05)
    gate.set()


async def test_logs_come_line_by_line(ask: Ask, daemon: FakeDaemon) -> None:
    daemon.answers["GET /v1/jobs/mnist/logs"] = [b"one\ntw", b"o\n\xff\n"]
    assert await ask("logs", "mnist", follow=True, index=0, tail=5) == ["one", "two", "\ufffd"]
    assert daemon.asked[0].query == {"namespace": "default", "follow": "true", "index": "0", "tail": "5"}


async def test_watching_gives_each_change(ask: Ask, daemon: FakeDaemon) -> None:
    daemon.answers["GET /v1/jobs/mnist/watch"] = [line(job=VIEW), line(other=1), line(end=view(phase="Failed"))]
    assert [job.phase.value for job in await ask("watch", "mnist")] == ["Running", "Failed"]


async def test_the_other_verbs(ask: Ask, daemon: FakeDaemon) -> None:
    daemon.answers.update(
        {
            "GET /v1/jobs": {"jobs": [VIEW], "next": "c", "total": 9},
            "POST /v1/jobs/mnist/stop": view(phase="Stopping"),
            "POST /v1/jobs/mnist/resume": VIEW,
            "DELETE /v1/jobs/mnist": {"deleted": ["mnist-1", "mnist-2"]},
            "GET /v1/jobs/mnist/events": {"events": [{"time": 1, "subject": "s", "reason": "Placed", "message": ""}]},
            "GET /v1/events": {"events": []},
            "GET /v1/jobs/mnist/metrics": {"names": ["loss"], "points": [{"time": 1, "step": 2, "metrics": {"loss": 0.5}}]},
            "GET /v1/jobs/mnist/why": {
                "name": "mnist-1",
                "namespace": "default",
                "phase": "Pending",
                "reason": "cpu",
                "message": "full",
            },
            "GET /v1/nodes": {"nodes": []},
            "GET /v1/secrets": {"secrets": [{"name": "HF_TOKEN"}]},
            "PUT /v1/secrets/HF_TOKEN": {"name": "HF_TOKEN"},
            "DELETE /v1/secrets/HF_TOKEN": {"deleted": ["HF_TOKEN"]},
        }
    )
    page = await ask("list", "mnist", phase="active", limit=1)
    assert (page.total, page.next, page.jobs[0].name) == (9, "c", "mnist-1")
    assert (await ask("stop", "job/mnist", now=True)).phase.value == "Stopping"
    assert daemon.of("POST", "/v1/jobs/mnist/stop")[0].data == {"now": True}
    assert (await ask("resume", "mnist")).name == "mnist-1"
    assert await ask("delete", "mnist", all=True) == ("mnist-1", "mnist-2")
    assert (await ask("events", "mnist"))[0].reason == "Placed"
    assert await ask("events") == ()
    assert (await ask("metrics", "mnist", "loss")).points[0].metrics == {"loss": 0.5}
    assert (await ask("why", "mnist")).message == "full"
    assert await ask("nodes") == ()
    assert await ask("secrets") == ("HF_TOKEN",)
    assert await ask("set_secret", "HF_TOKEN", "s3") is None
    assert daemon.of("PUT", "/v1/secrets/HF_TOKEN")[0].data == {"value": "s3"}
    assert await ask("delete_secret", "HF_TOKEN") is None


async def test_moves_are_asked_for(ask: Ask, daemon: FakeDaemon) -> None:
    daemon.answers["POST /v1/defragment"] = {"whom": "wide-1", "cost": 140.0}
    assert (await ask("defragment", plan=True, moves=2)).whom == "wide-1"
    assert daemon.asked[0].data == {"plan": True, "moves": 2}


async def test_a_plan_changes_nothing(ask: Ask, daemon: FakeDaemon) -> None:
    daemon.answers["POST /v1/jobs"] = {"sentences": ["it would start"], "jobs": ["mnist-0"]}
    assert (await ask("plan", "kind: TrainingJob\n")).sentences == ("it would start",)
    assert daemon.asked[0].data["plan"] is True


async def test_a_job_must_be_named(ask: Ask, daemon: FakeDaemon) -> None:
    with pytest.raises(UsageError, match="no job is named"):
        await ask("get", "")
    assert daemon.asked == []


def test_both_clients_have_every_verb() -> None:
    verbs = {name for name, value in vars(ClientMethods).items() if isinstance(value, client_method | streaming_method)}
    assert verbs >= {
        "submit",
        "plan",
        "get",
        "list",
        "stop",
        "resume",
        "delete",
        "wait",
        "result",
        "results",
        "logs",
        "watch",
        "why",
    }
    for name in verbs:
        blocking = getattr(Client(home="/nowhere"), name)
        assert blocking.__doc__
        assert inspect.signature(blocking) == inspect.signature(getattr(AsyncClient(home="/nowhere"), name))


def test_a_view_decodes_what_the_test_says() -> None:
    from fairway.views.job import JobView

    assert msgspec.convert(VIEW, JobView).name == "mnist-1"


def test_a_client_says_where_it_acts(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert repr(Client()) == f"Client(home={home!r}, namespace='default')"
    monkeypatch.setenv("FAIRWAY_NAMESPACE", "team")
    assert Client().namespace == "team"
    assert AsyncClient(namespace="mine").namespace == "mine"


QUEUE: dict[str, Any] = {
    "name": "research", "weight": 2.0, "running": 1, "waiting": 0, "share": 50.0, "dominant": "cpu", "usage": 0.0,
    "resources": [{"resource": "cpu", "used": 2.0, "quota": 64.0}], "borrow": True, "members": ["*"], "per_user": {},
    "timeout": None, "priority": None, "time_slice": None, "default_timeout": None, "default_priority": 0, "labels": {},
}  # fmt: skip


async def test_queues_are_typed_views(ask: Ask, daemon: FakeDaemon) -> None:
    daemon.answers["GET /v1/queues"] = {"queues": [QUEUE]}
    daemon.answers["GET /v1/queues/research"] = QUEUE
    daemon.answers["DELETE /v1/queues/research"] = {"deleted": ["research"]}
    (listed,) = await ask("queues")
    queue = await ask("queue", "research")
    assert listed == queue
    assert (queue.weight, queue.resources[0].quota) == (2.0, 64.0)
    await ask("delete_queue", "research")
    assert len(daemon.of("DELETE", "/v1/queues/research")) == 1


async def test_documents_are_applied(ask: Ask, daemon: FakeDaemon, tmp_path: Path) -> None:
    applied = {"kind": "JobQueue", "namespace": "", "name": "research", "action": "created"}
    daemon.answers["POST /v1/apply"] = {"applied": [applied]}
    document = {"kind": "JobQueue", "name": "research", "weight": 2}
    (tmp_path / "queue.yaml").write_text(json.dumps(document))
    for what in (document, read_data(document), json.dumps(document), tmp_path / "queue.yaml"):
        (done,) = await ask("apply", what)
        assert (done.name, done.action) == ("research", "created")
        sent = str(daemon.asked[-1].data["documents"])
        assert read_data(json.loads(sent)) == read_data(document)
    assert daemon.asked[-1].data["folder"] == str(tmp_path)


MODEL: dict[str, Any] = {
    "name": "mnist", "version": 3, "aliases": ["champion"], "format": "onnx", "files": 1, "size": 9, "created": 1.0,
    "digest": "d", "signature": {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}], "outputs": []},
    "metrics": {"accuracy": 0.9}, "lineage": {"run": "default/mnist-7"}, "tags": {},
}  # fmt: skip


async def test_models_are_typed_views(ask: Ask, daemon: FakeDaemon) -> None:
    daemon.answers["GET /v1/models"] = {"models": [MODEL]}
    daemon.answers["GET /v1/models/mnist%40champion"] = MODEL
    daemon.answers["POST /v1/models"] = MODEL
    daemon.answers["POST /v1/models/mnist%403/promote"] = {"alias": "champion", "version": "mnist@3", "before": "mnist@2"}
    daemon.answers["POST /v1/models/mnist%403/pull"] = MODEL
    daemon.answers["DELETE /v1/models/mnist%403"] = {"deleted": ["mnist@3"]}
    (listed,) = await ask("models", "mnist")
    assert (str(listed), listed.signature.inputs[0].shape, listed.lineage.run) == ("mnist@3", (-1,), "default/mnist-7")
    assert (await ask("model", "mnist@champion")) == listed
    assert (await ask("register_model", "mnist", "s3://b/x", metrics={"accuracy": 0.9}, from_run="mnist-7")) == listed
    (sent,) = daemon.of("POST", "/v1/models")
    assert (sent.data["source"], sent.data["imported"], sent.data["from_run"]) == ("s3://b/x", True, "mnist-7")
    assert (await ask("promote_model", "mnist@3", "champion")).before == "mnist@2"
    assert (await ask("pull_model", "model/mnist@3", "/x")) == listed
    daemon.answers["POST /v1/models/mnist%403/tags"] = MODEL
    assert (await ask("tag_model", "mnist@3", {"a": None})) == listed
    assert daemon.of("POST", "/v1/models/mnist%403/tags")[0].data == {"tags": {"a": None}}
    await ask("delete_model", "mnist@3")
    assert len(daemon.of("DELETE", "/v1/models/mnist%403")) == 1


async def test_datasets_are_typed_views(ask: Ask, daemon: FakeDaemon) -> None:
    made: dict[str, Any] = {"name": "digits", "version": 1, "digest": "d", "files": 1, "size": 2, "created": 1.0}
    daemon.answers["GET /v1/datasets"] = {"datasets": [made]}
    daemon.answers["POST /v1/datasets"] = {**made, "reference": "/x"}
    assert [str(each) for each in await ask("datasets")] == ["digits@1"]
    assert (await ask("add_data", "digits", Path("/x"), reference=True)).reference == "/x"
    assert daemon.of("POST", "/v1/datasets")[0].data == {"name": "digits", "path": "/x", "reference": True}


@pytest.mark.parametrize(("name", "kind"), [("verify_models", "models"), ("verify_data", "datasets")])
async def test_a_verification_is_what_its_last_line_says(ask: Ask, daemon: FakeDaemon, name: str, kind: str) -> None:
    found = {"versions": 1, "files": 2, "size": 3, "damaged": [{"version": "mnist@3", "path": "w", "problem": "it is missing"}]}
    course = line(course={"done": 1, "total": 3})
    daemon.answers[f"GET /v1/{kind}/%2A/verify"] = [course, line(end=found, shown="")]
    view = await ask(name)
    assert (view.files, view.damaged[0].version, view.damaged[0].problem) == (2, "mnist@3", "it is missing")
    daemon.answers[f"GET /v1/{kind}/mnist%403/verify"] = [course, line(error={"code": "not_found", "message": "gone"})]
    with pytest.raises(NotFoundError, match="gone"):
        await ask(name, "mnist@3")
    daemon.answers[f"GET /v1/{kind}/mnist%403/verify"] = [course, b""]
    with pytest.raises(UnavailableError, match="broke off"):
        await ask(name, "mnist@3")
