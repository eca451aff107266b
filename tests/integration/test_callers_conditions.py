"""A run has the priority, umask, limits, CPUs and GPUs of its own caller, not those of the command that started the daemon."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
from daemon_home import FAIRWAY, PATIENCE, DaemonHome

SHOW = """
import json, os, resource
seen = {"nice": os.getpriority(os.PRIO_PROCESS, 0), "umask": os.umask(0), "cpus": sorted(os.sched_getaffinity(0))}
seen["files"] = resource.getrlimit(resource.RLIMIT_NOFILE)
seen["core"] = resource.getrlimit(resource.RLIMIT_CORE)
seen["env"] = dict(os.environ)
print("SEEN" + json.dumps(seen))
"""
RESTRICTED = ("umask 027", "ulimit -S -n 333", "ulimit -S -c 0")


def shell(home: DaemonHome, command: str, *before: str, wrap: Sequence[str] = (), more: dict[str, str] | None = None) -> str:
    """Run the command line from a shell with its own settings; return the output."""
    line = "; ".join((*before, f"exec {' '.join((*wrap, FAIRWAY))} {command}"))
    ended = subprocess.run(
        ["bash", "-c", line],
        cwd=home.work,
        env={**home.environment, **(more or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr + home.log
    return ended.stdout


def seen(text: str) -> dict[str, Any]:
    (line,) = [line for line in text.splitlines() if "SEEN" in line]
    found: dict[str, Any] = json.loads(line.partition("SEEN")[2])
    return found


@pytest.fixture
def show(home: DaemonHome) -> str:
    (home.work / "show.py").write_text(SHOW)
    return "run -- python show.py"


def test_each_run_has_the_conditions_of_its_own_caller(home: DaemonHome, show: str) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    mine = seen(shell(home, show, *RESTRICTED, wrap=("nice", "-n", "3", "taskset", "-c", str(cpus[0]))))  # starts the daemon
    assert (mine["nice"], mine["umask"], mine["cpus"]) == (min(nice + 3, 19), 0o027, [cpus[0]])
    assert (mine["files"], mine["core"][0]) == ([333, hard], 0)
    usual = seen(shell(home, show, "umask 022"))
    assert (usual["umask"], usual["cpus"], usual["files"]) == (0o022, cpus, [soft, hard])
    if os.getuid() == 0:
        # An unprivileged process cannot raise its priority.
        assert usual["nice"] == nice


def test_a_submitted_run_has_them_too(home: DaemonHome) -> None:
    (home.work / "show.py").write_text(SHOW)
    name = shell(home, "submit --name show -- python show.py", *RESTRICTED, more={"HF_HOME": "/hf", "HF_TOKEN": "s"}).strip()
    home.until_phase(name, "Succeeded")
    mine = seen(home.ask("logs", name))
    assert (mine["umask"], mine["files"][0]) == (0o027, 333)
    assert mine["env"]["HF_HOME"] == "/hf"
    assert "HF_TOKEN" not in mine["env"]


def test_variables_of_the_caller_reach_a_run_whatever_the_daemon_was_started_with(home: DaemonHome, show: str) -> None:
    home.ask("list", more={"LD_LIBRARY_PATH": "/first", "https_proxy": "http://first"})
    given = {"LD_LIBRARY_PATH": "/mine", "HF_HOME": "/hf", "https_proxy": "http://mine"}
    in_place = seen(shell(home, show, more=given))["env"]
    assert {name: in_place[name] for name in given} == given
    name = shell(home, "submit --name show -- python show.py", more=given).strip()
    home.until_phase(name, "Succeeded")
    submitted = seen(home.ask("logs", name))["env"]
    assert {name: submitted[name] for name in given} == given


@pytest.mark.parametrize("place", [0, 1])
def test_a_run_uses_only_the_gpus_that_its_caller_sees(home: DaemonHome, show: str, place: int) -> None:
    uuids = [device["uuid"] for device in json.loads(home.ask("top", "node", "-o", "json"))["nodes"][0]["devices"]]
    for name in (str(place), uuids[place]):
        env = seen(shell(home, show.replace("run", "run --gpus 1", 1), more={"CUDA_VISIBLE_DEVICES": name}))["env"]
        assert env["CUDA_VISIBLE_DEVICES"] == uuids[place]


@pytest.mark.parametrize(("visible", "asked"), [("", 1), ("-1", 1), ("0", 2), ("7", 1)])
def test_a_run_that_asks_for_more_gpus_than_its_caller_sees_is_refused(home: DaemonHome, visible: str, asked: int) -> None:
    ended = home.call("run", "--gpus", str(asked), "--", "true", more={"CUDA_VISIBLE_DEVICES": visible})
    assert ended.returncode != 0
    assert "CUDA_VISIBLE_DEVICES" in ended.stderr
    assert "unset" in ended.stderr
