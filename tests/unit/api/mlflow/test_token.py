"""Tokens, and the listener that accepts them."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from other_user import STRANGER, do_as, needs_root

from fairway.api.mlflow import endpoint as module
from fairway.api.mlflow.endpoint import HOST, MlflowEndpoint
from fairway.api.mlflow.token import speaker_of, token_of
from fairway.app.tracking.run import TokenCaller
from fairway.spec.job import JobSpec, TaskRole
from fairway.state.job import JobKey, JobState

SECRET = b"s" * 32


def test_a_token_says_who_speaks() -> None:
    for who in (TokenCaller("default", "mnist-7"), TokenCaller("default.services", "mnist-r1-1"), TokenCaller("default")):
        assert speaker_of(SECRET, token_of(SECRET, who)) == who


@given(st.integers(min_value=0), st.characters())
def test_a_token_that_was_changed_says_nothing(place: int, letter: str) -> None:
    token = token_of(SECRET, TokenCaller("default", "mnist-7"))
    place %= len(token)
    changed = token[:place] + letter + token[place + 1 :]
    assert changed == token or speaker_of(SECRET, changed) is None


def test_a_token_of_another_home_says_nothing() -> None:
    assert speaker_of(b"t" * 32, token_of(SECRET, TokenCaller("default", "mnist-7"))) is None
    assert speaker_of(SECRET, "") is None
    assert speaker_of(SECRET, "x" * 10_000) is None


def test_the_door_stays_where_it_is_while_a_task_holds_it(tmp_path: Path) -> None:
    first = MlflowEndpoint.open(tmp_path)
    port, secret = first.port, first.secret
    task = [os.dup(descriptor) for descriptor in first.held]
    first.close()
    second = MlflowEndpoint.open(tmp_path)
    assert (second.port, second.secret) == (port, secret)
    second.close()
    third = MlflowEndpoint.open(tmp_path)
    assert (third.port, third.secret) == (port, secret), "the first task still holds it"
    with socket.create_connection((HOST, port), timeout=30):
        third.listening.setblocking(True)
        third.listening.accept()[0].close()
    third.close()
    for descriptor in task:
        os.close(descriptor)


def test_a_port_that_was_free_for_a_while_gets_a_new_secret(tmp_path: Path) -> None:
    first = MlflowEndpoint.open(tmp_path)
    stolen = token_of(first.secret, TokenCaller("default", "mnist-7"))
    port = first.port
    first.close()
    second = MlflowEndpoint.open(tmp_path)
    assert second.port == port
    assert speaker_of(second.secret, stolen) is None
    second.close()


def test_a_port_that_another_program_has_is_given_up_with_its_secret(tmp_path: Path) -> None:
    first = MlflowEndpoint.open(tmp_path)
    port, secret = first.port, first.secret
    first.close()
    with socket.socket() as other:
        other.bind((HOST, port))
        other.listen()
        second = MlflowEndpoint.open(tmp_path)
        assert second.port != port
        assert second.secret != secret
        second.close()


def test_tasks_of_an_earlier_version_keep_their_tokens_until_the_next_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mlflow").mkdir()
    (tmp_path / "mlflow" / "secret").write_text(SECRET.hex())
    with socket.socket() as free:
        free.bind((HOST, 0))
        (tmp_path / "mlflow" / "port").write_text(str(free.getsockname()[1]))
    for _ in range(3):
        door = MlflowEndpoint.open(tmp_path)
        assert door.secret == SECRET
        door.close()
    (tmp_path / "boot").write_text("another")
    monkeypatch.setattr(module, "_BOOT_ID", tmp_path / "boot")
    door = MlflowEndpoint.open(tmp_path)
    assert door.secret != SECRET
    door.close()


SQUAT = [
    (family, address, options)
    for family, address in ((socket.AF_INET, HOST), (socket.AF_INET, ""), (socket.AF_INET6, "::"))
    for options in ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT))
]


def squat(port: int) -> list[str]:
    """Try every way to listen at a port that another user holds; return those that succeeded."""
    worked = []
    for family, address, options in SQUAT:
        with socket.socket(family) as taken:
            for option in options:
                taken.setsockopt(socket.SOL_SOCKET, option, 1)
            try:
                taken.bind((address, port))
                taken.listen()
                worked.append(f"{address} {options}")
            except OSError:
                continue
    return worked


@needs_root
@pytest.mark.parametrize("connected", [False, True])
def test_no_other_user_can_listen_at_the_port_of_a_task_when_the_daemon_is_gone(tmp_path: Path, connected: bool) -> None:
    door = MlflowEndpoint.open(tmp_path)
    port = door.port
    if connected:
        # A connection that the daemon closed first stays in TIME_WAIT and blocks a plain bind for a minute.
        with socket.create_connection((HOST, port), timeout=30):
            door.listening.setblocking(True)
            door.listening.accept()[0].close()
    task = [os.dup(descriptor) for descriptor in door.held]
    do_as(STRANGER, lambda: _none(squat(port)))
    door.close()
    do_as(STRANGER, lambda: _none(squat(port)))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port), timeout=30)
    again = MlflowEndpoint.open(tmp_path)
    assert (again.port, again.secret) == (port, door.secret)
    again.close()
    for descriptor in task:
        os.close(descriptor)


def _none(worked: list[str]) -> None:
    assert worked == []


def test_the_door_listens_on_loopback_and_its_files_are_the_owners(tmp_path: Path) -> None:
    door = MlflowEndpoint.open(tmp_path)
    assert door.listening.getsockname()[0] == "127.0.0.1"
    for name in ("port", "secret", "env", "boot", f"held-{door.port}"):
        assert stat.S_IMODE(os.stat(tmp_path / "mlflow" / name).st_mode) == 0o600
    assert len(os.listdir(tmp_path / "mlflow")) == 5
    told = dict(line.removeprefix("export ").split("=", 1) for line in (tmp_path / "mlflow" / "env").read_text().splitlines())
    assert told["MLFLOW_TRACKING_URI"] == f"'{door.uri}'"
    assert speaker_of(door.secret, told["MLFLOW_TRACKING_TOKEN"].strip("'")) == TokenCaller("default")
    door.close()


def test_a_damaged_secret_or_port_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "mlflow").mkdir()
    (tmp_path / "mlflow" / "secret").write_text("beef")
    (tmp_path / "mlflow" / "port").write_text("many")
    door = MlflowEndpoint.open(tmp_path)
    assert len(door.secret) == 32
    assert (tmp_path / "mlflow" / "secret").read_text() == door.secret.hex()
    door.close()


def test_a_run_gets_a_way_in(tmp_path: Path) -> None:
    door = MlflowEndpoint.open(tmp_path)
    job = JobState(JobKey("team", "mnist-7"), "mnist", 7, JobSpec(roles={"worker": TaskRole(command=("true",))}))
    variables = door.variables(job)
    assert variables["MLFLOW_TRACKING_URI"] == door.uri
    assert variables["MLFLOW_EXPERIMENT_NAME"] == "mnist"
    assert speaker_of(door.secret, variables["MLFLOW_TRACKING_TOKEN"]) == TokenCaller("team", "mnist-7")
    door.close()
