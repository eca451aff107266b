"""Commands for new users: a first job, shell completion, and what this machine has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairway.cli import verb as cli_verb
from fairway.cli.main import main
from fairway.cli.verbs.manage import completion, doctor
from fairway.testing.fake.fake_daemon import FakeDaemon

Shown = pytest.CaptureFixture[str]


FRAMEWORKS = ("pytorch", "tensorflow", "jax", "mpi", "command")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_init_writes_a_job_that_is_right(framework: str, tmp_path: Path, capsys: Shown) -> None:
    from fairway.spec.text.document import read_documents

    folder = tmp_path / "My First"
    assert main(["init", "--framework", framework, str(folder)]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{folder}/train.py\n{folder}/job.yaml\n"
    assert "fairway run job.yaml" in shown.err
    [job] = read_documents((folder / "job.yaml").read_text())
    assert (job.metadata.name, job.spec.framework, job.spec.roles["worker"].command) == (
        "my-first",
        framework,
        ("python", "train.py"),
    )
    compile((folder / "train.py").read_text(), "train.py", "exec")


def test_init_overwrites_nothing(tmp_path: Path, capsys: Shown) -> None:
    (tmp_path / "job.yaml").write_text("mine")
    assert main(["init", str(tmp_path)]) == 5
    assert "already present; nothing was written" in capsys.readouterr().err
    assert (tmp_path / "job.yaml").read_text() == "mine"
    assert not (tmp_path / "train.py").exists()


def test_init_can_plan_and_refuses_bad_names(tmp_path: Path, capsys: Shown) -> None:
    assert main(["init", str(tmp_path / "new"), "--plan"]) == 0
    assert "new/train.py would be written" in capsys.readouterr().out
    assert not (tmp_path / "new").exists()
    assert main(["init", "--name", "No Name", str(tmp_path / "new")]) == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_verb_and_flag(shell: str, capsys: Shown) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name, verb in cli_verb.VERBS.items():
        assert name in script
        for command in verb.load().values():
            for flag in command.flags:
                assert (flag.key if shell == "fish" else flag.names[0]) in script


def test_completion_works_in_bash(capsys: Shown, tmp_path: Path) -> None:
    main(["completion", "bash"])
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out)
    ask = f'source {script}; COMP_WORDS=(fairway "$@"); COMP_CWORD=$#; _fairway; echo "${{COMPREPLY[@]}}"'

    def complete(*words: str) -> list[str]:
        done = subprocess.run(
            ["bash", "-c", ask, "-", *words], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}
        )
        return done.stdout.split()

    assert complete("des") == ["describe"]
    assert "submit" in complete("s")
    assert complete("run", "--wor") == ["--workers"]
    assert complete("daemon", "st") == ["status", "start", "stop"]


def test_names_are_asked_of_fairway_itself() -> None:
    for command in completion._NAMES.values():
        words = command.split(" 2>")[0].split()[1:]
        assert cli_verb.find_verb(words[0])


def test_the_doctor_reports_on_everything(daemon: FakeDaemon, capsys: Shown) -> None:
    device: dict[str, Any] = {"index": 0, "type": "H100", "memory": 80 * 2**30, "uuid": "GPU-1", "healthy": True, "busy_with": ""}
    devices = [device, {**device, "index": 1, "busy_with": "pid 7 (python)"}]
    daemon.answers["GET /v1/health"] = {"version": "1.2.3", "pid": 42}
    daemon.answers["GET /v1/nodes"] = {"nodes": [{"name": "a", "cpu": 8.0, "memory": 2**34, "devices": devices}]}
    daemon.answers["GET /v1/faults"] = {"faults": []}
    assert main(["doctor", "-o", "json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    names = {finding["name"] for finding in findings}
    assert names >= {
        "python",
        "frameworks",
        "home",
        "disk",
        "/dev/shm",
        "ulimit -n",
        "ulimit -u",
        "ports",
        "cgroups",
        "daemon",
        "node",
        "gpu",
    }
    assert [finding["state"] for finding in findings if finding["name"] == "gpu"] == ["ok", "warning"]
    assert all(finding["fix"] for finding in findings if finding["state"] == "problem")
    daemon.answers["GET /v1/nodes"] = {
        "nodes": [{"name": "a", "cpu": 8.0, "memory": 2**34, "devices": [{**device, "healthy": False}]}]
    }
    assert main(["doctor"]) == 1
    assert "GPU-1) is sick\n" in capsys.readouterr().out


def test_the_doctor_says_when_the_daemon_does_not_start(home: str, monkeypatch: pytest.MonkeyPatch, capsys: Shown) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert main(["doctor"]) == 1
    assert "/no/such/python cannot be started" in capsys.readouterr().out


def test_a_home_on_a_network_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_file_system", lambda _path: "nfs4")
    finding = doctor._home("/home/ada/state")
    assert (finding.state, finding.fix) == ("problem", "set FAIRWAY_HOME to a folder on a local disk")


def test_frameworks_are_read_without_importing_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch-9.9.dist-info").mkdir()
    (tmp_path / "torch-9.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    (tmp_path / "torch.py").write_text("raise SystemExit('imported!')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    [finding] = doctor._frameworks()
    assert (finding.state, finding.text.split(",")[0]) == ("ok", "torch 9.9")


def test_the_doctor_names_what_fails(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["GET /v1/health"] = {"version": "1.2.3", "pid": 42}
    daemon.answers["GET /v1/nodes"] = {"nodes": []}
    fault = {"subject": "service:default/web", "work": "route", "cause": "port 80 is taken", "since": 1.0, "tries": 2}
    daemon.answers["GET /v1/faults"] = {"faults": [fault]}
    assert main(["doctor", "-o", "json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    (found,) = [finding for finding in findings if finding["name"] == "faults"]
    assert found["text"] == "service:default/web: route failed: port 80 is taken"


def test_doctor_sees_a_framework_under_the_name_of_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "tensorflow_cpu-2.20.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: 2.20.0\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    (finding,) = doctor._frameworks()
    assert "tensorflow-cpu 2.20.0" in finding.text
