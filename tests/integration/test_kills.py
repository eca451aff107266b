"""kill -9 of every kind of process, one after the other: what survives continues, and what does not is reported truthfully."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from daemon_home import FAIRWAY, DaemonHome, is_alive, kill

TRAINER = """
import os, sys, time
import fairway
job, task, attempt = (os.environ["FAIRWAY_" + name] for name in ("JOB", "TASK", "ATTEMPT"))
begin = fairway.checkpoint.latest()
step = begin.step if begin else 0
with open(os.environ["MARKS"] + "/started", "a") as file:
    file.write(f"{job}/{task}#{attempt} {os.getpid()}\\n")
print(f"{task} begins at step {step}")
if step < 5:
    for step in (3, 5):
        with fairway.checkpoint.save(step) as folder:
            (folder / "weights").write_text("w" * 1000)
        fairway.report(step=step, loss=1 / step)
while not os.path.exists(os.environ["MARKS"] + f"/go-{job}"):
    time.sleep(0.01)
"""
"""Saves at the steps 3 and 5, and waits for an order to end."""


def trainer(home: DaemonHome, name: str = "train", **more: object) -> dict[str, object]:
    (home.work / "trainer.py").write_text(TRAINER)
    given: dict[str, object] = {"restart": {"max": 2}, **more}
    return home.document(name, 2, sys.executable, str(home.work / "trainer.py"), **given)


def test_after_the_kill_of_a_worker_the_gang_goes_on_from_its_checkpoint(home: DaemonHome) -> None:
    run = home.submit(trainer(home, role={"resources": {"gpu": 1}}))
    pids = home.until_started(f"{run}/worker-0#0", f"{run}/worker-1#0")
    home.until(lambda: home.get(run)["progress"]["checkpoint_step"] == 5, "the checkpoint")
    kill(pids[f"{run}/worker-1#0"])
    home.until_started(f"{run}/worker-0#1", f"{run}/worker-1#1")
    assert not is_alive(pids[f"{run}/worker-0#0"]), "the survivor of the broken gang still runs beside its successor"
    view = home.until_phase(run, "Running")
    assert "resumed from step 5" in view["resume"]
    assert (view["restarts"], view["outcome"]["reason"], view["outcome"]["task"]) == (1, "Signal", "worker-1")
    home.tell(run)
    home.until_phase(run, "Succeeded")
    assert "worker-0 begins at step 5" in home.ask("logs", run)
    assert "resumed from step 5" in home.ask("get", run)
    home.check_nothing_held()


def cut_short(home: DaemonHome) -> str:
    """Return a run that continued after a crash that damaged its newest checkpoint."""
    run = home.submit(trainer(home))
    pids = home.until_started(f"{run}/worker-0#0", f"{run}/worker-1#0")
    home.until(lambda: home.get(run)["progress"]["checkpoint_step"] == 5, "the checkpoint")
    newest = home.path / "jobs/default" / run / "checkpoints/step-000000000005"
    # As after a power cut: the file exists, but its end is missing; and a later checkpoint was never completed.
    os.truncate(newest / "weights", 10)
    (newest.parent / ".tmp-step-000000000007-half").mkdir()
    (newest.parent / ".tmp-step-000000000007-half/weights").write_text("w")
    kill(pids[f"{run}/worker-0#0"])
    home.until_started(f"{run}/worker-0#1", f"{run}/worker-1#1")
    return run


def test_a_checkpoint_that_was_cut_short_is_passed_over(home: DaemonHome) -> None:
    run = cut_short(home)
    home.until(lambda: "worker-0 begins at step 3" in home.ask("logs", run), "going on from the checkpoint before")
    home.tell(run)
    home.until_phase(run, "Succeeded")


def test_and_it_is_not_told_that_the_run_went_on_from_it(home: DaemonHome) -> None:
    assert "resumed from step 3" in home.get(cut_short(home))["resume"]


def test_after_the_kill_of_a_parameter_server_the_gang_starts_again(home: DaemonHome) -> None:
    document = home.document("ps", 2, restart={"max": 1})
    roles = document["roles"]
    roles["ps"] = {**roles["worker"], "replicas": 1}
    run = home.submit(document)
    tasks = [f"{run}/{name}" for name in ("worker-0", "worker-1", "ps-0")]
    pids = home.until_started(*(f"{task}#0" for task in tasks))
    kill(pids[f"{run}/ps-0#0"])
    home.until_started(*(f"{task}#1" for task in tasks))
    assert home.until_phase(run, "Running")["outcome"]["task"] == "ps-0"
    home.tell(run)
    home.until_phase(run, "Succeeded")
    home.check_nothing_held()


def test_a_parameter_server_that_outlives_the_workers_is_ended(home: DaemonHome) -> None:
    document = home.document("ps", 1)
    patient = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
    document["roles"]["ps"] = {"replicas": 1, "command": patient}
    run = home.submit(document)
    home.until_started(f"{run}/worker-0#0")
    home.tell(run)
    home.until_phase(run, "Succeeded")
    home.check_nothing_held()


def test_of_a_job_that_restarts_by_task_only_the_killed_one_starts_again(home: DaemonHome) -> None:
    run = home.submit(home.document("alone", 2, restart={"max": 1, "scope": "task"}))
    pids = home.until_started(f"{run}/worker-0#0", f"{run}/worker-1#0")
    kill(pids[f"{run}/worker-1#0"])
    known = home.until_started(f"{run}/worker-1#1")
    assert is_alive(pids[f"{run}/worker-0#0"])
    assert f"{run}/worker-0#1" not in known
    home.tell(run)
    home.until_phase(run, "Succeeded")
    assert len(home.started()) == 3


def test_after_the_kill_of_a_launcher_everybody_starts_again(home: DaemonHome) -> None:
    document = home.document("launched", 2, restart={"max": 1})
    document["roles"]["launcher"] = {**document["roles"]["worker"], "replicas": 1}
    run = home.submit(document)
    tasks = [f"{run}/{name}" for name in ("launcher-0", "worker-0", "worker-1")]
    pids = home.until_started(*(f"{task}#0" for task in tasks))
    kill(pids[f"{run}/launcher-0#0"])
    home.until_started(*(f"{task}#1" for task in tasks))
    assert home.until_phase(run, "Running")["outcome"]["task"] == "launcher-0"
    home.tell(run)
    home.until_phase(run, "Succeeded")
    home.check_nothing_held()


@pytest.mark.parametrize("daemon_lives", [True, False])
def test_after_the_kill_of_a_supervisor_the_truth_is_told_and_nothing_is_left(home: DaemonHome, daemon_lives: bool) -> None:
    run = home.submit(home.document("lost", 2, role={"resources": {"gpu": 1}}))
    pids = home.until_started(f"{run}/worker-0#0", f"{run}/worker-1#0")
    supervisor = home.supervisor(f"{run}/worker-0#0")
    if not daemon_lives:
        home.kill_daemon()
    kill(supervisor)
    view = home.until_phase(run, "Failed")
    assert (view["outcome"]["reason"], view["outcome"]["task"]) == ("Lost", "worker-0")
    assert "its exit status is unknown" in view["outcome"]["message"]
    tasks = {task["name"]: task for task in view["tasks"]}
    assert (tasks["worker-0"]["phase"], tasks["worker-0"]["exit_code"]) == ("Lost", None)
    assert not any(is_alive(pid) for pid in pids.values())
    home.check_nothing_held()


def test_after_the_kill_of_the_nursery_tasks_go_on_and_new_ones_start(home: DaemonHome) -> None:
    first = home.submit(home.document("first", 2))
    pids = home.until_started(f"{first}/worker-0#0", f"{first}/worker-1#0")
    daemon = home.status()["pid"]
    (nursery,) = [pid for pid, text in home.processes().items() if "fork_server" in text]
    kill(nursery)
    second = home.submit(home.document("second", 2))
    home.until_started(f"{second}/worker-0#0", f"{second}/worker-1#0")
    assert all(is_alive(pid) for pid in pids.values())
    assert home.status()["pid"] == daemon
    for run in (first, second):
        home.tell(run)
        home.until_phase(run, "Succeeded")
    home.check_nothing_held()


def test_a_nursery_that_hangs_is_replaced_by_no_harm(home: DaemonHome) -> None:
    """A fork server that is stopped delays its orders, and nothing starts twice when it continues."""
    home.ask("daemon", "start")
    (nursery,) = home.until(lambda: [pid for pid, text in home.processes().items() if "fork_server" in text], "the nursery")
    os.kill(nursery, signal.SIGSTOP)
    run = home.submit(home.document("slow", 2))
    home.until(lambda: home.get(run)["phase"] != "Pending", "the attempt to start it")
    assert home.started() == {}
    os.kill(nursery, signal.SIGCONT)
    home.until_started(f"{run}/worker-0#0", f"{run}/worker-1#0")
    home.tell(run)
    home.until_phase(run, "Succeeded")


def test_a_killed_daemon_finds_its_tasks_again_and_learns_how_the_others_ended(home: DaemonHome) -> None:
    runs = {word: home.submit(home.document(f"job-{word}", 1)) for word in ("0", "7", "die", "stays")}
    pids = home.until_started(*(f"{run}/worker-0#0" for run in runs.values()))
    for run in runs.values():
        home.until_phase(run, "Running")
    dead = home.kill_daemon()
    for word in ("0", "7", "die"):
        home.tell(runs[word], word)
    home.until(
        lambda: not any(is_alive(pids[f"{runs[word]}/worker-0#0"]) for word in ("0", "7", "die")), "the end of three tasks"
    )
    home.until_phase(runs["0"], "Succeeded")
    assert home.status()["pid"] != dead
    failed = home.until_phase(runs["7"], "Failed")
    assert (failed["outcome"]["reason"], failed["outcome"]["exit_code"]) == ("Error", 7)
    died = home.until_phase(runs["die"], "Failed")
    assert (died["outcome"]["reason"], died["tasks"][0]["exit"]) == ("Signal", "SIGKILL")
    stayed = home.until_phase(runs["stays"], "Running")
    assert stayed["attempt"] == 0
    assert is_alive(pids[f"{runs['stays']}/worker-0#0"])
    home.tell(runs["stays"])
    home.until_phase(runs["stays"], "Succeeded")
    assert len(home.started()) == 4
    home.check_nothing_held()


@pytest.mark.parametrize(("word", "code"), [("0", 0), ("3", 3)])
def test_who_watches_a_run_sees_its_end_though_the_daemon_was_killed(home: DaemonHome, word: str, code: int) -> None:
    home.start_daemon()
    watching = watch(home)
    home.until_started("watched-1/worker-0#0")
    home.kill_daemon()
    home.tell("watched-1", word)
    assert watching.wait(30) == code


def test_a_run_goes_on_when_its_watcher_is_killed(home: DaemonHome) -> None:
    home.start_daemon()
    watching = watch(home)
    pids = home.until_started("watched-1/worker-0#0")
    home.until_phase("watched-1", "Running")
    watching.kill()
    watching.wait(30)
    home.tell("watched-1")
    assert home.until_phase("watched-1", "Succeeded")["tasks"][0]["exit_code"] == 0
    assert home.started() == pids


def watch(home: DaemonHome) -> subprocess.Popen[bytes]:
    """Run `fairway run` in the foreground, in place."""
    command = [sys.executable, "-I", "-S", "program.py"]
    return subprocess.Popen(
        [FAIRWAY, "run", "--name", "watched", "--gpus", "0", "-e", f"MARKS={home.marks}", "--", *command],
        cwd=home.work,
        env=home.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_a_daemon_that_ends_in_order_leaves_its_tasks_and_nothing_else(home: DaemonHome) -> None:
    run = home.submit(home.document("goes-on", 1))
    pids = home.until_started(f"{run}/worker-0#0")
    home.until_phase(run, "Running")
    home.ask("daemon", "stop")
    assert not home.status()["running"]
    assert is_alive(pids[f"{run}/worker-0#0"])
    left = {path.name for path in [*home.path.iterdir(), *(home.runtime / "fairway").iterdir()]}
    assert not {name for name in left if name.endswith((".sock", "-wal", "-shm"))}, "it was cut off in the middle of its end"
    home.tell(run)
    home.until_phase(run, "Succeeded")
