"""`run` and `submit`: their requests, their output, and their exit codes."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from fairway.cli.main import main
from fairway.cli.terminal import run_follower
from fairway.testing.fake.fake_daemon import Answer, DaemonRequestRecord, FakeDaemon

JOB: dict[str, Any] = {"name": "train-1", "phase": "Pending", "replicas": 1, "progress": {}, "warnings": []}


def line(**told: object) -> bytes:
    return json.dumps(told).encode() + b"\n"


def log(text: str, task: str = "worker-0", **rest: object) -> bytes:
    return line(log={"task": task, "attempt": 0, "text": text, **rest})


def job(**changes: object) -> dict[str, Any]:
    return {**JOB, **changes}


@pytest.fixture
def fake(daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDaemon:
    monkeypatch.chdir(tmp_path)
    daemon.answers["GET /v1/nodes"] = {"nodes": [{"gpus": 0}]}
    daemon.answers["POST /v1/jobs"] = JOB
    daemon.answers["GET /v1/jobs/train-1/watch"] = [line(end=job(phase="Succeeded"))]
    return daemon


def sent(fake: FakeDaemon) -> dict[str, Any]:
    return fake.of("POST", "/v1/jobs")[-1].data


def test_a_command_runs_in_place_with_all_that_is_the_callers(
    fake: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "yes")
    assert main(["run", "-n", "team", "--", "python", "train.py", "--lr", "1"]) == 0
    body = sent(fake)
    assert body["document"]["metadata"] == {"name": "train", "namespace": "team"}
    assert body["document"]["spec"]["code"] == {"path": ".", "inPlace": True}
    assert body["document"]["spec"]["roles"] == {"worker": {"command": ["python", "train.py", "--lr", "1"]}}
    assert body["environment"]["MINE"] == "yes"
    assert (body["origin"]["folder"], body["origin"]["terminal"]) == (str(tmp_path), False)


@pytest.mark.parametrize("verb", [["run", "--snapshot"], ["submit"]])
def test_a_snapshot_takes_the_machines_variables_along(
    fake: FakeDaemon, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    monkeypatch.setenv("HF_HOME", "/hf")
    monkeypatch.setenv("HF_TOKEN", "s3cr3t")
    main([*verb, "--", "./a"])
    assert sent(fake)["document"]["spec"]["code"]["inPlace"] is False
    assert sent(fake)["environment"]["HF_HOME"] == "/hf"
    assert "HF_TOKEN" not in sent(fake)["environment"]


def test_flags_become_wishes(fake: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDED_ON", "7")
    flags = (
        "--workers 2 --processes 3 --gpus H100:8 --cpus 500m --memory 2Gi --timeout 5m --retries 0 --stop-at-step 9 --priority -3"
    )
    more = ["--stop-when", "loss < 1", "--env", "A=1", "--env", "HANDED_ON", "--data", "train=/d", "--secret", "TOK"]
    rest = [
        "--output",
        "model=m",
        "--label",
        "team=nlp",
        "--framework",
        "jax",
        "--name",
        "x",
        "--python",
        "p",
        "--requirements",
        "r",
    ]
    assert main(["run", *flags.split(), *more, *rest, "--", "./a"]) == 0
    document = sent(fake)["document"]
    assert document["metadata"] == {"name": "x", "namespace": "default", "labels": {"team": "nlp"}}
    spec = document["spec"]
    assert spec["roles"]["worker"]["replicas"] == {"min": 2, "max": 2}
    assert spec["roles"]["worker"]["resources"] == {"cpu": "500m", "memory": "2Gi", "gpu": "8", "gpuType": ["H100"]}
    assert (spec["env"], spec["data"], spec["secrets"], spec["outputs"]) == (
        {"A": "1", "HANDED_ON": "7"},
        {"train": "/d"},
        ["TOK"],
        {"model": "m"},
    )
    assert (spec["stop"], spec["restart"], spec["priority"]) == ({"atStep": 9, "when": "loss < 1"}, {"max": 0}, -3)
    assert (spec["framework"], spec["timeout"], spec["environment"]) == ("jax", "5m", {"python": "p", "requirements": "r"})


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["run"], "no command and no document were given"),
        (["run", "a.yaml", "--", "./a"], "both a file (a.yaml) and a command were given"),
        (["run", "--snapshot", "--in-place", "--", "./a"], "--snapshot and --in-place contradict each other"),
        (["run", "--workers", "0", "--", "./a"], "at least one is needed"),
        (["run", "--env", "NO_SUCH_THING", "--", "./a"], "this variable is not set in your environment"),
        (["run", "--priority", "high", "--", "./a"], "--priority high: a whole number is needed"),
        (["run", "--output", "json", "--", "./a"], "write -o json to choose the format"),
        (["run", "-it", "--", "bash"], "-it needs a terminal"),
        (["run", "nothing.yaml"], "there is no file nothing.yaml"),
        (["run", "train.py"], "train.py is a program, not a document\n  fix: fairway run -- python train.py"),
        (["submit"], "one document or one command is needed"),
    ],
)
def test_what_makes_no_sense_is_not_sent(
    typed: list[str], said: str, fake: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed) == 2
    assert said in capsys.readouterr().err
    assert fake.of("POST", "/v1/jobs") == []


def test_the_output_is_printed_byte_for_byte_and_words_go_elsewhere(
    fake: FakeDaemon, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    pieces = [
        line(job=job(phase="Running")),
        log("half"),
        log(" a line\r50%"),
        log("?", base64="/wA="),
        line(end=job(phase="Succeeded")),
    ]
    fake.answers["GET /v1/jobs/train-1/watch"] = pieces
    assert main(["run", "--", "./a"]) == 0
    shown = capsysbinary.readouterr()
    assert shown.out == b"half a line\r50%\xff\x00"
    assert shown.err == b"on local / default\ntrain-1: 1 task\ntrain-1 succeeded; logs: fairway logs train-1\n"


def test_lines_of_several_workers_carry_their_names(fake: FakeDaemon, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    fake.answers["POST /v1/jobs"] = job(replicas=2)
    pieces = [log("a\nb"), log("c\n", "worker-1"), log("\n"), line(end=job(phase="Succeeded"))]
    fake.answers["GET /v1/jobs/train-1/watch"] = pieces
    assert main(["run", "-w", "2", "--", "./a"]) == 0
    assert capsysbinary.readouterr().out == b"worker-0 | a\nworker-1 | c\nworker-0 | b\n"


def test_a_second_process_brings_the_names(fake: FakeDaemon, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    fake.answers["GET /v1/jobs/train-1/watch"] = [
        log("a\n"),
        log("b\n", "worker-0.1"),
        log("c\n"),
        line(end=job(phase="Succeeded")),
    ]
    assert main(["run", "--", "./a"]) == 0
    assert capsysbinary.readouterr().out == b"a\nworker-0.1 | b\nworker-0   | c\n"


def test_a_run_that_fails_is_exit_code_1(fake: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    fake.answers["GET /v1/jobs/train-1/watch"] = [
        line(end=job(phase="Failed", duration=3.0, outcome={"message": "worker-0 exited with 3"}))
    ]
    assert main(["run", "--", "./a"]) == 1
    assert (
        "train-1 failed after 3s: worker-0 exited with 3; logs: fairway logs train-1; next: fairway why train-1\n"
        in capsys.readouterr().err
    )


def test_a_daemon_that_goes_away_loses_and_repeats_nothing(fake: FakeDaemon, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    stories: list[Answer] = [
        [log("one\ntw"), log("x\n", "worker-1"), b""],
        [
            line(job=job(phase="Running")),
            log("x\nyy\n", "worker-1"),
            log("one\n"),
            log("two\nthree\n"),
            line(end=job(phase="Succeeded")),
        ],
    ]
    fake.answers["POST /v1/jobs"] = job(replicas=2)
    fake.answers["GET /v1/jobs/train-1/watch"] = lambda _: stories.pop(0)
    assert main(["run", "-w", "2", "--", "./a"]) == 0
    assert sorted(capsysbinary.readouterr().out.splitlines()) == [
        b"worker-0 | one", b"worker-0 | three", b"worker-0 | two", b"worker-1 | x", b"worker-1 | yy",
    ]  # fmt: skip


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_without_a_terminal_stops_the_run(
    fake: FakeDaemon, number: int, code: int, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_follower, "is_terminal", lambda _descriptor: False)
    stops: list[object] = []
    gate = threading.Event()

    def watch(_asked: DaemonRequestRecord) -> Answer:
        threading.Thread(target=lambda: os.kill(os.getpid(), number)).start()
        return [line(job=job(phase="Running")), _Late(gate, log("bye\n")), line(end=job(phase="Stopped"))]

    def stop(asked: DaemonRequestRecord) -> Answer:
        stops.append(asked.data)
        gate.set()
        return job(phase="Stopping")

    fake.answers["GET /v1/jobs/train-1/watch"] = watch
    fake.answers["POST /v1/jobs/train-1/stop"] = stop
    assert main(["run", "--", "./a"]) == code
    assert stops == [{"now": False}]
    shown = capsysbinary.readouterr()
    assert shown.out == b"bye\n"
    assert b"stopping train-1" in shown.err
    assert b"fairway resume train-1" in shown.err


class _Late(bytes):
    """Bytes that are sent when a gate opens."""

    gate: threading.Event

    def __new__(cls, gate: threading.Event, data: bytes) -> _Late:
        made = super().__new__(cls, data)
        made.gate = gate
        return made

    def __len__(self) -> int:
        self.gate.wait(10)
        return super().__len__()


def test_detached_prints_the_name_alone(fake: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-d", "--", "./a"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "train-1\n"
    assert "fairway logs -f train-1" in shown.err
    assert fake.of("GET", "/v1/jobs/train-1/watch") == []


def test_warnings_are_said(fake: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    fake.answers["POST /v1/jobs"] = job(warnings=["2 GPUs are idle"])
    main(["run", "--", "./a"])
    main(["submit", "--", "./a"])
    assert capsys.readouterr().err.count("warning: 2 GPUs are idle") == 2


@pytest.mark.parametrize(
    ("flags", "gpu", "said"),
    [
        ([], "1", "each worker takes one GPU of 2 (--gpus 0 for none)"),
        (["-w", "2"], "1", "each worker takes one GPU of 2"),
        (["-w", "3"], None, "no GPU is requested: there are only 2 for 3 workers"),
        (["--gpus", "0"], "0", ""),
    ],
)
def test_a_command_takes_a_gpu_a_worker_where_there_are_any(
    fake: FakeDaemon, flags: list[str], gpu: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.answers["GET /v1/nodes"] = {"nodes": [{"gpus": 2}]}
    main(["run", *flags, "--", "./a"])
    assert sent(fake)["document"]["spec"]["roles"]["worker"].get("resources", {}).get("gpu") == gpu
    assert said in capsys.readouterr().err


def test_a_file_is_sent_as_it_is(fake: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "s3cr3t")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "job.yaml").write_text("kind: TrainingJob\n")
    assert main(["run", "jobs/job.yaml"]) == 0
    body = sent(fake)
    assert (body["documents"], body["file"]) == ("kind: TrainingJob\n", "jobs/job.yaml")
    assert body["origin"]["folder"] == str(tmp_path / "jobs")
    assert "HF_TOKEN" not in body["environment"]
    assert fake.of("GET", "/v1/nodes") == []


def test_a_file_that_runs_in_place_takes_the_environment_along(fake: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("code: {in_place: true}\n")
    main(["submit", "job.yaml"])
    assert sent(fake)["environment"]["PATH"] == os.environ["PATH"]


def test_flags_change_a_file_after_it_was_checked(fake: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("kind: TrainingJob\n")
    fake.answers["POST /v1/render"] = "metadata: {name: a}\nspec: {roles: {worker: {command: [a]}}, code: {path: .}}\n"
    assert main(["submit", "job.yaml", "--workers", "4", "--in-place"]) == 0
    body = sent(fake)
    assert body["document"]["spec"] == {
        "roles": {"worker": {"command": ["a"], "replicas": {"min": 4, "max": 4}}},
        "code": {"path": ".", "inPlace": True},
    }
    assert fake.of("POST", "/v1/render")[0].data == {"documents": "kind: TrainingJob\n", "file": "job.yaml", "to": "kubernetes"}


def test_flags_cannot_change_several_documents(fake: FakeDaemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.yaml").write_text("x")
    fake.answers["POST /v1/render"] = "a: 1\n---\nb: 2\n"
    assert main(["submit", "job.yaml", "--workers", "4"]) == 2
    assert "holds 2 documents" in capsys.readouterr().err


def test_a_plan_is_what_the_daemon_says(fake: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    fake.answers["POST /v1/jobs"] = "it would start\n"
    assert main(["run", "--plan", "-o", "yaml", "--", "./a"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("it would start\n", "nothing was changed (--plan)\n")
    asked = fake.of("POST", "/v1/jobs")[0]
    assert (asked.data["plan"], asked.query["output"]) == (True, "yaml")


def test_several_documents_are_followed_one_after_the_other(
    fake: FakeDaemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.yaml").write_text("x")
    fake.answers["POST /v1/jobs"] = {"jobs": [job(), job(name="eval-1")]}
    fake.answers["GET /v1/jobs/eval-1/watch"] = [line(end=job(name="eval-1", phase="Failed"))]
    assert main(["run", "job.yaml"]) == 1
    stderr = capsys.readouterr().err
    assert "train-1 succeeded" in stderr
    assert "eval-1 failed" in stderr


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_submit_shows_the_run_in_the_format_asked_for(fake: FakeDaemon, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    fake.answers["GET /v1/jobs/train-1"] = "name: train-1\n"
    assert main(["submit", "-o", form, "--", "./a"]) == 0
    shown = capsys.readouterr().out
    assert (json.loads(shown)["name"] == "train-1") if form == "json" else (shown == "name: train-1\n")


def test_a_daemon_that_breaks_off_again_and_again_is_not_asked_for_ever(
    fake: FakeDaemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paused: list[float] = []
    monkeypatch.setattr(run_follower.time, "sleep", paused.append)
    fake.answers["GET /v1/jobs/train-1/watch"] = [b""]
    assert main(["run", "--", "./a"]) == 4
    assert len(fake.of("GET", "/v1/jobs/train-1/watch")) < 20
    assert paused == sorted(paused)
    assert "keeps closing the connection" in capsys.readouterr().err


def test_paths_of_flags_begin_where_they_are_typed(fake: FakeDaemon, tmp_path: Path) -> None:
    main(["run", "--python", "envs/torch", "--requirements", "./more.txt", "--", "./a"])
    environment = sent(fake)["document"]["spec"]["environment"]
    assert environment == {"python": str(tmp_path / "envs/torch"), "requirements": str(tmp_path / "more.txt")}
    main(["run", "--python", "python3.12", "--", "./a"])
    assert sent(fake)["document"]["spec"]["environment"] == {"python": "python3.12"}


def test_the_task_learns_where_to_fetch_what_is_piped_in(fake: FakeDaemon) -> None:
    before = os.dup(0)
    read_end, write_end = os.pipe()
    os.dup2(read_end, 0)
    try:
        main(["run", "--", "./a"])
        assert sent(fake)["origin"]["stdin"].startswith("fairway-stdin-")
        main(["run", "-d", "--", "./a"])
        assert sent(fake)["origin"]["stdin"] == ""
    finally:
        os.dup2(before, 0)
        for descriptor in (before, read_end, write_end):
            os.close(descriptor)
    main(["run", "--", "./a"])
    assert sent(fake)["origin"]["stdin"] == ""


def test_processes_are_told_where_there_are_more_than_tasks(fake: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    fake.answers["POST /v1/jobs"] = job(replicas=1, processes=3)
    main(["run", "--", "./a"])
    assert "train-1: 1 task, 3 processes\n" in capsys.readouterr().err
    fake.answers["POST /v1/jobs"] = job(replicas=2, processes=2)
    main(["run", "--", "./a"])
    assert "train-1: 2 tasks\n" in capsys.readouterr().err
