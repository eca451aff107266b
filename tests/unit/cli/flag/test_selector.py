"""Selecting runs by label, order and age, and the confirmation before many are deleted."""

from __future__ import annotations

import json
import os
import pty
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fairway.cli.main import main
from fairway.cli.terminal import watch
from fairway.errors import DocumentMistake, SpecError
from fairway.testing.fake.fake_daemon import DaemonRequestRecord, FakeDaemon

Shown = pytest.CaptureFixture[str]


def page(*names: str, **more: Any) -> dict[str, object]:
    return {"jobs": [{"name": name, "phase": "Running", **more} for name in names], "next": "", "total": len(names)}


def test_list_by_label_and_order(daemon: FakeDaemon) -> None:
    daemon.answers["GET /v1/jobs"] = "table\n"
    assert main(["list", "-l", "team=nlp", "-l", "stage=test", "--sort", "-duration", "--all"]) == 0
    query = daemon.asked[0].query
    assert (query["label"], query["sort"], int(query["limit"]) > 10**6) == ("team=nlp,stage=test", "-duration", True)


@pytest.mark.parametrize(
    "words", [["list", "-l", "team"], ["stop", "-l", "=x"], ["wait", "-l", "team"], ["delete", "-l", "team"]]
)
def test_a_label_without_a_value_is_refused(daemon: FakeDaemon, capsys: Shown, words: list[str]) -> None:
    assert main(words) == 2
    assert "write -l KEY=VALUE" in capsys.readouterr().err


def test_filters_are_about_runs_only(daemon: FakeDaemon, capsys: Shown) -> None:
    assert main(["list", "services", "--sort", "name"]) == 2
    assert "--sort applies only to runs" in capsys.readouterr().err


def test_an_unknown_order_names_the_flag(capsys: Shown) -> None:
    assert main(["list", "--sort", "-durations"]) == 2
    stderr = capsys.readouterr().err
    assert "--sort -durations" in stderr
    assert "did you mean duration?" in stderr


def test_stop_and_wait_by_label(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["GET /v1/jobs"] = page("a-1", "b-2")
    for name in ("a-1", "b-2"):
        daemon.answers[f"POST /v1/jobs/{name}/stop"] = {"name": name, "phase": "Stopping"}
        daemon.answers[f"GET /v1/jobs/{name}/watch"] = [
            json.dumps({"end": {"name": name, "phase": "Succeeded"}}).encode() + b"\n"
        ]
    assert main(["stop", "-l", "team=nlp"]) == 0
    assert capsys.readouterr().out == "a-1\nb-2\n"
    assert (daemon.asked[0].query["phase"], daemon.asked[0].query["label"]) == ("active", "team=nlp")
    assert main(["wait", "-l", "team=nlp"]) == 0
    assert "b-2 succeeded" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["stop"], ["delete"]])
def test_nothing_named_is_nothing_done(daemon: FakeDaemon, capsys: Shown, words: list[str]) -> None:
    assert main(words) == 2
    assert "no run is named" in capsys.readouterr().err
    assert daemon.asked == []


