"""The commands that query and show: their requests, their output, and their exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fairway.cli.main import main
from fairway.errors import RefusedError
from fairway.testing.fake.fake_daemon import Answer, DaemonRequestRecord, FakeDaemon

Shown = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("typed", "path", "query"),
    [
        (["list"], "/v1/jobs", {}),
        (
            ["ps", "mnist", "--phase", "failed", "--active", "--limit", "5"],
            "/v1/jobs",
            {"series": "mnist", "phase": "failed,active", "limit": "5"},
        ),
        (["ls", "-A"], "/v1/jobs", {"namespace": "*"}),
        (["get"], "/v1/jobs", {}),
        (["get", "jobs"], "/v1/jobs", {}),
        (["get", "mnist-7"], "/v1/jobs/mnist-7", {}),
        (["describe", "job/mnist"], "/v1/jobs/mnist", {}),
        (["events", "mnist", "--limit", "3"], "/v1/jobs/mnist/events", {"limit": "3"}),
        (["events"], "/v1/events", {}),
        (["why", "mnist"], "/v1/jobs/mnist/why", {}),
        (["metrics", "mnist", "-m", "loss"], "/v1/jobs/mnist/metrics", {"metric": "loss"}),
        (["top", "node"], "/v1/nodes", {}),
        (["top", "node/gpu-1"], "/v1/nodes/gpu-1", {}),
        (["top", "job"], "/v1/top/jobs", {}),
        (["secret", "list"], "/v1/secrets", {}),
        (["queue", "list"], "/v1/queues", {}),
        (["queue", "get", "research"], "/v1/queues/research", {}),
        (["queue", "get", "queue/research"], "/v1/queues/research", {}),
        (["get", "queue/research"], "/v1/queues/research", {}),
        (["get", "model/mnist@3"], "/v1/models/mnist%403", {}),
        (["get", "Data/digits"], "/v1/datasets/digits", {}),
        (["get", "models"], "/v1/models", {}),
        (["list", "data"], "/v1/datasets", {}),
        (["list", "queues"], "/v1/queues", {}),
        (["events", "model/mnist"], "/v1/models/mnist/events", {}),
        (["events", "dataset/digits@2"], "/v1/datasets/digits%402/events", {}),
        (["data", "get", "data/digits"], "/v1/datasets/digits", {}),
        (["model", "list"], "/v1/models", {}),
        (["model", "list", "mnist"], "/v1/models", {"name": "mnist"}),
        (["model", "get", "mnist@3"], "/v1/models/mnist%403", {}),
        (["model", "get", "model/mnist@champion"], "/v1/models/mnist%40champion", {}),
        (["model", "diff", "mnist@1", "model/mnist@2"], "/v1/models/mnist%401/diff/mnist%402", {}),
        (["data", "get", "digits@1"], "/v1/datasets/digits%401", {}),
        (["data", "diff", "digits@1", "digits"], "/v1/datasets/digits%401/diff/digits", {}),
    ],
)
@pytest.mark.parametrize("form", ["table", "json"])
def test_what_is_shown_is_what_the_daemon_renders(
    typed: list[str], path: str, query: dict[str, str], form: str, daemon: FakeDaemon, capsys: Shown
) -> None:
    daemon.answers[f"GET {path}"] = "rendered\n"
    assert main([*typed, *(["-o", form] if form != "table" else [])]) == 0
    assert daemon.asked[0].query == {"namespace": "default", "output": form, "width": "0", **query}
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("rendered\n", "")


def test_several_are_shown_one_after_the_other(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers.update({"GET /v1/jobs/a": "A\n", "GET /v1/jobs/b": "B\n"})
    assert main(["get", "a", "job/b"]) == 0
    assert capsys.readouterr().out == "A\nB\n"


def test_logs_ask_for_a_part(daemon: FakeDaemon, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    daemon.answers["GET /v1/jobs/mnist/logs"] = b"\xff raw\n"
    flags = [
        "--role",
        "ps",
        "--index",
        "1",
        "--tail",
        "9",
        "--grep",
        "a|b",
        "--attempt",
        "all",
        "--since",
        "2026-01-31T14:00+00:00",
        "--prefix",
        "--timestamps",
    ]
    assert main(["logs", "mnist", *flags]) == 0
    assert daemon.asked[0].query == {
        "namespace": "default", "role": "ps", "index": "1", "attempt": "-1", "tail": "9", "since": "1769868000.0", "grep": "a|b",
        "prefix": "true", "timestamps": "true",
    }  # fmt: skip
    assert capsysbinary.readouterr().out == b"\xff raw\n"


@pytest.mark.parametrize(
    ("flags", "said"),
    [(["--since", "yesterday"], "neither a length of time nor a time"), (["--attempt", "last"], "a number or `all`")],
)
def test_logs_refuse_what_makes_no_sense(flags: list[str], said: str, daemon: FakeDaemon, capsys: Shown) -> None:
    assert main(["logs", "mnist", *flags]) == 2
    assert said in capsys.readouterr().err


def test_a_run_that_printed_nothing_is_told_of(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["GET /v1/jobs/mnist/logs"] = b""
    assert main(["logs", "mnist"]) == 0
    assert main(["logs", "mnist", "--grep", "x"]) == 0
    assert capsys.readouterr() == ("", "mnist has printed nothing\nmnist has printed nothing that matches\n")


def test_followed_logs_go_on_after_the_daemon_was_away(daemon: FakeDaemon, capsys: Shown) -> None:
    stories: list[Answer] = [[b"one\n", b""], [b"two\n"]]
    daemon.answers["GET /v1/jobs/mnist/logs"] = lambda _: stories.pop(0)
    assert main(["logs", "-f", "mnist", "--tail", "5"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "one\ntwo\n"
    assert "the daemon did not answer for a moment" in shown.err
    assert "since" in daemon.asked[1].query
    assert "tail" not in daemon.asked[1].query


def test_stop(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["POST /v1/jobs/mnist/stop"] = {"name": "mnist-7", "phase": "Stopping"}
    daemon.answers["POST /v1/jobs/old-1/stop"] = {"name": "old-1", "phase": "Failed"}
    assert main(["cancel", "mnist", "old-1", "--now", "--all"]) == 0
    assert daemon.asked[0].data == {"now": True, "all": True}
    shown = capsys.readouterr()
    assert shown.out == "mnist-7\nold-1\n"
    assert shown.err.startswith("on local / default\n")
    assert "mnist-7 is being stopped" in shown.err
    assert "old-1 had already ended (Failed)" in shown.err


def test_stop_may_wait(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["POST /v1/jobs/mnist/stop"] = {"jobs": [{"name": "mnist-7", "phase": "Stopping"}]}
    daemon.answers["GET /v1/jobs/mnist-7/watch"] = [b'{"end": {"name": "mnist-7", "phase": "Stopped"}}\n']
    assert main(["stop", "mnist", "--wait"]) == 0
    assert "mnist-7 is stopped; to continue: fairway resume mnist-7" in capsys.readouterr().err


def test_what_means_several_runs_is_refused(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["DELETE /v1/jobs/mnist"] = RefusedError("mnist means 3 runs", fix="fairway delete --all mnist")
    assert main(["rm", "mnist"]) == 5
    assert "mnist means 3 runs" in capsys.readouterr().err


def test_delete(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["DELETE /v1/jobs/mnist"] = {"deleted": ["mnist-1", "mnist-2"]}
    assert main(["delete", "--all", "mnist", "-y"]) == 0
    assert daemon.asked[0].query["all"] == "true"
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("mnist-1\nmnist-2\n", "on local / default\n2 runs are deleted\n")
    assert main(["delete", "--all", "mnist", "-y", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"deleted": ["mnist-1", "mnist-2"]}


def test_runs_and_queues_are_deleted_by_address(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["DELETE /v1/jobs/mnist-1"] = {"deleted": ["mnist-1"]}
    daemon.answers["DELETE /v1/queues/research"] = {"deleted": ["research"]}
    assert main(["delete", "job/mnist-1", "queue/research"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("mnist-1\nresearch\n", "on local / default\n1 run and 1 queue are deleted\n")
    assert main(["rm", "mnist-1"]) == 0
    # Only for a bare name does the daemon check whether a queue has the same name.
    assert [asked.query.get("bare") for asked in daemon.of("DELETE", "/v1/jobs/mnist-1")] == [None, "true"]
    assert main(["delete", "queue/research"]) == 0
    assert "1 queue is deleted" in capsys.readouterr().err


def test_versions_of_models_and_datasets_are_deleted_by_address(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["DELETE /v1/models/mnist%401"] = {"deleted": ["mnist@1"]}
    daemon.answers["DELETE /v1/datasets/digits%402"] = {"deleted": ["digits@2"]}
    assert main(["delete", "model/mnist@1", "data/digits@2"]) == 0
    said = "on local / default\n1 version of a model and 1 version of a dataset are deleted\n"
    assert capsys.readouterr() == ("mnist@1\ndigits@2\n", said)


@pytest.mark.parametrize(
    ("typed", "request_"),
    [
        (["stop", "m"], "POST /v1/jobs/m/stop"),
        (["delete", "m"], "DELETE /v1/jobs/m"),
        (["delete", "queue/m"], "DELETE /v1/queues/m"),
        (["apply", "job.yaml"], "POST /v1/apply"),
    ],
)
def test_a_plan_is_asked_for_as_such(
    typed: list[str], request_: str, daemon: FakeDaemon, capsys: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("x")
    daemon.answers[request_] = "it would\n"
    assert main([*typed, "--dry-run"]) == 0
    [asked] = daemon.asked
    assert asked.query.get("plan") == "true" or asked.data["plan"] is True
    assert capsys.readouterr() == ("it would\n", "nothing was changed (--plan)\n")


@pytest.mark.parametrize(
    ("phase", "step", "said"),
    [
        ("Stopped", 500, "mnist-7 would be queued again, from the checkpoint of step 500"),
        ("Failed", None, "mnist-7 would be queued again, from the beginning (it has no checkpoint)"),
        ("Running", 500, "mnist-7 is Running: it would be refused"),
    ],
)
def test_the_plan_of_a_resume(phase: str, step: int | None, said: str, daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["GET /v1/jobs/mnist"] = {"name": "mnist-7", "phase": phase, "progress": {"checkpoint_step": step}}
    assert main(["resume", "mnist", "--plan"]) == 0
    assert said in capsys.readouterr().out
    assert main(["resume", "mnist", "--plan", "-o", "json"]) == 0
    assert said in json.loads(capsys.readouterr().out)["sentences"][0]


def test_resume(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["POST /v1/jobs/mnist/resume"] = {"name": "mnist-7", "phase": "Pending", "progress": {"checkpoint_step": 9}}
    assert main(["resume", "mnist"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "mnist-7\n"
    assert "mnist-7 resumes from the checkpoint of step 9" in shown.err


@pytest.mark.parametrize(("phases", "code"), [(["Succeeded", "Succeeded"], 0), (["Succeeded", "Failed"], 1)])
def test_wait(phases: list[str], code: int, daemon: FakeDaemon, capsys: Shown) -> None:
    for number, phase in enumerate(phases):
        daemon.answers[f"GET /v1/jobs/m{number}"] = {"name": f"m{number}-1"}
        told = [{"job": {"name": f"m{number}-1", "phase": "Running"}}, {"end": {"name": f"m{number}-1", "phase": phase}}]
        daemon.answers[f"GET /v1/jobs/m{number}-1/watch"] = [json.dumps(line).encode() + b"\n" for line in told]
    assert main(["wait", "m0", "m1"]) == code
    assert "m0-1 succeeded" in capsys.readouterr().err


def test_wait_for_all_that_is_not_over(daemon: FakeDaemon, capsys: Shown) -> None:
    pages = {"": {"jobs": [{"name": "m-2"}], "next": "b"}, "b": {"jobs": [{"name": "n-1"}], "next": ""}}
    daemon.answers["GET /v1/jobs"] = lambda asked: pages[asked.query.get("before", "")]
    for name, phase in (("m-2", "Succeeded"), ("n-1", "Failed")):
        daemon.answers[f"GET /v1/jobs/{name}/watch"] = json.dumps({"end": {"name": name, "phase": phase}}).encode() + b"\n"
    assert main(["wait", "--all"]) == 1
    assert daemon.asked[0].query["phase"] == "active"
    shown = capsys.readouterr().err
    assert "m-2 succeeded" in shown
    assert "n-1 failed" in shown
    daemon.answers["GET /v1/jobs"] = {"jobs": [], "next": ""}
    assert main(["wait", "--all", "m"]) == 0
    assert daemon.asked[-1].query["series"] == "m"
    assert "there is nothing to wait for" in capsys.readouterr().err
    assert main(["wait"]) == 2


def test_wait_gives_up(daemon: FakeDaemon, capsys: Shown) -> None:
    import threading

    gate = threading.Event()

    def watch(_asked: DaemonRequestRecord) -> Answer:
        gate.wait(10)
        return b""

    daemon.answers["GET /v1/jobs/m"] = {"name": "m-1"}
    daemon.answers["GET /v1/jobs/m-1/watch"] = watch
    assert main(["wait", "m", "--timeout", "20ms"]) == 1
    gate.set()
    assert "after the --timeout" in capsys.readouterr().err
    assert main(["wait", "m", "--timeout", "soon"]) == 2


def test_a_secret_is_read_and_never_an_argument(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, capsys: Shown, tmp_path: Path
) -> None:
    daemon.answers["PUT /v1/secrets/TOK"] = {"name": "TOK"}
    monkeypatch.setattr(sys, "stdin", io.StringIO("s3cret\n"))
    assert main(["secret", "set", "TOK"]) == 0
    (tmp_path / "file").write_text("from a file\n")
    assert main(["secret", "set", "TOK", "--from-file", str(tmp_path / "file")]) == 0
    assert [asked.data for asked in daemon.asked] == [{"value": "s3cret"}, {"value": "from a file\n"}]
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert main(["secret", "set", "TOK"]) == 2
    assert main(["secret", "set", "TOK=abc"]) == 2
    assert main(["secret", "set", "TOK", "--from-file", "/no/such"]) == 2
    assert main(["secret", "set", "TOK", "--plan"]) == 0
    assert len(daemon.asked) == 2
    assert "s3cret" not in capsys.readouterr().err


def test_secrets_are_deleted(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["DELETE /v1/secrets/A"] = {"deleted": ["A"]}
    assert main(["secret", "delete", "A", "--plan"]) == 0
    assert daemon.asked == []
    assert main(["secret", "delete", "A"]) == 0
    assert "the secret A is deleted" in capsys.readouterr().err


def test_apply_takes_files_and_folders(daemon: FakeDaemon, tmp_path: Path, capsys: Shown) -> None:
    for name in ("b.yaml", "a.yml", "c.json", "notes.txt"):
        (tmp_path / name).write_text(name)
    daemon.answers["POST /v1/apply"] = "applied\n"
    assert main(["apply", "-f", str(tmp_path)]) == 0
    (asked,) = daemon.asked
    parts = [asked.data, *asked.data["more"]]  # type: ignore[misc]
    assert [part["documents"] for part in parts] == ["a.yml", "b.yaml", "c.json"]
    assert {part["folder"] for part in parts} == {str(tmp_path)}
    assert capsys.readouterr().out == "applied\n"


def test_apply_is_one_request_so_that_a_wrong_file_changes_nothing(daemon: FakeDaemon, tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(name)
    daemon.answers["POST /v1/apply"] = RefusedError("wrong")
    assert main(["apply", str(tmp_path)]) == 5
    assert len(daemon.asked) == 1


def test_apply_needs_a_document(daemon: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["apply"]) == main(["apply", str(tmp_path / "empty")]) == 2
    assert daemon.asked == []


def test_render_and_schema(daemon: FakeDaemon, tmp_path: Path, capsys: Shown) -> None:
    (tmp_path / "job.yaml").write_text("text")
    daemon.answers["POST /v1/render"] = "kind: TrainingJob\n"
    daemon.answers["GET /v1/schema"] = {"$schema": "x"}
    assert main(["render", str(tmp_path / "job.yaml"), "--to", "flat"]) == 0
    assert daemon.asked[0].data == {"documents": "text", "file": str(tmp_path / "job.yaml"), "to": "flat"}
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == 'kind: TrainingJob\n{\n  "$schema": "x"\n}\n'


def test_the_daemons_status(home: str, capsys: Shown) -> None:
    assert main(["daemon", "status", "-o", "json"]) == 4
    data = json.loads(capsys.readouterr().out)
    assert (data["running"], data["pid"], data["version"]) == (False, None, None)
    with FakeDaemon(home) as fake:
        fake.answers["GET /v1/health"] = {"version": "1.2.3", "pid": 42, "home": home}
        assert main(["daemon", "status", "-o", "json"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert (data["running"], data["pid"], data["version"], data["home"]) == (True, 42, "1.2.3", home)
        assert data["socket"].endswith(".sock")
        assert main(["daemon", "status"]) == 0
        assert "running  yes\n" in capsys.readouterr().out
        assert main(["daemon", "stop", "--plan"]) == 0
        assert "(pid 42) would be stopped" in capsys.readouterr().err
        assert main(["daemon", "start", "--plan"]) == 0
    assert main(["daemon", "stop"]) == 0
    assert "no daemon runs" in capsys.readouterr().err


def view(folder: Path) -> dict[str, object]:
    for name in ("outputs", "checkpoints", "tensorboard"):
        (folder / name).mkdir(parents=True)
    return {"name": "mnist-7", "folder": str(folder)}


def test_files_are_copied_out_and_in(daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    daemon.answers["GET /v1/jobs/mnist"] = view(run)
    (run / "outputs" / "model").mkdir()
    (run / "outputs" / "model" / "weights").write_text("w")
    assert main(["cp", "mnist:outputs/model", "here"]) == 0
    assert (tmp_path / "here" / "weights").read_text() == "w"
    assert main(["cp", "mnist:outputs/model/weights", "."]) == 0
    assert (tmp_path / "weights").read_text() == "w"
    (tmp_path / "new").write_text("n")
    assert main(["cp", "new", "mnist:checkpoints/"]) == 0
    assert (run / "checkpoints" / "new").read_text() == "n"
    assert main(["cp", "mnist:outputs/model", "planned", "--plan"]) == 0
    assert not (tmp_path / "planned").exists()
    assert main(["cp", "mnist:outputs/model/weights", "new"]) == 5
    assert (tmp_path / "new").read_text() == "n"


@pytest.mark.parametrize(
    ("source", "target", "code"),
    [
        ("mnist:outputs/../../secret", "x", 5),
        ("mnist:outputs/link/secret", "x", 5),
        ("mnist:../outputs", "x", 2),
        ("mnist:/etc/passwd", "x", 2),
        ("mnist:environment.json", "x", 2),
        ("mnist:", "x", 2),
        ("mnist:outputs/nothing", "x", 3),
        ("secret", "mnist:outputs/../../stolen", 5),
        ("nothing", "mnist:outputs/", 3),
        ("a", "b", 2),
        ("mnist:outputs/a", "mnist:outputs/b", 2),
    ],
)
def test_nothing_outside_of_the_runs_folders_is_touched(
    source: str, target: str, code: int, daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_text("s")
    daemon.answers["GET /v1/jobs/mnist"] = view(tmp_path / "run")
    (tmp_path / "run" / "outputs" / "link").symlink_to(tmp_path)
    assert main(["cp", source, target]) == code
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "run", "secret"]


def test_exec_becomes_the_command(daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.answers["GET /v1/jobs/mnist/environment"] = {
        "task": "worker-1",
        "cwd": str(tmp_path),
        "env": {"MINE": "yes", "PATH": "/usr/bin:/bin"},
    }
    program = "import sys; from fairway.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "exec", "mnist", "--role", "worker", "--index", "1", "--"]
    done = subprocess.run([*command, "sh", "-c", "echo $MINE; pwd; exit 7"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, f"yes\n{tmp_path}\n")
    assert f"in the environment of worker-1, in {tmp_path}" in done.stderr
    assert daemon.asked[0].query == {"namespace": "default", "role": "worker", "index": "1"}
    assert main(["exec", "mnist"]) == 2
    assert main(["exec", "mnist", "--plan", "--", "ls"]) == 0


def test_tensorboard_says_how_to_get_it(
    daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Shown
) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "python").write_text("")
    (bin_folder / "python").chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_folder))
    daemon.answers["GET /v1/jobs/mnist"] = view(tmp_path / "run")
    daemon.answers["GET /v1/jobs/other"] = {"name": "other-1", "folder": str(tmp_path / "gone")}
    assert main(["tensorboard", "mnist"]) == 5
    assert "python -m pip install tensorboard" in capsys.readouterr().err
    (bin_folder / "tensorboard").write_text("")
    (bin_folder / "tensorboard").chmod(0o755)
    assert main(["tensorboard", "mnist", "--port", "7007", "--plan"]) == 0
    assert (
        capsys.readouterr().out == f"{bin_folder}/tensorboard --logdir {tmp_path}/run/tensorboard --port 7007 --host localhost\n"
    )
    assert main(["tensorboard", "mnist", "other"]) == 3


@pytest.mark.parametrize(
    ("keys", "shown"), [([{"name": "a"}, {"name": "b"}], "a, b"), ([], "`fairway key list mnist` lists them")]
)
def test_the_plan_of_a_revocation_names_the_keys(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str], keys: list[dict[str, str]], shown: str
) -> None:
    daemon.answers["GET /v1/services/mnist/keys"] = {"keys": keys}
    assert main(["key", "revoke", "mnist", "ci", "--plan"]) == 0
    assert capsys.readouterr().err == f"mnist: ci is not one of its keys ({shown}); nothing was changed (--plan)\n"
