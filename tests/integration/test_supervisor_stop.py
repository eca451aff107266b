"""How a supervisor ends a task: SIGTERM, a grace period, SIGKILL, and nothing left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import fairway
from fairway.engines.local.supervision import control_socket
from fairway.testing.local_engine_fixture import SupervisorFixture, until

SOURCE = str(Path(fairway.__file__).parent.parent)

SAVES = """
import signal, sys, time
def save(*_):
    time.sleep(0.3)
    print("saved", flush=True)
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
while True:
    time.sleep(0.01)  # a signal that comes just before one long sleep would be seen after it
"""
HANDLES = """
import time
try:
    print("up", flush=True)
    while True:
        time.sleep(0.01)
finally:
    time.sleep(0.5)
    print("handled", flush=True)
"""
IGNORES = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)"


@pytest.fixture
def playground(tmp_path: Path) -> Iterator[SupervisorFixture]:
    made = SupervisorFixture(tmp_path)
    yield made
    made.close()


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-c", code]


async def test_a_stop_lets_the_program_save(playground: SupervisorFixture) -> None:
    attempt = await playground.start(python(SAVES))
    await until(lambda: "up" in attempt.log)
    assert attempt.ask(op="stop", grace=30, reason="preempted") == {"ok": True}
    end = await attempt.over()
    assert attempt.log == "up\nsaved\n"
    assert (end["code"], end["by_us"], end["said"]) == (75, True, "preempted")


async def test_a_stop_after_an_interrupt_lets_the_program_handle_it(playground: SupervisorFixture) -> None:
    attempt = await playground.start(python(HANDLES))
    await until(lambda: "up" in attempt.log)
    attempt.ask(op="interrupt")
    attempt.ask(op="stop", grace=30, reason="a peer was interrupted")
    await attempt.over()
    assert "handled\n" in attempt.log
    assert "KeyboardInterrupt" in attempt.log


async def test_after_the_grace_comes_the_kill(playground: SupervisorFixture) -> None:
    attempt = await playground.start(python(IGNORES))
    await until(lambda: "up" in attempt.log)
    before = time.monotonic()
    attempt.ask(op="stop", grace=0.3)
    end = await attempt.over()
    assert time.monotonic() - before >= 0.3
    assert (end["signal"], end["by_us"]) == (signal.SIGKILL, True)


async def test_the_kill_comes_though_daemon_and_nursery_are_gone(playground: SupervisorFixture) -> None:
    attempt = await playground.start(python(IGNORES))
    await until(lambda: "up" in attempt.log)
    attempt.ask(op="stop", grace=0.3)
    playground.close()
    assert (await attempt.over())["signal"] == signal.SIGKILL


async def test_a_second_stop_may_hurry_but_not_delay(playground: SupervisorFixture) -> None:
    attempt = await playground.start(python(IGNORES))
    await until(lambda: "up" in attempt.log)
    attempt.ask(op="stop", grace=600)
    attempt.ask(op="stop", grace=0.05)
    attempt.ask(op="stop", grace=600)
    assert (await attempt.over())["signal"] == signal.SIGKILL


async def test_a_program_under_a_shell_gets_its_grace_too(playground: SupervisorFixture) -> None:
    """The shell dies at once of SIGTERM; its child is adopted, gets the signal, and is waited for."""
    script = f'"{sys.executable}" -I -c "$0"; echo never'
    attempt = await playground.start(["sh", "-c", script, SAVES])
    await until(lambda: "up" in attempt.log)
    attempt.ask(op="stop", grace=30)
    end = await attempt.over()
    assert "saved" in attempt.log
    assert end["by_us"]


async def test_helpers_of_a_program_are_not_told_while_it_saves(playground: SupervisorFixture) -> None:
    """The workers of a data loader die of SIGTERM, and the program needs them for its last steps."""
    code = """
