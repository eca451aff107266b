"""Waiting runs over the API: their explanations, suggested commands that work as shown, and moves."""

from __future__ import annotations

import shlex
from typing import Any

from fairway.cli.argument_parser import parse
from fairway.cli.flag.job import read_wishes
from fairway.cli.verbs.train.submit import COMMANDS
from fairway.sdk.submission import document

FULL = "kind: TrainingJob\nname: full\ncommand: stay\nresources: {gpu: 1, cpu: 1}\n"
WAITS = """\
kind: TrainingJob
name: waits
command: stay
env: {API_TOKEN: secret-value}
resources: {cpu: 4}
"""


async def paste(client: Any, command: str) -> Any:
    """Process the command as the command line does, up to the request."""
    again, stop = command.split(" && ")
    options = parse(COMMANDS[""], shlex.split(again)[2:])
    run = (await client.get(f"/v1/jobs/{options.text('like')}")).json
    changes = document.change_document({"spec": {"roles": {role: {} for role in run["roles"]}}}, read_wishes(options))
    answer = await client.post(
        "/v1/jobs", {"like": run["name"], "document": changes, "origin": {"user": "ana"}, "environment": {}}
    )
    assert answer.status == 201, answer.text
    assert (await client.post(f"/v1/jobs/{shlex.split(stop)[-1]}/stop", {})).status == 200
    for _ in range(3):
        await client.settled()
    return answer.json


async def test_a_waiting_run_gets_an_answer_and_its_command_works(client: Any) -> None:
    await client.submit(FULL)
    await client.submit(WAITS)
    why = (await client.get("/v1/jobs/waits/why")).json
    assert why["message"] == "needs 4 CPUs; 3 of 4 are free"
    assert (why["position"], why["waiting"]["position"], why["waiting"]["of"]) == (1, 1, 1)
    assert set(why["waiting"]["start"]) == {"words", "low", "median", "high", "confidence", "not_before", "plays", "guess"}
    smaller = why["waiting"]["changes"][0]
    assert (smaller["kind"], smaller["words"], smaller["value"]) == ("cpu", "with 3 CPUs: now", "3")
    assert smaller["command"] == "fairway submit --like waits-1 --cpus 3 && fairway stop waits-1"
    made = await paste(client, smaller["command"])
    assert made["name"] == "waits-2"
    run = client.app.find("default", "waits-2")
    assert run.phase == "Running"
    assert run.spec.env == {"API_TOKEN": "secret-value"}, "what views mask is in the new run all the same"
    assert client.app.find("default", "waits-1").phase == "Stopped"


async def test_the_page_of_a_waiting_run(client: Any) -> None:
    await client.submit(FULL)
    await client.submit(WAITS)
    page = (await client.get("/v1/jobs/waits/why?output=table")).text.splitlines()
    assert page[0].endswith("needs 4 CPUs; 3 of 4 are free")
    assert page[1] == "  place in queue default: 1 of 1"
    assert page[2].startswith("  earliest start: ")
    assert page[3] == "  what would help, the cheapest first:"
    assert page[4:6] == ["    with 3 CPUs: now", "      fairway submit --like waits-1 --cpus 3 && fairway stop waits-1"]


async def test_like_another_run_in_its_own_folder(client: Any) -> None:
    body = {"documents": FULL, "origin": {"user": "ana", "folder": "/home/ana", "interpreter": "/usr/bin/python3"}}
    await client.post("/v1/jobs", body)
    asked = {"like": "full", "document": {"spec": {"priority": 7}}, "origin": {"user": "bob", "folder": "/elsewhere"}}
    answer = (await client.post("/v1/jobs", {**asked, "environment": {"A": "1", "HF_HOME": "/hf"}})).json
    assert (answer["name"], answer["priority"]) == ("full-2", 7)
    kept = client.keeper.kept[-1]
    assert (kept.origin.user, kept.origin.folder, kept.origin.interpreter) == ("bob", "/home/ana", "/usr/bin/python3")
    assert kept.environment == {"HF_HOME": "/hf"}, "only a run in place gets all"


async def test_like_nothing_or_a_function_is_refused(client: Any) -> None:
    gone = await client.post("/v1/jobs", {"like": "gone-1", "document": {}})
    assert gone.status == 404
    await client.submit("kind: TrainingJob\nname: call\ncommand: [python, -m, fairway.runtime.call, call.pickle]\n")
    refused = await client.post("/v1/jobs", {"like": "call", "document": {}})
    assert refused.error["message"] == "call-1 calls a Python function, which only its program has"


async def test_moves_over_the_wire(client: Any) -> None:
    answer = await client.post("/v1/defragment?output=table", {"plan": True})
    assert answer.text == "no moves would help: no run waits only because free GPUs are scattered\n"
    assert (await client.post("/v1/defragment", {"moves": 2})).json == {
        "whom": "", "namespace": "", "nodes": [], "moves": [], "cost": 0.0, "done": False,
    }  # fmt: skip
