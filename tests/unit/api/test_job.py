"""Runs over the API."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.app.port.port import ChangeSet, MetricPoint
from fairway.state.event import RunEvent
from fairway.state.task import TaskExit

ENDING = "kind: TrainingJob\nname: short\ncommand: exit 0\n"


async def test_lists_come_in_pages(client: Any) -> None:
    for _ in range(3):
        await client.submit()
    page = (await client.get("/v1/jobs?limit=2")).json
    assert ([job["name"] for job in page["jobs"]], page["total"]) == (["mnist-3", "mnist-2"], 3)
    rest = (await client.get(f"/v1/jobs?limit=2&before={page['next']}")).json
    assert ([job["name"] for job in rest["jobs"]], rest["next"]) == (["mnist-1"], "")


async def test_lists_are_filtered(client: Any) -> None:
    await client.submit()
    await client.submit(ENDING)
    await client.settled()
    await client.post("/v1/jobs?namespace=team", {"documents": f"{ENDING}labels: {{a: b}}\n"})

    async def names(query: str) -> str:
        return (await client.get(f"/v1/jobs?output=name&{query}")).text

    assert await names("") == "short-1\nmnist-1\n"
    assert await names("series=mnist") == "mnist-1\n"
    assert await names("phase=succeeded") == "short-1\n"
    assert await names("phase=active") == "mnist-1\n"
    assert await names("phase=Running,Succeeded") == "short-1\nmnist-1\n"
    assert await names("namespace=team") == "short-1\n"
    assert await names("namespace=*") == "short-1\nshort-1\nmnist-1\n"
    assert await names("namespace=team&label=a%3Db") == "short-1\n"
    assert await names("label=a%3Dx") == ""


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("/v1/jobs?phase=runing", "phase='runing' is not a phase"),
        ("/v1/jobs?limit=0", "limit='0' is not a whole number of 1 or more"),
        ("/v1/jobs?limit=many", "limit='many' is not a whole number"),
        ("/v1/jobs?before=x", "before='x' is not a cursor"),
        ("/v1/jobs?output=xml", "output='xml' is not known"),
        ("/v1/jobs?output=table&width=wide", "width='wide' is not a whole number"),
        ("/v1/jobs?output=table&colour=perhaps", "colour='perhaps' is not a boolean"),
        ("/v1/jobs?label=x", "label='x' is not a label"),
        ("/v1/jobs/mnist/logs?grep=(", "grep='(' is not a regular expression"),
        ("/v1/jobs/mnist/logs?since=yesterday", "since='yesterday' is not a duration"),
        ("/v1/jobs/mnist/logs?tail=-1", "tail='-1' is not a whole number of 0 or more"),
    ],
)
async def test_values_that_make_no_sense_are_named(client: Any, target: str, message: str) -> None:
    await client.submit()
    answer = await client.get(target)
    assert (answer.status, answer.error["code"]) == (400, "usage")
    assert message in answer.error["message"]
    assert answer.error["fix"]


async def test_a_run_is_found_by_its_name_or_its_series(client: Any) -> None:
    await client.submit()
    await client.submit()
    assert (await client.get("/v1/jobs/mnist")).json["name"] == "mnist-2"
    job = (await client.get("/v1/jobs/mnist-1")).json
    assert (job["name"], job["phase"], job["ready"], job["replicas"]) == ("mnist-1", "Running", 2, 2)
    assert [task["name"] for task in job["tasks"]] == ["worker-0", "worker-1"]
    assert job["spec"]["command"] == "stay"


async def test_formats(client: Any) -> None:
    await client.submit()
    table = await client.get("/v1/jobs/mnist?output=table")
    assert table.headers["content-type"] == "text/plain; charset=utf-8"
    assert table.text.startswith("mnist-1  Running for ")
    assert (await client.get("/v1/jobs/mnist?output=name")).text == "mnist-1\n"
    assert (await client.get("/v1/jobs/mnist?output=yaml")).text.startswith("name: mnist-1\n")
    assert (await client.get("/v1/jobs/mnist?output=json")).text.startswith('{\n  "name": "mnist-1",\n')
    assert "\x1b[32mRunning" in (await client.get("/v1/jobs?output=table&colour=1")).text
    assert len((await client.get("/v1/jobs?output=wide&width=60")).text.splitlines()[1]) <= 60


async def test_what_is_not_there(client: Any) -> None:
    await client.submit()
    answer = await client.get("/v1/jobs/mnits")
    assert (answer.status, answer.error["code"]) == (404, "not_found")
    assert "mnist" in answer.error["fix"]
    for verb in ("stop", "resume"):
        assert (await client.post(f"/v1/jobs/nothing/{verb}")).status == 404
    assert (await client.delete("/v1/jobs/nothing")).status == 404


async def test_stop_then_resume(client: Any) -> None:
    await client.submit()
    assert (await client.post("/v1/jobs/mnist/stop", {"plan": True})).json["sentences"] == [
        "mnist-1 would be asked to end, and killed after its grace period"
    ]
    answer = await client.post("/v1/jobs/mnist/stop", {"now": True})
    assert answer.json["name"] == "mnist-1"
    await client.settled()
    await client.settled()
    assert (await client.get("/v1/jobs/mnist")).json["phase"] == "Stopped"
    assert (await client.post("/v1/jobs/mnist/resume")).json["phase"] == "Pending"
    again = await client.post("/v1/jobs/mnist/resume")
    assert (again.status, again.error["code"]) == (409, "conflict")


async def test_stopping_a_series_means_its_one_run(client: Any) -> None:
    for _ in range(2):
        await client.submit("kind: TrainingJob\nname: mnist\ncommand: stay\n")
    answer = await client.post("/v1/jobs/mnist/stop")
    assert (answer.status, answer.error["code"]) == (409, "refused")
    assert "mnist means 2 runs (mnist-2 and mnist-1)" in answer.error["message"]
    answer = await client.post("/v1/jobs/mnist/stop", {"all": True})
    assert [job["name"] for job in answer.json["jobs"]] == ["mnist-2", "mnist-1"]


async def test_delete_asks_which_when_there_are_several(client: Any) -> None:
    for _ in range(7):
        await client.submit(ENDING)
        await client.settled()
    refused = await client.delete("/v1/jobs/short")
    assert (refused.status, refused.error["code"]) == (409, "refused")
    assert "short means 7 runs (short-1 to short-7)" in refused.error["message"]
    assert "fairway delete --all short" in refused.error["fix"]
    plan = await client.delete("/v1/jobs/short-7?plan=true&output=table")
    assert plan.text == "short-7 would be deleted with its logs, checkpoints and outputs\n"
    assert (await client.delete("/v1/jobs/short-7")).json == {"deleted": ["short-7"]}
    assert (await client.get("/v1/jobs/short-7")).status == 404
    assert len((await client.delete("/v1/jobs/short?all")).json["deleted"]) == 6
    assert (await client.get("/v1/jobs")).json["total"] == 0


async def test_events_of_one_namespace_are_not_hidden_by_those_of_another(client: Any) -> None:
    mine = [RunEvent(1.0, subject, "Mine", "") for subject in ("team/m-1", "team/m-1/worker-0#1", "service:team/s")]
    busy = [RunEvent(2.0, subject, "Theirs", "") for subject in ("other/m-1", "team2/m-1", "service:other/s", "queue:team")] * 100
    client.app.store.commit(ChangeSet(events=(*mine, *busy)))
    events = (await client.get("/v1/events?within=team&limit=50")).json["events"]
    assert [(event["subject"], event["reason"]) for event in events] == [(event.subject, "Mine") for event in mine]
    assert len((await client.get("/v1/events?within=team&limit=2")).json["events"]) == 2
    assert len((await client.get("/v1/events?within=other&limit=50")).json["events"]) == 50


async def test_events_and_why(client: Any) -> None:
    await client.submit()
    events = (await client.get("/v1/jobs/mnist/events")).json["events"]
    assert [event["reason"] for event in events][:2] == ["Submitted", "Placed"]
    assert "Submitted" in (await client.get("/v1/events?output=table")).text
    assert len((await client.get("/v1/events?limit=1")).json["events"]) == 1
    why = (await client.get("/v1/jobs/mnist/why")).json
    assert (why["phase"], why["reason"]) == ("Running", "running")
    assert (await client.get("/v1/jobs/mnist/why?output=table")).text.startswith("mnist-1 is Running")


async def test_why_it_failed_shows_the_last_lines(client: Any) -> None:
    job = await client.submit("kind: TrainingJob\nname: bad\ncommand: stay\nrestart: 0\n")
    key = client.app.tasks(client.app.find("default", job["name"]))[0].key
    client.engine.end(key, TaskExit(1, tail="Traceback\nValueError: bad batch\n"))
    await client.settled()
    await client.settled()
    why = (await client.get("/v1/jobs/bad/why")).json
    assert why["phase"] == "Failed"
    assert "ValueError: bad batch" in why["tail"]
    assert "  │ ValueError: bad batch\n" in (await client.get("/v1/jobs/bad?output=table")).text


async def test_metrics(client: Any) -> None:
    await client.submit()
    key = client.app.find("default", "mnist").key
    points = [MetricPoint(float(step), step, {"loss": float("nan") if step else 1.0}, "worker-0") for step in range(10)]
    client.app.store.commit(ChangeSet(points=tuple((key, point) for point in points)))
    view = (await client.get("/v1/jobs/mnist/metrics?metric=loss&limit=5")).json
    assert (view["names"], len(view["points"])) == (["loss"], 5)
    assert [point["metrics"]["loss"] for point in view["points"]] == [1.0, None, None, None, None]
    unknown = await client.get("/v1/jobs/mnist/metrics?metric=los")
    assert (unknown.status, unknown.error["fix"]) == (404, "did you mean `loss`?")
    assert "it has loss" in unknown.error["message"]
    table = (await client.get("/v1/jobs/mnist/metrics?output=table&limit=2")).text
    assert table == "STEP  loss\n   0     1\n   9   nan\nlast   nan\nbest     1\n"
    summary = {"last": None, "last_step": 9, "goal": "min", "best": 1.0, "best_step": 0, "min": 1.0, "max": 1.0}
    assert view["summary"] == {"loss": summary}


async def test_top(client: Any) -> None:
    await client.submit()
    await client.submit(ENDING)
    await client.settled()
    jobs = (await client.get("/v1/top/jobs")).json["jobs"]
    assert [job["name"] for job in jobs] == ["mnist-1"]
    assert [(task["cpu_used"], task["memory_used"]) for task in jobs[0]["tasks"]] == [(1.5, 1 << 30)] * 2
    words = (await client.get("/v1/top/jobs?output=table")).text.splitlines()[1].split()
    assert words[:8] == ["mnist-1", "Running", "2/2", "3.00", "of", "2", "2", "GiB"]


async def test_top_of_one_run_is_by_task(client: Any) -> None:
    await client.submit()
    view = (await client.get("/v1/top/jobs/mnist")).json
    assert view["name"] == "mnist-1"
    assert [(task["name"], task["cpu_used"], task["memory_used"]) for task in view["tasks"]] == [
        ("worker-0", 1.5, 1 << 30),
        ("worker-1", 1.5, 1 << 30),
    ]
    assert "1.50 of" in (await client.get("/v1/top/jobs/mnist?output=table")).text
    assert (await client.get("/v1/top/jobs/nothing")).status == 404


async def test_a_list_by_labels_and_in_another_order(client: Any) -> None:
    for name, labels, priority in (("b", "{team: nlp, stage: test}", 3), ("a", "{team: nlp}", 9), ("c", "{team: cv}", 1)):
        text = f"kind: TrainingJob\nname: {name}\nlabels: {labels}\npriority: {priority}\ncommand: stay\n"
        assert (await client.post("/v1/jobs", {"documents": text})).status == 201

    async def names(query: str) -> list[str]:
        return [job["name"] for job in (await client.get(f"/v1/jobs?{query}")).json["jobs"]]

    assert await names("label=team=nlp") == ["a-1", "b-1"]
    assert await names("label=team=nlp,stage=test") == ["b-1"]
    assert await names("sort=priority") == ["c-1", "b-1", "a-1"]
    assert await names("sort=-priority&limit=1") == ["a-1"]
    assert await names("sort=name") == ["a-1", "b-1", "c-1"]
    assert set(await names("sort=finished")) == {"a-1", "b-1", "c-1"}
    refused = await client.get("/v1/jobs?sort=prioritty")
    assert (refused.status, "priority" in refused.error["fix"]) == (400, True)
    assert (await client.get("/v1/jobs?sort=name&before=1")).status == 400
