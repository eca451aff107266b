"""Being asked to end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairway.runtime import stop


@pytest.fixture(autouse=True)
def _handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stop, "_signalled", False)
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
