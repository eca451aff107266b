"""What a run would miss is reported before it starts, and files that a copy of the code lacks are added or explained."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from daemon_home import DaemonHome

RUN = "kind: TrainingJob\nname: {name}\ncode: .\nrestart: {{max: 0}}\ncommand: {command}\n"


def write(home: DaemonHome, name: str, text: str) -> str:
    (home.work / name).write_text(text)
    return name


def git(folder: Path, *words: str) -> str:
    author = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    done = subprocess.run(
        ["git", "-C", str(folder), *words], env={**os.environ, **author}, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("code: nowhere\ncommand: python train.py", "code.path is 'nowhere'"),
        ("code: .\ncommand: python train.py\nenvironment: {python: no-venv}", "environment.python is 'no-venv'"),
        ("code: .\ncommand: no-such-program --fast", "'no-such-program'"),
        ("code: .\ncommand: python tarin.py", "tarin.py"),
        ("code: .\ncommand: python train.py\nenvironment: {requirements: reqs.txt}", "environment.requirements is 'reqs.txt'"),
        ("code: .\ncommand: python train.py\ndata: {train: mnist@3}", "mnist"),
        ("code: .\ncommand: python train.py\ndata: {train: ./there-is-none}", "data.train is './there-is-none'"),
    ],
)
def test_a_plan_names_what_is_missing_and_ends_with_1(shared_home: DaemonHome, part: str, said: str) -> None:
    write(shared_home, "train.py", "print(1)\n")
    file = write(shared_home, "job.yaml", f"kind: TrainingJob\nname: lacking\n{part}\n")
    planned = shared_home.call("submit", file, "--plan")
    assert planned.returncode == 1
    (line,) = [line for line in planned.stdout.splitlines() if line.startswith("missing: ")]
    assert said in line
    assert "fix: " in line
    found = json.loads(shared_home.call("submit", file, "--plan", "-o", "json").stdout)
    assert len(found["missing"]) == 1


def test_a_plan_of_a_run_with_everything_misses_nothing(shared_home: DaemonHome) -> None:
    write(shared_home, "train.py", "print(1)\n")
    write(shared_home, "requirements.txt", "")
    file = write(
        shared_home,
        "job.yaml",
        f"kind: TrainingJob\nname: whole\ncode: .\ncommand: {sys.executable} -X dev train.py\ndata: {{here: .}}\n"
        "environment: {requirements: requirements.txt}\n",
    )
    for words in (("submit", file, "--plan"), ("run", "--plan", "--", "bash", "-c", "echo 1"), ("run", "--plan", "--", "env")):
        planned = shared_home.call(*words)
        assert planned.returncode == 0, planned.stdout + planned.stderr
        assert "missing" not in planned.stdout


def test_a_plan_of_a_service_names_a_port_in_use(shared_home: DaemonHome) -> None:
    write(shared_home, "server.py", "print(1)\n")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        planned = shared_home.call("serve", "--name", "chat", "--port", port, "--plan", "--", "python", "server.py")
    assert planned.returncode == 1
    assert f"missing: port is {port}" in planned.stdout


def test_a_document_that_forgot_its_code_is_refused_with_the_line_to_add(shared_home: DaemonHome) -> None:
    write(shared_home, "train.py", "print(1)\n")
    file = write(shared_home, "bare.yaml", "kind: TrainingJob\nname: bare\ncommand: python train.py\n")
    refused = shared_home.call("submit", file)
    assert refused.returncode == 5
    assert "train.py" in refused.stderr
    assert "`code: .`" in refused.stderr
    assert shared_home.call("submit", file, "--plan").returncode == 1
    write(shared_home, "bare.yaml", "kind: TrainingJob\nname: bare\ncode: .\ncommand: python train.py\n")
    name = shared_home.ask("submit", file)
    shared_home.until_phase(name, "Succeeded")


def test_what_ignore_files_left_out_is_said_and_explains_a_failure(home: DaemonHome) -> None:
    write(home, ".gitignore", "data/\n*.log\n__pycache__\n")
    (home.work / "data").mkdir()
    write(home, "data/train.csv", "1\n")
    write(home, "old.log", "")
    write(home, "train.py", "print(open('data/train.csv').read())\n")
    file = write(home, "job.yaml", RUN.format(name="csv", command="python train.py"))
    submitted = home.call("submit", file)
    assert "excluded data/ from the copy" in submitted.stderr
    assert "old.log" not in submitted.stderr
    home.until_phase("csv-1", "Failed")
    why = json.loads(home.ask("why", "csv", "-o", "json"))
    assert "data/train.csv was excluded" in why["what_would_help"]
    # The advice works unchanged.
    advice = why["what_would_help"].split("`")[1]
    subprocess.run(advice, shell=True, cwd=home.work, check=True)
    home.until_phase(home.ask("submit", file), "Succeeded")


def test_an_environment_named_in_the_command_is_the_callers(home: DaemonHome) -> None:
    venv.create(home.work / ".venv", with_pip=False, symlinks=True)
    (packages,) = (home.work / ".venv").glob("lib/python*/site-packages")
    (packages / "only_there.py").write_text("value = 42\n")
    write(home, "train.py", "import only_there; print(only_there.value)\n")
    file = write(home, "job.yaml", RUN.format(name="own", command=".venv/bin/python train.py"))
    assert home.call("submit", file, "--plan").returncode == 0
    home.until_phase(home.ask("submit", file), "Succeeded")
    assert home.ask("logs", "own") == "42"


def test_a_copy_knows_its_commit_without_the_history(home: DaemonHome) -> None:
    git(home.work, "init", "--quiet")
    write(home, "train.py", "import subprocess\nsubprocess.check_call(['git', 'rev-parse', 'HEAD'])\n")
    git(home.work, "add", "train.py")
    git(home.work, "commit", "--quiet", "-m", "first")
    commit = git(home.work, "rev-parse", "HEAD")
    file = write(home, "job.yaml", RUN.format(name="git", command="python train.py"))
    name = home.ask("submit", file)
    home.until_phase(name, "Succeeded")
    assert home.ask("logs", name) == commit
    assert home.get(name)["commit"] == commit
    copy = home.path / "jobs" / "default" / name / "code"
    assert git(copy, "log", "-1", "--format=%s") == "first"
    assert git(copy, "status", "--short", "--untracked-files=no") == ""
    assert sum(path.stat().st_size for path in (copy / ".git").rglob("*") if path.is_file()) < 4096


def test_a_linked_folder_of_data_gets_advice_that_works(home: DaemonHome, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.mkdir()
    (large / "x").write_text("7")
    (home.work / "data").symlink_to(large)
    write(home, ".gitignore", "data/\n")
    write(home, "train.py", "import os; print(open(os.environ['FAIRWAY_DATA_DATA'] + '/x').read())\n")
    file = write(home, "job.yaml", RUN.format(name="linked", command="python train.py"))
    refused = home.call("submit", file)
    assert refused.returncode == 5
    assert f"--data data={large}" in refused.stderr
    with (home.work / ".fairwayignore").open("a") as ignored:
        ignored.write(refused.stderr.split("a line `")[1].split("`")[0] + "\n")
    name = home.ask("submit", file, "--data", f"data={large}")
    home.until_phase(name, "Succeeded")
    assert home.ask("logs", name) == "7"
