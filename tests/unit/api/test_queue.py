"""Queues over the API: applied, planned, listed, refused, deleted."""

from __future__ import annotations

from typing import Any

from fairway.app.port.port import ChangeSet
from fairway.state.queue import queue_of

QUEUE = "kind: JobQueue\nname: research\nmembers: [user:ana]\nweight: 2\nquota: {cpu: 2, gpu: {H100: 1}}\n"
JOB = "kind: TrainingJob\nname: mnist\nqueue: research\ncommand: stay\n"


async def apply(client: Any, text: str, **more: object) -> Any:
    return await client.post("/v1/apply?output=table", {"documents": text, "origin": {"user": "ana"}, **more})


async def test_a_queue_is_created_changed_or_left_alone(client: Any) -> None:
    assert (await apply(client, QUEUE, plan=True)).text == "the queue research would be created\n"
    assert (await apply(client, QUEUE)).text == "JobQueue research created\n"
    assert (await apply(client, QUEUE)).text == "JobQueue research unchanged\n"
    changed = QUEUE.replace("weight: 2", "weight: 3").replace("cpu: 2, ", "")
    planned = await apply(client, changed, plan=True)
    assert planned.text == "the queue research would be changed: weight 2 -> 3, quota.cpu 2 -> none\n"
    assert (await client.get("/v1/queues/research")).json["weight"] == 2.0
    assert (await apply(client, changed)).text == "JobQueue research changed\n"
    assert (
        await apply(client, changed, plan=True)
    ).text == "the queue research would not change: it already matches its document\n"
    answer = await client.post("/v1/apply", {"documents": changed})
    assert answer.json == {"applied": [{"kind": "JobQueue", "namespace": "", "name": "research", "action": "unchanged"}]}


async def test_a_queue_that_is_known_as_soon_as_it_is_an_object_was_created(client: Any, monkeypatch: Any) -> None:
    async def publish(documents: list[Any]) -> None:
        client.app.queues.take(ChangeSet(queues=tuple(queue_of(document) for document in documents)))

    monkeypatch.setattr(client.app, "publish", publish)
    assert (await apply(client, QUEUE)).text == "JobQueue research created\n"


async def test_a_job_may_name_a_queue_of_the_same_text_or_of_another_file(client: Any) -> None:
    both = f"{JOB}---\n{QUEUE}"
    assert (await apply(client, both, plan=True)).status == 200
    assert (await apply(client, both)).text == "TrainingJob mnist-1 created\nJobQueue research created\n"
    other = QUEUE.replace("research", "other")
    more = [{"documents": other, "file": "other.yaml"}]
    answer = await apply(client, JOB.replace("research", "other").replace("mnist", "next"), more=more)
    assert answer.text == "TrainingJob next-1 created\nJobQueue other created\n"


async def test_mistakes_of_all_files_come_at_once_and_change_nothing(client: Any) -> None:
    more = [{"documents": QUEUE.replace("weight: 2", "weight: 0"), "file": "b.yaml"}]
    answer = await apply(client, QUEUE.replace("weight", "wieght"), file="a.yaml", more=more)
    assert [(one["file"], one["line"], one["path"]) for one in answer.error["mistakes"]] == [
        ("a.yaml", 4, "wieght"),
        ("b.yaml", 4, "weight"),
    ]
    assert [queue["name"] for queue in (await client.get("/v1/queues")).json["queues"]] == ["default"]
    twice = await apply(client, f"{QUEUE}---\n{QUEUE}")
    assert (twice.status, twice.error["message"]) == (400, "the queue research is described twice")


async def test_each_file_has_a_folder_of_its_own(client: Any) -> None:
    more = [{"documents": JOB.replace("mnist", "far").replace("queue: research\n", ""), "folder": "/far"}]
    await apply(client, JOB.replace("queue: research\n", ""), folder="/near", more=more)
    assert [kept.origin.folder for kept in client.keeper.kept] == ["/near", "/far"]


async def test_a_queue_is_not_submitted(client: Any) -> None:
    answer = await client.post("/v1/jobs", {"documents": QUEUE, "file": "queue.yaml"})
    assert answer.status == 400
    assert answer.error["fix"] == "fairway apply -f queue.yaml"


async def test_queues_are_listed_in_every_format(client: Any) -> None:
    await apply(client, QUEUE)
    await apply(client, JOB)
    await client.settled()
    assert (await client.get("/v1/queues?output=name")).text == "default\nresearch\n"
    table = (await client.get("/v1/queues?output=table")).text
    assert table.splitlines()[0].split() == ["NAME", "WEIGHT", "RUNNING", "WAITING", "SHARE", "USED"]
    assert "research       2        1        0  25% of cpu  0/1 gpu:H100, 1/2 cpu" in table
    assert "MEMBERS" in (await client.get("/v1/queues?output=wide")).text
    view = (await client.get("/v1/queues/research?output=json")).json
    assert (view["running"], view["share"], view["dominant"], view["members"]) == (1, 25.0, "cpu", ["user:ana"])
    assert view["resources"][1] == {"resource": "cpu", "used": 1.0, "quota": 2.0, "borrowed": 0.0}
    assert "name: research" in (await client.get("/v1/queues/research?output=yaml")).text
    assert (await client.get("/v1/queues/reserch")).error["fix"] == "did you mean `research`?"


async def test_who_may_not_is_told_who_may(client: Any) -> None:
    await apply(client, QUEUE)
    answer = await client.post("/v1/jobs", {"documents": JOB, "origin": {"user": "nobody-known"}})
    assert (answer.status, answer.error["code"]) == (403, "denied")
    assert "user:ana may" in answer.error["message"]


async def test_a_queue_is_deleted_when_nobody_uses_it(client: Any) -> None:
    await apply(client, f"{QUEUE}---\n{JOB}")
    busy = await client.delete("/v1/queues/research")
    assert (busy.status, busy.error["code"]) == (409, "conflict")
    assert (await client.delete("/v1/queues/research?plan=true")).status == 409
    await client.settled()
    await client.post("/v1/jobs/mnist-1/stop", {"now": True})
    await client.settled()
    await client.settled()
    planned = await client.delete("/v1/queues/research?plan=true&output=table")
    assert planned.text == "the queue research would be deleted\n"
    assert (await client.delete("/v1/queues/research")).json == {"deleted": ["research"]}
    assert (await client.delete("/v1/queues/research")).status == 404


async def test_a_bare_name_that_a_queue_has_too_deletes_nothing(client: Any) -> None:
    await apply(client, QUEUE)
    await apply(client, JOB.replace("name: mnist", "name: research"))
    answer = await client.delete("/v1/jobs/research?bare=true")
    assert (answer.status, answer.error["message"]) == (409, "research is a queue too; nothing was changed")
    assert (await client.get("/v1/jobs/research")).status == 200


async def test_a_queue_is_rendered_in_both_spellings(client: Any) -> None:
    kubernetes = (await client.post("/v1/render", {"documents": QUEUE, "to": "kubernetes"})).text
    assert "gpuTypes:" in kubernetes
    flat = (await client.post("/v1/render", {"documents": kubernetes, "to": "flat"})).text
    assert (await client.post("/v1/render", {"documents": flat, "to": "kubernetes"})).text == kubernetes
