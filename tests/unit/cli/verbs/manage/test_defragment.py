"""`fairway defragment` and `fairway submit --like`: their requests and their output."""

from __future__ import annotations

import pytest

from fairway.cli.main import main
from fairway.testing.fake.fake_daemon import FakeDaemon

Shown = pytest.CaptureFixture[str]


def test_a_plan_changes_nothing_and_says_so(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["POST /v1/defragment"] = "the plan\n"
    assert main(["defragment", "--plan", "--moves", "2"]) == 0
    assert daemon.asked[0].data == {"plan": True, "moves": 2}
    assert daemon.asked[0].query["output"] == "table"
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("the plan\n", "nothing was changed (--plan)\n")


def test_it_is_carried_out_only_without_plan(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["POST /v1/defragment"] = "moved\n"
    assert main(["defragment", "-o", "json"]) == 0
    assert daemon.asked[0].data == {"plan": False, "moves": 0}
    assert capsys.readouterr().err == "on local / default\n"


def test_a_run_like_another(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["GET /v1/jobs/mnist-7"] = {"name": "mnist-7", "roles": {"worker": {}}}
    daemon.answers["POST /v1/jobs"] = {"name": "mnist-8"}
    assert main(["submit", "--like", "mnist-7", "--gpus", "T4:2"]) == 0
    sent = daemon.of("POST", "/v1/jobs")[0].data
    assert sent["like"] == "mnist-7"
    resources = {"gpu": "2", "gpuType": ["T4"]}
    assert sent["document"] == {"spec": {"roles": {"worker": {"resources": resources}}}, "metadata": {}}
    assert "mnist-8" in capsys.readouterr().out


def test_a_run_like_another_with_another_command(daemon: FakeDaemon) -> None:
    daemon.answers["GET /v1/jobs/mnist-7"] = {"name": "mnist-7", "roles": {"worker": {}}}
    daemon.answers["POST /v1/jobs"] = {"name": "mnist-8"}
    assert main(["submit", "--like", "mnist-7", "--", "python", "x.py", "--lr", "2"]) == 0
    changed = daemon.of("POST", "/v1/jobs")[0].data["document"]["spec"]["roles"]
    assert changed == {"worker": {"command": ["python", "x.py", "--lr", "2"], "script": ""}}


def test_another_command_names_its_role_where_there_are_several(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["GET /v1/jobs/mnist-7"] = {"name": "mnist-7", "roles": {"chief": {}, "ps": {}}}
    assert main(["submit", "--like", "mnist-7", "--", "python", "x.py"]) == 2
    assert "chief or ps" in capsys.readouterr().err
    assert not daemon.of("POST", "/v1/jobs")


@pytest.mark.parametrize("typed", [["job.yaml", "--like", "mnist-7"], ["job.yaml", "--", "python", "x.py"], []])
def test_only_one_thing_is_submitted(typed: list[str], daemon: FakeDaemon, capsys: Shown) -> None:
    assert main(["submit", *typed]) == 2
    assert "one document or one command is needed, or one run with --like" in capsys.readouterr().err
