"""Tokens, and the door that they open."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fairway.api.mlflow.door import Door
from fairway.api.mlflow.token import speaker_of, token_of
from fairway.app.tracking import Speaker
from fairway.spec.job import JobSpec, Role
from fairway.state.job import Job, JobKey

SECRET = b"s" * 32


def test_a_token_says_who_speaks() -> None:
    for who in (Speaker("default", "mnist-7"), Speaker("default.services", "mnist-r1-1"), Speaker("default")):
        assert speaker_of(SECRET, token_of(SECRET, who)) == who


@given(st.integers(min_value=0), st.characters())
def test_a_token_that_was_changed_says_nothing(place: int, letter: str) -> None:
    token = token_of(SECRET, Speaker("default", "mnist-7"))
    place %= len(token)
    changed = token[:place] + letter + token[place + 1 :]
    assert changed == token or speaker_of(SECRET, changed) is None


def test_a_token_of_another_home_says_nothing() -> None:
    assert speaker_of(b"t" * 32, token_of(SECRET, Speaker("default", "mnist-7"))) is None
    assert speaker_of(SECRET, "") is None
    assert speaker_of(SECRET, "x" * 10_000) is None


def test_the_door_stays_where_it_is(tmp_path: Path) -> None:
    first = Door.open(tmp_path)
    port, secret = first.port, first.secret
    first.listening.close()
    second = Door.open(tmp_path)
    assert (second.port, second.secret) == (port, secret)
    second.listening.close()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        third = Door.open(tmp_path)
        assert third.port != port
        assert third.secret == secret
        third.listening.close()


def test_the_door_listens_on_loopback_and_its_files_are_the_owners(tmp_path: Path) -> None:
    door = Door.open(tmp_path)
    assert door.listening.getsockname()[0] == "127.0.0.1"
    for name in ("port", "secret", "env"):
        assert stat.S_IMODE(os.stat(tmp_path / "mlflow" / name).st_mode) == 0o600
    assert len(os.listdir(tmp_path / "mlflow")) == 3
    told = dict(line.removeprefix("export ").split("=", 1) for line in (tmp_path / "mlflow" / "env").read_text().splitlines())
    assert told["MLFLOW_TRACKING_URI"] == f"'{door.uri}'"
    assert speaker_of(door.secret, told["MLFLOW_TRACKING_TOKEN"].strip("'")) == Speaker("default")
    door.listening.close()


def test_a_damaged_secret_or_port_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "mlflow").mkdir()
    (tmp_path / "mlflow" / "secret").write_text("beef")
    (tmp_path / "mlflow" / "port").write_text("many")
    door = Door.open(tmp_path)
    assert len(door.secret) == 32
    assert (tmp_path / "mlflow" / "secret").read_text() == door.secret.hex()
    door.listening.close()


def test_a_run_gets_a_way_in(tmp_path: Path) -> None:
    door = Door.open(tmp_path)
    job = Job(JobKey("team", "mnist-7"), "mnist", 7, JobSpec(roles={"worker": Role(command=("true",))}))
    variables = door.variables(job)
    assert variables["MLFLOW_TRACKING_URI"] == door.uri
    assert variables["MLFLOW_EXPERIMENT_NAME"] == "mnist"
    assert speaker_of(door.secret, variables["MLFLOW_TRACKING_TOKEN"]) == Speaker("team", "mnist-7")
    door.listening.close()