import signal, subprocess, sys, time
helper = subprocess.Popen([sys.executable, "-I", "-c", "import time; print('helping', flush=True); time.sleep(600)"])
def save(*_):
    time.sleep(0.5)
    print("helper lives" if helper.poll() is None else "helper died", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
while True:
    time.sleep(0.01)  # a signal that comes just before one long sleep would be seen after it
"""
    attempt = await playground.start(python(code))
    await until(lambda: "up" in attempt.log and "helping" in attempt.log)
    attempt.ask(op="stop", grace=30)
    end = await attempt.over()
    assert "helper lives" in attempt.log
    assert (end["code"], end["by_us"]) == (0, True)
    assert attempt.left() == []


async def test_a_halted_program_is_woken_to_hear(playground: SupervisorFixture) -> None:
    attempt = await playground.start(python(SAVES))
    await until(lambda: "up" in attempt.log)
    os.kill(attempt.begun["processes"][0]["pid"], signal.SIGSTOP)
    attempt.ask(op="stop", grace=30)
    assert (await attempt.over())["code"] == 75


async def test_a_signal_to_the_supervisor_ends_the_task_and_is_not_ours(playground: SupervisorFixture) -> None:
    attempt = await playground.start(["sleep", "600"])
    attempt.supervisor.send(signal.SIGTERM)
    end = await attempt.over()
    assert (end["signal"], end["by_us"], end["said"]) == (signal.SIGTERM, False, "its supervisor got SIGTERM")


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
async def test_the_daemon_can_stop_by_signal(playground: SupervisorFixture, number: signal.Signals) -> None:
    attempt = await playground.start(["sleep", "600"])
    attempt.supervisor.send(number)
    assert (await attempt.over())["by_us"]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
async def test_keys_and_hang_ups_do_not_reach_the_supervisor(playground: SupervisorFixture, number: signal.Signals) -> None:
    attempt = await playground.start(["sleep", "600"])
    attempt.supervisor.send(number)
    assert attempt.ask(op="status")["left"] == [attempt.begun["processes"][0]["pid"]]
    attempt.ask(op="kill")
    await attempt.over()


async def test_a_failure_before_the_stop_stays_a_failure(playground: SupervisorFixture) -> None:
    fail_late = 'until grep -q up "$FAIRWAY_ATTEMPT_DIR/out-1.log"; do sleep 0.01; done; exit 4'
    attempt = await playground.start(["sh", "-c", fail_late], python(IGNORES), grace=600)
    await until(lambda: len(attempt.ask(op="status")["left"]) == 1)
    attempt.ask(op="kill")
    end = await attempt.over()
    assert (end["rank"], end["code"], end["by_us"]) == (0, 4, False)


async def test_nonsense_at_the_door_is_answered_and_harms_nothing(playground: SupervisorFixture) -> None:
    attempt = await playground.start(["sleep", "600"])
    for text in (b"nonsense\n", b"[1]\n", b'{"op": "dance"}\n', b'{"op": "stop", "grace": "soon"}\n', b'{"op": "attach"}\n'):
        with control_socket.connect(str(attempt.folder), 5.0) as connection:
            connection.sendall(text)
            assert b'"error"' in connection.recv(1000), text
    with control_socket.connect(str(attempt.folder), 5.0) as connection:
        connection.sendall(b"x" * 100)
    attempt.ask(op="kill")
    assert (await attempt.over())["by_us"]


async def test_the_door_opens_however_deep_the_folder_lies(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    playground = SupervisorFixture(deep)
    attempt = await playground.start(["sleep", "600"])
    attempt.ask(op="kill")
    await attempt.over()
    playground.close()


async def test_the_end_is_told_to_who_listens(playground: SupervisorFixture) -> None:
    import socket

    path = playground.folder / "poke"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listening:
        before = Path.cwd()
        os.chdir(playground.folder)
        listening.bind("poke")
        os.chdir(before)
        attempt = await playground.start(["true"], poke=str(path))
        heard = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(listening, 100), 10)
    assert heard == b"default/test-1/worker-0#0"
    assert attempt.end is not None


ASKS = """
import os, sys, time
import fairway
print("up", fairway.should_stop(), flush=True)
while not fairway.should_stop():
    time.sleep(0.01)
time.sleep(0.5)  # a save; SIGTERM would end it
print("saved", flush=True)
"""


def shared(playground: SupervisorFixture) -> dict[str, str]:
    """Return what a program needs to call `should_stop()`."""
    folder = playground.folder / "shared"
    folder.mkdir(exist_ok=True)
    return {"FAIRWAY_SHARED_DIR": str(folder), "FAIRWAY_JOB": "test-1", "PYTHONPATH": SOURCE}


async def test_a_program_that_asks_is_not_ended_while_it_saves(playground: SupervisorFixture) -> None:
    attempt = await playground.start([sys.executable, "-c", ASKS], env=shared(playground))
    await until(lambda: "up" in attempt.log)
    attempt.ask(op="stop", grace=60, reason="StoppedByUser", ask=True)
    end = await attempt.over()
    assert attempt.log == "up False\nsaved\n"
    assert (end["code"], end["by_us"]) == (0, True)


async def test_a_launcher_gets_no_sigterm_before_its_ranks_have_saved(playground: SupervisorFixture) -> None:
    """As mpirun does, which kills its ranks a second after SIGTERM."""
    launcher = (
        "import signal, subprocess, sys\n"
        "rank = subprocess.Popen([sys.executable, '-c', sys.argv[1]])\n"
        "signal.signal(signal.SIGTERM, lambda *_: rank.kill())\n"
        "sys.exit(rank.wait())"
    )
    attempt = await playground.start([sys.executable, "-c", launcher, ASKS], env=shared(playground))
    await until(lambda: "up" in attempt.log)
    attempt.ask(op="stop", grace=60, ask=True)
    end = await attempt.over()
    assert "saved" in attempt.log
    assert (end["code"], end["by_us"]) == (0, True)


async def test_a_worker_waits_for_the_rank_of_another_task_that_asks_for_all(playground: SupervisorFixture) -> None:
    """Rank 0 polls and broadcasts the result; a peer that died of SIGTERM would break its last steps."""
    env = shared(playground)
    asking = await playground.start([sys.executable, "-c", ASKS], env=env)
    silent = await playground.start(["sleep", "600"], env=env)
    await until(lambda: "up" in asking.log)
    silent.ask(op="stop", grace=60, ask=True)
    asking.ask(op="stop", grace=60, ask=True)
    saved, ended = await asking.over(), await silent.over()
    assert (saved["code"], ended["signal"]) == (0, signal.SIGTERM)
    assert ended["finished"] >= saved["finished"]


async def test_a_program_that_does_not_ask_gets_sigterm_at_once(playground: SupervisorFixture) -> None:
    attempt = await playground.start(["sleep", "600"], env=shared(playground))
    before = time.monotonic()
    attempt.ask(op="stop", grace=600, ask=True)
    assert (await attempt.over())["signal"] == signal.SIGTERM
    assert time.monotonic() - before < 60


async def test_who_asks_and_does_not_end_gets_sigterm_before_the_grace_is_over(playground: SupervisorFixture) -> None:
    code = "import fairway, time\nfairway.should_stop()\nprint('up', flush=True)\ntime.sleep(600)"
    attempt = await playground.start([sys.executable, "-c", code], env=shared(playground))
    await until(lambda: "up" in attempt.log)
    attempt.ask(op="stop", grace=5, ask=True)
    end = await attempt.over()
    assert (end["signal"], end["by_us"]) == (signal.SIGTERM, True)


async def test_a_broken_gang_is_ended_at_once_though_it_asks(playground: SupervisorFixture) -> None:
    attempt = await playground.start([sys.executable, "-c", ASKS], env=shared(playground))
    await until(lambda: "up" in attempt.log)
    attempt.ask(op="stop", grace=600)
    assert (await attempt.over())["signal"] == signal.SIGTERM


async def test_a_program_that_only_saves_is_ended_after_its_next_checkpoint(playground: SupervisorFixture) -> None:
    code = """
import os, time
import fairway
step = 0
while True:
    step += 1
    with fairway.checkpoint.save(step):
        time.sleep(0.2)
    print("saved", step, os.path.exists(os.path.join(os.environ["FAIRWAY_ATTEMPT_DIR"], "stop")), flush=True)
    time.sleep(0.05)
"""
    env = {**shared(playground), "FAIRWAY_CHECKPOINT_DIR": str(playground.folder / "checkpoints"), "FAIRWAY_RANK": "0"}
    attempt = await playground.start([sys.executable, "-c", code], env=env)
    await until(lambda: "saved 1" in attempt.log)
    before = time.monotonic()
    attempt.ask(op="stop", grace=600, ask=True)
    assert (await attempt.over())["signal"] == signal.SIGTERM
    assert "True" in attempt.log
    assert time.monotonic() - before < 60
