"""Logs and watch: what they send, when, and that nothing stays open."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from fairway.api.stream import run_stream
from fairway.app.port.port import LogChunk
from fairway.state.task import TaskExit

ALONE = "kind: TrainingJob\nname: alone\ncommand: stay\n"


async def test_one_task_prints_as_it_is(client: Any) -> None:
    await client.submit(ALONE)
    client.engine.say(("worker-0", b"\xff raw\r 50%\r"), ("worker-0", b"done"))
    answer = await client.get("/v1/jobs/alone/logs")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.body == b"\xff raw\r 50%\rdone"
    assert client.engine.closed == 1


async def test_several_tasks_have_names(client: Any) -> None:
    await client.submit()
    client.engine.say(("worker-0", b"one\ntw"), ("worker-1", b"three\n"), ("worker-0", b"o\n"))
    assert (await client.get("/v1/jobs/mnist/logs")).text == "worker-0 | one\nworker-1 | three\nworker-0 | two\n"
    client.engine.say(("worker-0", b"x\n"))
    assert (await client.get("/v1/jobs/mnist/logs?prefix=false")).text == "x\n"
    client.engine.say(("worker-1", b"x\n"))
    assert (await client.get("/v1/jobs/mnist/logs?role=worker&index=1")).text == "x\n"
    client.engine.say(("worker-1", b"x\n"))
    assert (await client.get("/v1/jobs/mnist/logs?index=1&prefix=1&colour=1")).text == "\x1b[36mworker-1 | \x1b[0mx\n"


async def test_processes_of_one_task_have_names_too(client: Any) -> None:
    await client.submit("kind: TrainingJob\nname: two\nprocesses: 2\ncommand: stay\n")
    client.engine.say(("worker-0", b"a\n"), ("worker-0.1", b"b\n"))
    assert (await client.get("/v1/jobs/two/logs")).text == "worker-0   | a\nworker-0.1 | b\n"


async def test_tasks_that_do_not_exist_yet_will_have_names(client: Any) -> None:
    await client.post("/v1/jobs", {"documents": "kind: TrainingJob\nname: new\nreplicas: 2\ncommand: stay\n"})
    client.engine.say(("worker-0", b"a\n"))
    assert (await client.get("/v1/jobs/new/logs?follow=1")).text == "worker-0 | a\n"
    client.engine.say(("worker-1", b"a\n"))
    assert (await client.get("/v1/jobs/new/logs?follow=1&index=1")).text == "a\n"


async def test_what_was_asked_is_passed_on(client: Any) -> None:
    await client.submit()
    client.engine.say()
    await client.get("/v1/jobs/mnist/logs?role=worker&index=1&attempt=0&tail=5&since=10m&grep=a%7Cb&follow=true")
    query = client.engine.queries[0]
    assert (query.role, query.index, query.attempt, query.tail, query.grep, query.follow) == ("worker", 1, 0, 5, "a|b", True)
    assert query.since == client.clock.time - 600
    client.engine.say()
    await client.get("/v1/jobs/mnist/logs?since=1699999999.5")
    assert client.engine.queries[1].since == 1699999999.5


async def test_lines_may_carry_their_time(client: Any) -> None:
    await client.submit()
    client.engine.said.put_nowait(LogChunk("worker-0", 0, b"one\ntw", 1.0))
    client.engine.said.put_nowait(LogChunk("worker-1", 0, b"three\n", 2.0))
    client.engine.say(("worker-0", b"o\n"))
    answer = await client.get("/v1/jobs/mnist/logs?timestamps=1")
    assert answer.text == (
        "worker-0 | 1970-01-01T00:00:01.000Z one\n"
        "worker-1 | 1970-01-01T00:00:02.000Z three\n"
        "worker-0 | 1970-01-01T00:00:01.000Z two\n"
    )
    assert client.engine.queries[0].timed
    assert client.engine.closed == 1


@pytest.mark.parametrize("attempt", ["all", "-1"])
async def test_attempts_have_headings(client: Any, attempt: str) -> None:
    await client.submit(ALONE)
    client.engine.say(("worker-0", b"a\n"), ("worker-0", b"b\n"), ("worker-0", b"c\n", 1))
    answer = await client.get(f"/v1/jobs/alone/logs?attempt={attempt}")
    assert answer.text == "==> worker-0, attempt 0 <==\na\nb\n==> worker-0, attempt 1 <==\nc\n"


async def test_who_follows_sees_where_another_attempt_begins(client: Any) -> None:
    await client.submit(ALONE)
    client.engine.say(("worker-0", b"a\n"), ("worker-0", b"no end"), ("worker-0", b"c\n", 1), ("worker-0", b"d\n", 1))
    answer = await client.get("/v1/jobs/alone/logs?follow=true")
    assert answer.text == "a\nno end\n==> worker-0, attempt 1 <==\nc\nd\n"


async def test_who_follows_several_tasks_sees_it_of_each(client: Any) -> None:
    await client.submit()
    client.engine.say(("worker-0", b"a\n"), ("worker-1", b"b\n"), ("worker-1", b"c\n", 1))
    answer = await client.get("/v1/jobs/mnist/logs?follow=true")
    assert answer.text == "worker-0 | a\nworker-1 | b\nworker-1 | ==> worker-1, attempt 1 <==\nworker-1 | c\n"


async def test_roles_and_tasks_that_are_not_there(client: Any) -> None:
    await client.submit()
    answer = await client.get("/v1/jobs/mnist/logs?role=wroker")
    assert (answer.status, answer.error["code"]) == (404, "not_found")
    assert "worker" in answer.error["fix"]
    answer = await client.get("/v1/jobs/mnist/logs?role=worker&index=7")
    assert answer.error["message"] == "mnist-1 has no worker-7"
    assert answer.error["fix"] == "it has worker-0 and worker-1"


async def test_an_unfinished_line_does_not_wait_for_its_end(client: Any) -> None:
    await client.submit()
    exchange = client.begin("GET", "/v1/jobs/mnist/logs?follow=1")
    client.engine.say(("worker-0", b"name? "), end=False)
    await exchange.until(b"worker-0 | name? ")
    client.engine.say(("worker-0", b"ana\n"))
    assert (await exchange.done()).body == b"worker-0 | name? ana\n"


async def test_hanging_up_closes_the_source(client: Any) -> None:
    await client.submit()
    for target in ("logs?follow=1", "logs?follow=1&prefix=0", "watch"):
        before = client.engine.closed
        exchange = client.begin("GET", f"/v1/jobs/mnist/{target}")
        client.engine.say(("worker-0", b"x\n"), end=False)
        await exchange.until(b"x")
        exchange.hang_up()
        await exchange.done()
        assert client.engine.closed == before + 1


def _lines(body: bytes) -> list[Any]:
    return [json.loads(line) for line in body.splitlines()]


def _said(log: dict[str, str]) -> bytes:
    """Return the exact bytes: sent as text, or as base64 if they are not valid text."""
    return base64.b64decode(log["base64"]) if "base64" in log else log["text"].encode()


async def test_watch_tells_everything_to_the_end(client: Any) -> None:
    job = await client.submit(ALONE)
    exchange = client.begin("GET", "/v1/jobs/alone/watch")
    await exchange.until(b"Running")
    client.engine.say(("worker-0", "sch\u00f6n".encode()[:4]), ("worker-0", "sch\u00f6n".encode()[4:]), end=False)
    await exchange.until(b"n")
    key = client.app.tasks(client.app.find("default", job["name"]))[0].key
    client.engine.end(key, TaskExit(0))
    await client.settled()
    await exchange.until(b"Succeeded")
    assert b'"end"' not in exchange.answer.body
    client.engine.say(("worker-0", b"last words\n"))
    answer = await exchange.done()
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = _lines(answer.body)
    assert [next(iter(line)) for line in lines] == ["job", "log", "log", "job", "log", "end"]
    assert b"".join(_said(line["log"]) for line in lines if "log" in line).decode() == "sch\u00f6nlast words\n"
    assert lines[1]["log"]["task"] == "worker-0"
    assert (lines[0]["job"]["phase"], lines[-1]["end"]["phase"]) == ("Running", "Succeeded")
    assert "spec" not in lines[0]["job"]
    assert lines[-1]["end"]["tasks"][0]["phase"] == "Succeeded"


async def test_watching_what_is_over_ends(client: Any) -> None:
    await client.submit("kind: TrainingJob\nname: short\ncommand: exit 0\n")
    await client.settled()
    client.engine.say(("worker-0", b"hi\n"))
    assert [next(iter(line)) for line in _lines((await client.get("/v1/jobs/short/watch")).body)] == ["job", "log", "end"]
    assert [next(iter(line)) for line in _lines((await client.get("/v1/jobs/short/watch?logs=false")).body)] == ["job", "end"]


async def test_watching_what_is_deleted_tells_so(client: Any) -> None:
    await client.submit(ALONE)
    exchange = client.begin("GET", "/v1/jobs/alone/watch?logs=0")
    await exchange.until(b"job")
    deleting = client.begin("DELETE", "/v1/jobs/alone")
    while not deleting.task.done():
        await client.settled()
    lines = _lines((await exchange.done()).body)
    assert lines[-1].get("error", {}).get("code") == "not_found" or lines[-1]["end"]["phase"] == "Stopped"


async def test_progress_is_told_at_a_pace(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_stream, "PACE", 3600.0)
    await client.submit(ALONE)
    exchange = client.begin("GET", "/v1/jobs/alone/watch?logs=0")
    await exchange.until(b"job")
    job = client.app.find("default", "alone")
    for step in range(5):
        job = replace(job, progress=replace(job.progress, step=step))
        client.app.loop.snapshot.put_job(job)
        client.app.loop.watchers.tell([job.key])
        await client.settled()
    client.engine.end(client.app.tasks(job)[0].key, TaskExit(0))
    await client.settled()
    lines = _lines((await exchange.done()).body)
    assert [next(iter(line)) for line in lines] == ["job", "job", "end"]
    assert lines[-1]["end"]["progress"]["step"] == 4


async def test_an_mpi_job_will_print_as_one(client: Any) -> None:
    await client.post("/v1/jobs", {"documents": "kind: TrainingJob\nname: ring\nframework: mpi\nreplicas: 3\ncommand: stay\n"})
    client.engine.say(("worker-0", b"a\n"))
    assert (await client.get("/v1/jobs/ring/logs?follow=1")).text == "a\n"
