"""Simulated devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairway.devices.fake_probe import FakeProbe, parse
from fairway.errors import UsageError


def test_counts_types_and_memory() -> None:
    devices = parse("4xA100-80GB, 2xT4,H200", "pool")
    assert [(device.index, device.type, device.memory // 10**9) for device in devices] == [
        (0, "A100", 80), (1, "A100", 80), (2, "A100", 80), (3, "A100", 80), (4, "T4", 16), (5, "T4", 16), (6, "H200", 141),
    ]  # fmt: skip
    assert all(device.healthy and not device.busy_with for device in devices)


def test_devices_of_one_pool_are_the_same_for_everybody() -> None:
    first = FakeProbe("2xA100", "machine").devices(lambda _: False)
    second = FakeProbe("2xA100", "machine").devices(lambda _: True)
    other = FakeProbe("2xA100", "another").devices(lambda _: False)
    assert first == second
    assert not {device.uuid for device in first} & {device.uuid for device in other}
    assert len({device.uuid for device in first}) == 2


def test_none_is_none() -> None:
    assert parse("", "pool") == ()
    assert parse("0xA100", "pool") == ()


@pytest.mark.parametrize("text", ["4A100", "4x", "4xA100-80", "4xA100-80GB-x", "-1xT4", "9999xT4"])
def test_what_is_not_understood_is_named(text: str) -> None:
    with pytest.raises(UsageError, match=text):
        parse(text, "pool")


def test_a_broken_device_and_a_file_that_changes(tmp_path: Path) -> None:
    assert [device.healthy for device in parse("3xT4,sick:1", "pool")] == [True, False, True]
    said = tmp_path / "gpus"
    said.write_text("1xT4")
    probe = FakeProbe(f"@{said}", "pool")
    assert [device.healthy for device in probe.devices(lambda _: True)] == [True]
    said.write_text("1xT4,sick:0,busy:0:87")
    (device,) = probe.devices(lambda _: True)
    assert not device.healthy
    assert probe.use() == {device.uuid: 0.87}
