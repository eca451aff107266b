"""From arguments to documents that the daemon understands."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fairway.errors import UsageError
from fairway.sdk.run_option import RunOptions
from fairway.sdk.submission import document
from fairway.spec.text.document import read_data

WISHES: RunOptions = {
    "name": "mnist",
    "workers": 2,
    "processes": 4,
    "gpus": "H100:8",
    "cpus": 2,
    "memory": "2Gi",
    "framework": "pytorch",
    "env": {"BATCH": "64"},
    "python": ".venv",
    "requirements": "requirements.txt",
    "timeout": "5m",
    "retries": 2,
    "stop_at_step": 100,
    "stop_when": "loss < 0.1",
    "metrics_pattern": "loss (?P<loss>.+)",
    "tensorboard_dir": "events",
    "data": {"train": "/data"},
    "secrets": ["HF_TOKEN"],
    "outputs": {"model": "mnist"},
    "priority": 7,
    "labels": {"team": "nlp"},
}


def test_every_wish_arrives_in_the_document() -> None:
    data = read_data(document.make_document(["python", "train.py"], WISHES, namespace="team", in_place=True))
    spec, worker = data.spec, data.spec.roles["worker"]
    assert (data.metadata.name, data.metadata.namespace, data.metadata.labels) == ("mnist", "team", {"team": "nlp"})
    assert (worker.command, worker.replicas.min, worker.replicas.max, worker.processes) == (("python", "train.py"), 2, 2, 4)
    resources = worker.resources
    assert (resources.gpu, resources.gpu_type, resources.cpu, resources.memory) == ("8", ("H100",), "2", "2Gi")
    assert (spec.framework, spec.env, spec.secrets, spec.data) == ("pytorch", {"BATCH": "64"}, ("HF_TOKEN",), {"train": "/data"})
    assert (spec.environment.python, spec.environment.requirements) == (".venv", "requirements.txt")
    assert (spec.timeout, spec.restart.max, spec.stop.at_step, spec.stop.when) == ("5m", 2, 100, "loss < 0.1")
    assert (spec.metrics.pattern, spec.tensorboard.dir) == ("loss (?P<loss>.+)", "events")
    assert (spec.outputs, spec.priority, spec.code.in_place) == ({"model": "mnist"}, 7, True)


def test_a_command_without_wishes_runs_once_and_is_not_tried_again() -> None:
    data = read_data(document.make_document(["./go.sh"], {}, namespace="default", in_place=False))
    assert (data.metadata.name, data.spec.restart.max, data.spec.code.in_place) == ("go", 0, False)


def test_wishes_win_over_a_document() -> None:
    base = document.make_document(["a"], {"name": "x", "memory": "1Gi", "retries": 3}, namespace="n", in_place=False)
    changed = document.change_document(base, {"workers": 3, "retries": 0, "name": "y"})
    data = read_data(changed)
    worker = data.spec.roles["worker"]
    assert (data.metadata.name, worker.replicas.max, worker.resources.memory, data.spec.restart.max) == ("y", 3, "1Gi", 0)
    assert read_data(base).metadata.name == "x"


def test_a_wish_about_no_role_means_the_only_one() -> None:
    base = {"kind": "TrainingJob", "spec": {"roles": {"chief": {"command": ["a"]}}}}
    assert document.change_document(base, {"workers": 2})["spec"]["roles"]["chief"]["replicas"] == {"min": 2, "max": 2}


def test_a_role_that_is_not_there_is_named() -> None:
    base = {"kind": "TrainingJob", "spec": {"roles": {"chief": {}, "ps": {}}}}
    with pytest.raises(UsageError, match="no role worker") as caught:
        document.change_document(base, {"workers": 2})
    assert caught.value.fix == "choose one of its roles: chief or ps"


def test_no_workers_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one"):
        document.make_document(["a"], {"workers": 0}, namespace="n", in_place=True)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "-u", "src/train_model.py", "--fast"], "train-model"),
        (["python", "-m", "pkg.train"], "pkg-train"),
        (["torchrun", "--nproc", "2", "main.py"], "main"),
        (["bash"], "bash"),
        (["/usr/bin/python3", "-c", "x"], "python"),
        (["./3.py"], "job"),
    ],
)
def test_a_run_is_named_after_its_program(command: list[str], name: str) -> None:
    assert document.suggest_name(command) == name


def test_python_is_what_the_path_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").write_text("")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setenv("PATH", f"/nowhere:{tmp_path}")
    assert document.find_python() == str(tmp_path / "python")
    monkeypatch.setenv("PATH", "/nowhere")
    assert document.find_python() == sys.executable


def test_what_no_text_can_carry_is_left_out_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "GOOD", "é")
    monkeypatch.setitem(os.environ, "BAD", os.fsdecode(b"\xff"))
    environment = document.read_environment()
    assert environment["GOOD"] == "é"
    assert "BAD" not in environment


@pytest.mark.parametrize(
    ("make", "said"), [("nothing", "there is no file"), ("folder", "is a folder"), ("bytes", "is not a text file")]
)
def test_what_is_no_document_file_is_told(tmp_path: Path, make: str, said: str) -> None:
    path = tmp_path / "job.yaml"
    if make == "folder":
        path.mkdir()
    elif make == "bytes":
        path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=said):
        document.read_documents(str(path))


def test_relative_paths_start_at_the_document(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("kind: TrainingJob")
    assert document.read_documents(str(tmp_path / "job.yaml")) == ("kind: TrainingJob", str(tmp_path))


def test_a_queue_and_a_priority_of_zero_are_said() -> None:
    """An explicit priority of 0 is not the queue's default."""
    made = document.make_document(["run"], {"queue": "research", "priority": 0}, namespace="default", in_place=False)
    assert (made["spec"]["queue"], made["spec"]["priority"]) == ("research", 0)
    assert "priority" not in document.make_document(["run"], {}, namespace="default", in_place=False)["spec"]
