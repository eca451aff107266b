"""Requests to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairway.runtime import stop


@pytest.fixture(autouse=True)
def _handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stop, "_signalled", False)
    monkeypatch.setattr(stop, "_ear", stop._ListenerLock())
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_outside_of_a_job_nobody_asks() -> None:
    assert not stop.should_stop()


def test_the_stop_file_asks(in_job: Path) -> None:
    assert not stop.should_stop()
    (in_job / "attempt" / "stop").touch()
    assert stop.should_stop()


def test_sigterm_asks_once_it_is_handled_and_goes_on_to_the_handler_before() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    stop.handle_sigterm()
    assert not stop.should_stop()
    signal.raise_signal(signal.SIGTERM)
    assert stop.should_stop()
    assert seen == [signal.SIGTERM]


def test_the_default_action_of_sigterm_is_put_off() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    stop.handle_sigterm()
    signal.raise_signal(signal.SIGTERM)
    assert stop.should_stop()


def test_requeue_is_exit_75() -> None:
    with pytest.raises(SystemExit) as leaving:
        stop.requeue()
    assert leaving.value.code == 75


def test_who_asks_is_known_to_listen_while_it_lives(in_job: Path) -> None:
    shared = str(in_job / "shared")
    assert not stop.has_listeners(shared)
    code = "import fairway, sys; fairway.should_stop(); print('up', flush=True); sys.stdin.read()"
    env = {**os.environ, "PYTHONPATH": str(Path(stop.__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as asking:
        assert asking.stdout is not None
        asking.stdout.readline()
        assert stop.has_listeners(shared)
        asking.communicate()
    assert not stop.has_listeners(shared), "the kernel let go of the lock"


def test_helpers_that_a_program_forks_do_not_listen_for_it(in_job: Path) -> None:
    code = """
import os, fairway
fairway.should_stop()
child = os.fork()
if not child:
    print("forked", flush=True)
    os.read(0, 1)
    os._exit(0)
"""
    env = {**os.environ, "PYTHONPATH": str(Path(stop.__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as asking:
        assert asking.stdout is not None
        asking.stdout.readline()
        asking.wait(timeout=30)
        assert not stop.has_listeners(str(in_job / "shared"))
        asking.communicate()


@pytest.mark.parametrize("rank", [0, 1])
def test_of_a_checkpoint_only_the_rank_that_saves_it_listens(in_job: Path, rank: int) -> None:
    code = "import fairway, sys; fairway.checkpoint.latest(); print('up', flush=True); sys.stdin.read()"
    env = {**os.environ, "PYTHONPATH": str(Path(stop.__file__).parents[2]), "FAIRWAY_RANK": str(rank)}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as saving:
        assert saving.stdout is not None
        saving.stdout.readline()
        assert stop.has_listeners(str(in_job / "shared")) is (rank == 0)
        saving.communicate()


def test_a_pipe_in_place_of_the_file_holds_no_engine_up(in_job: Path) -> None:
    os.mkfifo(in_job / "shared" / "listens")
    assert not stop.has_listeners(str(in_job / "shared"))