def test_deleting_many_needs_a_yes(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["GET /v1/jobs"] = page("a-1", "b-2")
    for name in ("a-1", "b-2"):
        daemon.answers[f"DELETE /v1/jobs/{name}"] = lambda asked: (
            {"jobs": [asked.path.rpartition("/")[2]]} if asked.query.get("plan") else {"deleted": [asked.path.rpartition("/")[2]]}
        )
    for words in (["delete", "-l", "stage=test"], ["delete", "--all"]):
        assert main(words) == 2
        stderr = capsys.readouterr().err
        assert "2 runs: a-1, b-2 would be deleted" in stderr
        assert "add -y" in stderr
    assert not [asked for asked in daemon.asked if asked.method == "DELETE" and not asked.query.get("plan")]
    assert main(["delete", "-l", "stage=test", "-y"]) == 0
    assert capsys.readouterr().out == "a-1\nb-2\n"


@pytest.mark.parametrize(("answer", "gone"), [(b"y\n", True), (b"\n", False), (b"no\n", False)])
def test_a_terminal_is_asked(home: str, answer: bytes, gone: bool) -> None:
    deleted: list[str] = []

    def delete(asked: DaemonRequestRecord) -> dict[str, object]:
        if asked.query.get("plan"):
            return {"jobs": ["a-1", "a-2"]}
        deleted.append(asked.path)
        return {"deleted": ["a-1", "a-2"]}

    with FakeDaemon(home, {"DELETE /v1/jobs/a": delete}):
        pid, terminal = pty.fork()
        if not pid:
            os.execv(sys.executable, [sys.executable, "-m", "fairway", "delete", "--all", "a"])
        seen = b""
        while b"[y/N]" not in seen:
            seen += os.read(terminal, 4096)
        os.write(terminal, answer)
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
    assert (os.waitstatus_to_exitcode(status), bool(deleted)) == ((0, True) if gone else (1, False))


class TestPrune:
    @pytest.fixture
    def runs(self, daemon: FakeDaemon, tmp_path: Path) -> FakeDaemon:
        folder = tmp_path / "run"
        folder.mkdir()
        (folder / "log").write_bytes(b"x" * 100_000)
        now = time.time()
        old = {"name": "old-1", "finished": now - 40 * 86400, "folder": str(folder)}
        daemon.answers["GET /v1/jobs"] = {
            "jobs": [
                {"name": "new-1", "finished": now - 60, "folder": ""},
                old,
                {"name": "odd-1", "finished": None, "folder": ""},
            ],
            "next": "",
        }
        daemon.answers["DELETE /v1/jobs/old-1"] = {"deleted": ["old-1"]}
        return daemon

    def test_old_failures_go_and_the_space_is_said(self, runs: FakeDaemon, capsys: Shown) -> None:
        assert main(["prune", "--older-than", "30d", "--phase", "Failed", "-y"]) == 0
        assert runs.asked[0].query["phase"] == "failed"
        shown = capsys.readouterr()
        assert shown.out.startswith("old-1  ")
        assert "1 run is deleted, " in shown.err

    def test_a_plan_deletes_nothing(self, runs: FakeDaemon, capsys: Shown) -> None:
        assert main(["prune", "--older-than", "30d", "--plan", "-o", "json"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert (data["would_delete"], data["deleted"]) == (["old-1"], [])
        assert data["bytes"] >= 100_000
        assert runs.asked[0].query["phase"] == "succeeded,failed,stopped"
        assert not [asked for asked in runs.asked if asked.method == "DELETE"]

    def test_without_a_terminal_it_needs_a_yes(self, runs: FakeDaemon, capsys: Shown) -> None:
        assert main(["prune", "--older-than", "30d"]) == 2
        assert "add -y" in capsys.readouterr().err
        assert not [asked for asked in runs.asked if asked.method == "DELETE"]

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ([], "no filter selects"),
            (["--phase", "running"], "only finished runs"),
            (["--older-than", "soon"], "--older-than soon is not a duration"),
        ],
    )
    def test_what_is_unclear_is_refused(self, daemon: FakeDaemon, capsys: Shown, words: list[str], said: str) -> None:
        assert main(["prune", *words]) == 2
        assert said in capsys.readouterr().err
        assert daemon.asked == []


def test_top_alone_shows_nodes_and_jobs(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["GET /v1/nodes"] = lambda asked: "NODES\n" if asked.query.get("output") else {"nodes": [1]}
    daemon.answers["GET /v1/top/jobs"] = lambda asked: "JOBS\n" if asked.query.get("output") else {"jobs": [2]}
    assert main(["top"]) == 0
    assert capsys.readouterr().out == "NODES\nJOBS\n"
    assert main(["-n", "team", "top", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"nodes": [1], "jobs": [2]}
    assert main(["top", "--help"]) == 0
    assert "fairway top job" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["list"], ["get", "mnist"], ["top"], ["top", "job"]])
def test_watching_without_a_terminal_prints_a_block_a_change_and_ends_with_0(
    daemon: FakeDaemon, capsys: Shown, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    looks = 0

    def answer(asked: DaemonRequestRecord) -> str | dict[str, object]:
        # Time advances with every request; the phase changes in the third.
        phase = "Pending" if looks < 2 else "Running"
        return f"{phase}\n" if asked.query.get("output") else {"phase": phase, "duration": looks}

    for path in ("/v1/jobs", "/v1/jobs/mnist", "/v1/nodes", "/v1/top/jobs"):
        daemon.answers[f"GET {path}"] = answer

    def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(watch.time, "sleep", sleep)
    assert main([*words, "--watch"]) == 0
    once = 2 if words == ["top"] else 1
    assert capsys.readouterr().out == "Pending\n" * once + "\n" + "Running\n" * once


def test_watching_on_a_terminal_draws_it_again_until_interrupted(home: str) -> None:
    drawn = threading.Event()
    count = 0

    def answer(_: DaemonRequestRecord) -> str:
        nonlocal count
        count += 1
        if count > 2:
            drawn.set()
        return f"look {count}\n"

    with FakeDaemon(home, {"GET /v1/jobs": answer}):
        pid, terminal = pty.fork()
        if not pid:
            os.execv(sys.executable, [sys.executable, "-m", "fairway", "list", "--watch"])
        seen = b""
        while b"look 3" not in seen:
            seen += os.read(terminal, 4096)
        assert drawn.is_set()
        os.write(terminal, b"\x03")
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"\x1b[H" in seen


@pytest.mark.parametrize("verb", ["status", "kill", "launch", "login", "squeue"])
def test_a_verb_of_another_tool_gets_a_hint(capsys: Shown, verb: str) -> None:
    assert main([verb, "x"]) == 2
    stderr = capsys.readouterr().err
    assert "fairway " in stderr.partition("fix:")[2]


class TestRoles:
    def roles(self, daemon: FakeDaemon, *words: str) -> dict[str, Any]:
        daemon.answers["POST /v1/jobs"] = {"name": "a-1", "phase": "Pending"}
        assert main(["submit", *words, "--", "python", "train.py"]) == 0
        found: dict[str, Any] = daemon.asked[-1].data["document"]["spec"]["roles"]  # type: ignore[index]
        return found

    def test_of_a_command(self, daemon: FakeDaemon) -> None:
        roles = self.roles(daemon, "--ps", "2", "--workers", "4", "--gpus", "1")
        command = ["python", "train.py"]
        assert roles["ps"] == {"command": command, "replicas": {"min": 2, "max": 2}}
        assert roles["worker"]["replicas"] == {"min": 4, "max": 4}
        assert roles["worker"]["resources"] == {"gpu": "1"}
        assert self.roles(daemon, "--role", "ps=2", "--role", "evaluator=1", "-w", "4").keys() == {"ps", "evaluator", "worker"}

    def test_of_a_document(self, daemon: FakeDaemon, tmp_path: Path) -> None:
        (tmp_path / "job.yaml").write_text("x")
        daemon.answers["POST /v1/render"] = (
            "metadata: {name: a}\nspec: {roles: {worker: {command: [a]}, ps: {command: [b]}}, code: {path: .}}\n"
        )
        daemon.answers["POST /v1/jobs"] = {"name": "a-1", "phase": "Pending"}
        assert main(["submit", str(tmp_path / "job.yaml"), "--role", "ps=3", "-w", "2"]) == 0
        roles: Any = daemon.asked[-1].data["document"]["spec"]["roles"]  # type: ignore[index]
        assert roles["ps"] == {"command": ["b"], "replicas": {"min": 3, "max": 3}}
        assert roles["worker"]["replicas"] == {"min": 2, "max": 2}

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--role", "ps=two"], "write for example --role ps=2"),
            (["--role", "ps=0"], "write for example --role ps=2"),
            (["--ps", "0"], "at least one is needed"),
            (["--ps", "1", "--role", "ps=2"], "ps is also given with --role"),
            (["--role", "a", "--role", "b"], "apply to one role only"),
            (["--role", "worker=2", "-w", "3"], "keep one of them"),
        ],
    )
    def test_what_contradicts_itself_is_refused(self, daemon: FakeDaemon, capsys: Shown, words: list[str], said: str) -> None:
        assert main(["submit", *words, "--", "python", "train.py"]) == 2
        assert said in capsys.readouterr().err


