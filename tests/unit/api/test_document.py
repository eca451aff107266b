"""Submitting, applying and rendering over the API."""

from __future__ import annotations

import base64
from typing import Any

import pytest

DOCUMENT = "kind: TrainingJob\nname: mnist\nreplicas: 2\ncommand: stay\n"


async def test_a_document_becomes_a_run(client: Any) -> None:
    answer = await client.post("/v1/jobs", {"documents": DOCUMENT, "origin": {"user": "ana", "folder": "/work"}})
    assert answer.status == 201
    assert answer.headers["content-type"] == "application/json"
    job = answer.json
    assert (job["name"], job["namespace"], job["user"], job["origin"]) == ("mnist-1", "default", "ana", "/work")
    assert job["folder"] == "/home/fairway/jobs/default/mnist-1"
    assert (await client.post("/v1/jobs", {"documents": DOCUMENT})).json["name"] == "mnist-2"


async def test_a_document_as_data_with_what_comes_with_it(client: Any) -> None:
    document = {"kind": "TrainingJob", "metadata": {"name": "f"}, "spec": {"roles": {"worker": {"command": ["stay"]}}}}
    files = {"function.pkl": base64.b64encode(b"\x00\x01").decode()}
    answer = await client.post("/v1/jobs", {"document": document, "environment": {"PATH": "/bin"}, "files": files})
    assert answer.json["name"] == "f-1"
    kept = client.keeper.kept[0]
    assert (kept.environment, kept.files) == ({"PATH": "/bin"}, {"function.pkl": b"\x00\x01"})


async def test_several_documents_become_several_runs_or_none(client: Any) -> None:
    both = f"{DOCUMENT}---\n{DOCUMENT.replace('mnist', 'other')}"
    answer = await client.post("/v1/jobs", {"documents": both})
    assert [job["name"] for job in answer.json["jobs"]] == ["mnist-1", "other-1"]
    huge = f"{DOCUMENT}---\n{DOCUMENT.replace('mnist', 'huge')}resources: {{memory: 64Gi}}\n"
    answer = await client.post("/v1/jobs", {"documents": huge})
    assert (answer.status, answer.error["code"]) == (409, "never_fits")
    assert (await client.get("/v1/jobs")).json["total"] == 2


async def test_every_mistake_comes_back_with_its_place(client: Any) -> None:
    answer = await client.post(
        "/v1/jobs", {"documents": DOCUMENT.replace("replicas: 2", "replcas: 2\npriority: high"), "file": "job.yaml"}
    )
    assert answer.status == 422
    assert answer.error["code"] == "spec"
    places = [(mistake["file"], mistake["line"], mistake["path"]) for mistake in answer.error["mistakes"]]
    assert ("job.yaml", 3, "replcas") in places
    assert ("job.yaml", 4, "priority") in places
    assert (await client.get("/v1/jobs")).json["total"] == 0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "truncated"),
        (b"\xff", "JSON"),
        ({}, "either `documents` or `document`"),
        ({"documents": DOCUMENT, "document": {}}, "either `documents` or `document`"),
        ({"documents": 7}, "`$.documents`"),
        ({"documents": DOCUMENT, "plna": True}, "plna"),
    ],
)
async def test_a_body_that_makes_no_sense_is_refused(client: Any, body: object, said: str) -> None:
    answer = await client.post("/v1/jobs", body)
    assert (answer.status, answer.error["code"]) == (400, "usage")
    assert said in answer.error["message"] + answer.error["fix"]


async def test_the_callers_namespace_is_the_default(client: Any) -> None:
    answer = await client.post("/v1/jobs?namespace=team", {"documents": DOCUMENT})
    assert answer.json["namespace"] == "team"
    answer = await client.post("/v1/jobs?namespace=team", {"documents": f"{DOCUMENT}namespace: far\n"})
    assert answer.json["namespace"] == "far"


async def test_idle_gpus_are_told(client: Any) -> None:
    asks_for_none = await client.post("/v1/jobs", {"documents": DOCUMENT})
    assert asks_for_none.json["warnings"] == [
        "1 GPU idle here, but mnist requests none; request with `resources: {gpu: 1}` or --gpus 1"
    ]
    for said in ("resources: {gpu: 0}", "framework: command"):
        assert (await client.post("/v1/jobs", {"documents": f"{DOCUMENT}{said}\n"})).json["warnings"] == []


async def test_a_plan_changes_nothing(client: Any) -> None:
    answer = await client.post("/v1/jobs", {"documents": DOCUMENT, "plan": True})
    assert answer.status == 200
    assert answer.json["sentences"][:2] == ["mnist would have 2 workers, each with 1 CPU", "mnist would start now:"]
    answer = await client.post("/v1/jobs?output=table", {"documents": DOCUMENT, "plan": True})
    assert answer.text.startswith("mnist would have 2 workers, each with 1 CPU\n")
    assert (await client.get("/v1/jobs")).json["total"] == 0
    assert (await client.submit())["name"] == "mnist-1"


async def test_apply_starts_what_is_new_and_leaves_the_rest(client: Any) -> None:
    body = {"documents": DOCUMENT, "folder": "/work"}
    assert (await client.post("/v1/apply?output=table", body)).text == "TrainingJob mnist-1 created\n"
    assert client.keeper.kept[0].origin.folder == "/work"
    assert (await client.post("/v1/apply?output=table", body)).text == "TrainingJob mnist-1 unchanged\n"
    plan = await client.post("/v1/apply", {**body, "plan": True})
    assert plan.json["sentences"] == ["mnist-1 would not change: it already matches its document"]
    changed = {"documents": f"{DOCUMENT}priority: 3\n"}
    assert (await client.post("/v1/apply", {**changed, "plan": True})).json["sentences"][0].startswith("mnist would have")
    answer = await client.post("/v1/apply", changed)
    assert answer.json == {"applied": [{"kind": "TrainingJob", "namespace": "default", "name": "mnist-2", "action": "created"}]}


async def test_render_changes_the_spelling(client: Any) -> None:
    answer = await client.post("/v1/render", {"documents": f"{DOCUMENT}---\n{DOCUMENT}", "to": "kubernetes"})
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text.count("apiVersion: fairway.dev/v1alpha1") == 2
    answer = await client.post("/v1/render", {"documents": DOCUMENT, "to": "latin"})
    assert answer.status == 400


async def test_the_schema_describes_documents(client: Any) -> None:
    answer = await client.get("/v1/schema")
    assert answer.status == 200
    assert "replicas" in answer.text
