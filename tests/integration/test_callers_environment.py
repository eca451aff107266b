"""The caller's environment is kept while an in-place run may restart, and deleted after its end."""

from __future__ import annotations

import json
import os
import sys

from daemon_home import DaemonHome

SHOW = """
import json, os
with open(os.environ["FAIRWAY_SHARED_DIR"] + "/seen", "a") as file:
    file.write(json.dumps(dict(os.environ)) + "\\n")
raise SystemExit(7)
"""
GIVEN = {"MY_SETTING": "1", "MY_TOKEN": "s3cr3t-value", "VIRTUAL_ENV": "/some/where"}


def seen(home: DaemonHome, name: str) -> list[dict[str, str]]:
    (path,) = home.path.glob(f"jobs/*/{name}/shared/seen")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_restart_has_the_whole_environment_and_after_the_end_no_secret_is_left(home: DaemonHome) -> None:
    (home.work / "show.py").write_text(SHOW)
    command = ("run", "-d", "--name", "show", "--retries", "1", "--", sys.executable, str(home.work / "show.py"))
    name = home.ask(*command, more=GIVEN)
    home.until_phase(name, "Failed")
    first, second = seen(home, name)
    assert first["MY_TOKEN"] == second["MY_TOKEN"] == "s3cr3t-value"
    folder = home.path / "jobs" / "default" / name
    home.until(lambda: not (folder / "environment.json").exists(), "the environment to be removed")
    kept = [path for path in folder.rglob("*") if path.is_file() and path.name != "seen"]
    assert not [path for path in kept if b"s3cr3t-value" in path.read_bytes()]
    home.ask("resume", name)
    home.until(lambda: len(seen(home, name)) >= 3, "it to start again")
    third = seen(home, name)[2]
    assert "MY_TOKEN" not in third
    assert third["PATH"] == first["PATH"]
    assert third["VIRTUAL_ENV"] == first["VIRTUAL_ENV"]
    home.until_phase(name, "Failed")


def test_what_ended_while_no_daemon_looked_is_cleaned_at_the_next_start(home: DaemonHome) -> None:
    (home.work / "show.py").write_text(SHOW)
    name = home.ask("run", "-d", "--name", "show", "--", sys.executable, str(home.work / "show.py"), more=GIVEN)
    home.until_phase(name, "Failed")
    folder = home.path / "jobs" / "default" / name
    home.until(lambda: not (folder / "environment.json").exists(), "the environment to be removed")
    home.ask("daemon", "stop")
    (folder / "environment.json").write_text(json.dumps(GIVEN))
    os.chmod(folder / "environment.json", 0o600)
    home.ask("list")
    home.until(lambda: not (folder / "environment.json").exists(), "what an earlier version left to be removed")
