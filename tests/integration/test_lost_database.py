"""The database is lost, damaged or older than the runs: no file of a run is lost, no task ends, and all runs are listed again."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from daemon_home import DaemonHome, is_alive

TRAINER = """
import os, time
import fairway
job, task, attempt = (os.environ["FAIRWAY_" + name] for name in ("JOB", "TASK", "ATTEMPT"))
with fairway.checkpoint.save(5) as folder:
    (folder / "weights").write_text("w" * 1000)
with open(os.environ["FAIRWAY_OUTPUT_MODEL"] + "/model.txt", "w") as file:
    file.write("a model")
fairway.report(step=5, loss=0.25)
print(f"{task} has saved")
with open(os.environ["MARKS"] + "/started", "a") as file:
    file.write(f"{job}/{task}#{attempt} {os.getpid()}\\n")
while not os.path.exists(os.environ["MARKS"] + f"/go-{job}"):
    time.sleep(0.01)
"""

SERVER = """
import http.server, os

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["FAIRWAY_PORT"])), Answer).serve_forever()
"""

Damage = Callable[[Path], None]


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 // 4096 * 4096)


def overwrite_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096 * 2)
        file.write(b"\xa5" * 4096)


def put_back(path: Path) -> None:
    shutil.copy(path.with_name("older.copy"), path)


DAMAGE: dict[str, Damage] = {
    "missing": remove,
    "empty": empty,
    "truncated": truncate,
    "overwritten": overwrite_page,
    "older": put_back,
}


def trainer(home: DaemonHome, name: str, workers: int = 1, **more: object) -> dict[str, object]:
    (home.work / "trainer.py").write_text(TRAINER)
    command = [sys.executable, str(home.work / "trainer.py")]
    return home.document(name, workers, *command, outputs={"model": name}, **more)


def files_of(home: DaemonHome) -> dict[str, str]:
    """Return the content of what runs have saved, produced and printed."""
    found = {}
    for pattern in ("checkpoints/*/*", "outputs/*/*", "attempts/*/out-*.log", "attempts/*/started.json"):
        for path in home.path.glob(f"jobs/*/*/{pattern}"):
            found[str(path.relative_to(home.path))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


class Story:
    """Runs that ended, runs that continue and one that was deleted, before and after the database was copied."""

    def __init__(self, home: DaemonHome) -> None:
        self.home = home
        home.ask("apply", "-f", home.write({"kind": "JobQueue", "name": "research", "weight": 2}))
        self.done = home.submit(trainer(home, "done"))
        self.gone = home.submit(home.document("gone", 1))
        self.stays = home.submit(trainer(home, "stays", 2, queue="research"))
        first = [f"{self.done}/worker-0#0", f"{self.gone}/worker-0#0", f"{self.stays}/worker-0#0", f"{self.stays}/worker-1#0"]
        home.until_started(*first)
        home.tell(self.done)
        home.until_phase(self.done, "Succeeded")
        home.until_phase(self.stays, "Running")
        home.ask("daemon", "stop")
        shutil.copy(home.path / "fairway.db", home.path / "older.copy")
        self.late = home.submit(trainer(home, "late"))
        home.until_started(f"{self.late}/worker-0#0")
        home.until_phase(self.late, "Running")
        home.until(lambda: home.get(self.late)["progress"]["checkpoint_step"] == 5, "the checkpoint")
        home.ask("delete", self.gone)
        self.again = home.submit(trainer(home, "done"))
        home.until_started(f"{self.again}/worker-0#0")
        home.tell(self.again)
        home.until_phase(self.again, "Succeeded")
        self.pids = home.started()
        self.files = files_of(home)

    def check_all_there(self, *, deletions_known: bool = True) -> None:
        home = self.home
        shown = home.call("list", "-o", "name")
        assert shown.returncode == 0, shown.stderr
        known = set(shown.stdout.split()) if deletions_known else set(shown.stdout.split()) - {self.gone}
        assert known == {self.done, self.again, self.stays, self.late}
        assert "fairway doctor" in shown.stderr, "the command that started the daemon tells of it"
        assert files_of(home) == self.files
        running = [f"{self.stays}/worker-0#0", f"{self.stays}/worker-1#0", f"{self.late}/worker-0#0"]
        assert all(is_alive(self.pids[task]) for task in running), home.log
        for run in (self.done, self.again):
            view = home.get(run)
            assert (view["phase"], view["tasks"][0]["phase"], view["tasks"][0]["exit_code"]) == ("Succeeded", "Succeeded", 0)
        for run in (self.stays, self.late):
            view = home.until_phase(run, "Running")
            assert {task["phase"] for task in view["tasks"]} == {"Running"}
        assert home.get(self.late)["progress"]["checkpoint_step"] == 5
        assert "has saved" in home.ask("logs", self.late)

    def check_told(self) -> None:
        told = json.loads(self.home.call("doctor", "-o", "json").stdout)["findings"]
        names = {one["name"] for one in told}
        assert {"database", "backups", "recovery"} <= names
        (recovery,) = [one for one in told if one["name"] == "recovery"]
        assert "lost" in recovery["text"]
        assert "Recovered" in self.home.ask("events")

    def check_goes_on(self, *, journal: bool) -> None:
        home = self.home
        for run in (self.stays, self.late):
            home.tell(run)
            home.until_phase(run, "Succeeded")
        third = home.submit(trainer(home, "done"))
        assert third == "done-3", "no number is used twice"
        home.until_started(f"{third}/worker-0#0")
        if journal:
            assert home.submit(home.document("gone", 1)) == "gone-2"
            assert "research" in home.ask("queue", "list")
        assert not {name for name in home.started() if "#1" in name}, "no task was started again"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kept", ["backups", "folders alone"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_nothing_of_any_run_is_lost(home: DaemonHome, damage: str, kept: str) -> None:
    story = Story(home)
    # A clean shutdown, so that the file holds everything and the damage hits it; a killed daemon leaves most of it in the WAL.
    if damage in ("truncated", "overwritten", "older"):
        home.ask("daemon", "stop")
    else:
        home.kill_daemon()
    DAMAGE[damage](home.path / "fairway.db")
    if kept == "folders alone":
        shutil.rmtree(home.path / "backups")
        (home.path / "fairway.journal").unlink()
    # A copy from before a deletion still has the run; only the journal records the deletion.
    story.check_all_there(deletions_known=(damage, kept) != ("older", "folders alone"))
    story.check_told()
    story.check_goes_on(journal=kept == "backups")


PLACES = [*(f"recovery.rename:before:{count}" for count in (1, 2, 3, 4)), "recovery.rename:after:4"]
PLACES += ["store.commit:before:1", "store.commit:after:1"]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("place", PLACES)
def test_a_recovery_that_is_cut_short_is_gone_on_with(home: DaemonHome, place: str) -> None:
    before = home.submit(trainer(home, "before"))
    home.until_phase(before, "Running")
    home.ask("daemon", "stop")
    home.start_daemon()
    home.until(lambda: list((home.path / "backups").glob("fairway-*.db")), "a backup")
    after = home.submit(trainer(home, "after"))
    pids = home.until_started(f"{before}/worker-0#0", f"{after}/worker-0#0")
    home.until_phase(after, "Running")
    files = files_of(home)
    home.kill_daemon()
    (home.path / "fairway.db").unlink()
    daemon = home.start_child(FAIRWAY_CRASH_AT=place)
    home.until(lambda: daemon.poll() is not None, f"its death at {place}")
    for run in (before, after):
        view = home.until_phase(run, "Running")
        assert [task["phase"] for task in view["tasks"]] == ["Running"]
    assert files_of(home) == files
    assert all(is_alive(pid) for pid in pids.values())
    for run in (before, after):
        home.tell(run)
        home.until_phase(run, "Succeeded")
    assert not {name for name in home.started() if "#1" in name}
    told = json.loads(home.call("doctor", "-o", "json").stdout)["findings"]
    assert "recovery" in {one["name"] for one in told}


@pytest.mark.timeout(120)
def test_damage_that_is_met_while_the_daemon_runs_is_recovered_from(home: DaemonHome) -> None:
    """A page is overwritten under the daemon: it reopens its database by itself, and the task continues."""
    runs = [home.submit(trainer(home, f"run-{number}")) for number in range(3)]
    for run in runs:
        home.until_phase(run, "Running")
    pids = home.until_started(*(f"{run}/worker-0#0" for run in runs))
    home.ask("daemon", "stop")
    pid = home.start_daemon()
    home.until(lambda: list((home.path / "backups").glob("fairway-*.db")), "a backup")
    path = home.path / "fairway.db"
    with path.open("r+b") as file:
        for page in range(1, path.stat().st_size // 4096):
            file.seek(4096 * page)
            file.write(b"\xa5" * 4096)
    # Data in memory may serve requests for a while; the first read from the file meets the damage.
    home.tell(runs[0])
    home.until(lambda: list(home.path.glob("fairway.db.damaged-*")), "the damage to be met")
    home.until_phase(runs[0], "Succeeded")
    for run in runs[1:]:
        home.until_phase(run, "Running")
        assert is_alive(pids[f"{run}/worker-0#0"])
        home.tell(run)
        home.until_phase(run, "Succeeded")
    assert home.status()["pid"] == pid, "one process, which opened its record again"
    assert not {name for name in home.started() if "#1" in name}


@pytest.mark.timeout(120)
def test_a_folder_that_cannot_be_read_is_kept_and_named(home: DaemonHome) -> None:
    run = home.submit(trainer(home, "keeps"))
    home.until_phase(run, "Running")
    home.tell(run)
    home.until_phase(run, "Succeeded")
    strange = home.path / "jobs" / "default" / "strange-7"
    (strange / "attempts" / "worker-0-0").mkdir(parents=True)
    (strange / "checkpoints").mkdir()
    (strange / "checkpoints" / "weights").write_text("years of work")
    home.ask("daemon", "stop")
    assert home.names() == [run]
    assert (strange / "checkpoints" / "weights").read_text() == "years of work"
    told = json.loads(home.call("doctor", "-o", "json").stdout)["findings"]
    (unknown,) = [one for one in told if one["name"] == "unknown folder"]
    assert str(strange) in unknown["text"]
    assert "fairway doctor --set-aside default/strange-7" in unknown["fix"]
    home.call("doctor", "--plan", "--set-aside", "default/strange-7")
    assert strange.exists()
    assert home.submit(home.document("strange", 1)) == "strange-8", "its number is taken"
    home.call("doctor", "--set-aside", "default/strange-7")
    assert not strange.exists()
    assert (home.path / "set-aside" / "default.strange-7" / "checkpoints" / "weights").read_text() == "years of work"
    assert home.call("doctor", "--set-aside", f"default/{run}").returncode == 3


def spoil(home: DaemonHome, sql: str) -> None:
    """Make records unreadable, and remove everything that they could be restored from."""
    connection = sqlite3.connect(home.path / "fairway.db")
    connection.execute(sql)
    connection.commit()
    connection.close()
    shutil.rmtree(home.path / "backups", ignore_errors=True)
    (home.path / "fairway.journal").unlink()


@pytest.mark.timeout(120)
def test_one_unreadable_run_stops_nothing_and_can_be_deleted(home: DaemonHome) -> None:
    good, bad = home.submit(home.document("good", 1)), home.submit(home.document("bad", 1))
    pids = home.until_started(f"{good}/worker-0#0", f"{bad}/worker-0#0")
    home.until_phase(good, "Running")
    home.until_phase(bad, "Running")
    home.ask("daemon", "stop")
    spoil(home, f"UPDATE job SET body = x'c1' WHERE name = '{bad}'")
    record = home.path / "jobs" / "default" / bad / "run.json"
    kept = record.read_bytes()
    record.write_text("{")
    assert home.names() == [good]
    assert home.get(good)["phase"] == "Running"
    assert all(is_alive(pid) for pid in pids.values())
    told = home.call("get", bad)
    assert told.returncode == 4
    assert "Traceback" not in told.stderr
    assert f"fairway delete {bad}" in told.stderr
    findings = json.loads(home.call("doctor", "-o", "json").stdout)["findings"]
    assert any(one["name"] == "unreadable" and bad in one["text"] for one in findings)
    # With a readable record in its folder, the next start restores the run.
    home.ask("daemon", "stop")
    record.write_bytes(kept)
    assert set(home.names()) == {good, bad}
    home.until_phase(bad, "Running")
    home.ask("daemon", "stop")
    spoil(home, f"UPDATE job SET body = x'c1' WHERE name = '{bad}'")
    record.write_text("{")
    home.ask("delete", bad)
    home.until(lambda: not is_alive(pids[f"{bad}/worker-0#0"]), "the end of its task")
    assert not record.parent.exists()
    home.tell(good)
    home.until_phase(good, "Succeeded")


@pytest.mark.timeout(120)
def test_an_unreadable_queue_and_service_stop_nothing_and_can_be_deleted(home: DaemonHome) -> None:
    home.ask("apply", "-f", home.write({"kind": "JobQueue", "name": "research", "weight": 2}))
    program = home.work / "server.py"
    program.write_text(SERVER)
    home.ask("serve", "--name", "echo", "--gpus", "0", "--cpus", "0.5", "--", sys.executable, str(program))
    run = home.submit(home.document("stays", 1, queue="research"))
    pids = home.until_started(f"{run}/worker-0#0")
    home.until_phase(run, "Running")
    home.ask("daemon", "stop")
    spoil(home, "UPDATE queue SET body = x'c1'")
    with sqlite3.connect(home.path / "fairway.db") as connection:
        connection.execute("UPDATE service SET body = x'c1'")
    assert home.get(run)["phase"] == "Running"
    other = home.submit(home.document("other", 1))
    home.until_started(f"{other}/worker-0#0")
    subjects = [
        one["text"] for one in json.loads(home.call("doctor", "-o", "json").stdout)["findings"] if one["name"] == "unreadable"
    ]
    assert len(subjects) == 2
    replica = home.path / "jobs" / "default.services" / "echo-r1-1" / "attempts" / "replica-0-0" / "exit.json"
    assert not replica.exists(), "the replica goes on"
    home.ask("delete", "service/echo")
    home.until(replica.exists, "the end of the replica")
    home.ask("delete", "queue/research")
    findings = json.loads(home.call("doctor", "-o", "json").stdout)["findings"]
    assert not [one for one in findings if one["name"] == "unreadable"]
    assert is_alive(pids[f"{run}/worker-0#0"])
    for name in (run, other):
        home.tell(name)
        home.until_phase(name, "Succeeded")