class TestFlagsInErrors:
    """An error caused by a flag names the flag."""

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["run", "--memory", "4", "--", "./a"], "--memory 4: the unit is missing\n  fix: write --memory 4Gi"),
            (["serve", "--name", "x", "--memory", "4", "--", "./a"], "--memory 4: the unit is missing"),
            (["serve", "--name", "x", "--p95", "50", "--", "./a"], "--p95 50: the unit is missing\n  fix: write --p95 50ms"),
            (["run", "--gpus", "A100", "--", "./a"], "--gpus A100: the number of GPUs is missing\n  fix: write A100:1"),
            (["serve", "--name", "x", "--gpus", "A100", "--", "./a"], "fix: write A100:1"),
            (["run", "--workers", "0", "--", "./a"], "--workers 0: at least one is needed"),
            (["serve", "mnist", "--batching", "--no-batching"], "--batching and --no-batching exclude each other"),
            (["serve", "--name", "x", "--no-batching", "--", "./a"], "--no-batching applies only to a model"),
        ],
    )
    def test_found_before_anything_is_sent(self, daemon: FakeDaemon, capsys: Shown, words: list[str], said: str) -> None:
        assert main(words) == 2
        assert said in capsys.readouterr().err
        assert daemon.asked == []

    @pytest.mark.parametrize(
        ("flag", "value", "path", "said"),
        [
            ("--cpus", "9" * 20, "spec.roles.worker.resources.cpu", "--cpus: "),
            ("--timeout", "foo", "spec.timeout", "--timeout: "),
            ("--env", "1=2", "spec.env.1", "--env 1: "),
            ("--label", "a=b c", "metadata.labels.a", "--label a: "),
            ("--stop-when", "x", "spec.stop.when", "--stop-when: "),
        ],
    )
    def test_found_in_the_document_that_they_made(
        self, daemon: FakeDaemon, capsys: Shown, flag: str, value: str, path: str, said: str
    ) -> None:
        daemon.answers["POST /v1/jobs"] = SpecError([DocumentMistake("is wrong", path=path, value="'v'", fix="mend it")])
        assert main(["submit", flag, value, "--", "./a"]) == 2
        shown = capsys.readouterr().err
        assert f"{said}'v' is wrong; mend it\nfairway: nothing was changed" in shown
        # An error in a field that no flag set names the field of the document.
        assert main(["submit", "--", "./a"]) == 2
        assert f"{path}: 'v' is wrong" in capsys.readouterr().err

    def test_an_empty_file_is_named(self, daemon: FakeDaemon, capsys: Shown, tmp_path: Path) -> None:
        (tmp_path / "empty.yaml").write_text("\n")
        assert main(["submit", str(tmp_path / "empty.yaml")]) == 2
        assert "empty.yaml is empty\n  fix: write a document" in capsys.readouterr().err
