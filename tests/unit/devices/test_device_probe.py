"""The choice of a machine's probe."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairway.devices import device_probe
from fairway.devices.device_probe import EmptyDeviceProbe, pick_probe
from fairway.devices.fake_probe import FakeProbe
from fairway.devices.nvidia_probe import NvidiaProbe
from fairway.errors import UsageError


def test_pretended_devices_where_asked_for(tmp_path: Path) -> None:
    probe = pick_probe("2xT4", tmp_path)
    assert isinstance(probe, FakeProbe)
    assert probe.devices(lambda _: False) == pick_probe("2xT4", tmp_path).devices(lambda _: False)
    assert probe.devices(lambda _: False) != pick_probe("2xT4", tmp_path / "other").devices(lambda _: False)


def test_a_text_that_is_wrong_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        pick_probe("two T4", tmp_path)


def test_none_when_there_is_no_driver_or_none_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(pick_probe("none", tmp_path), EmptyDeviceProbe)
    monkeypatch.setattr(device_probe.NvidiaProbe, "open", classmethod(lambda _: None))
    assert pick_probe("", tmp_path).devices(lambda _: False) == ()


def test_what_is_found_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = NvidiaProbe(object())
    monkeypatch.setattr(device_probe.NvidiaProbe, "open", classmethod(lambda _: ours))
    assert pick_probe(" ", tmp_path) is ours
