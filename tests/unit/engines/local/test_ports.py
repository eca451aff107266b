"""Ports are held machine-wide and free when handed out."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fairway.engines.local import ports as module
from fairway.engines.local.locks import MachineFolder
from fairway.engines.local.ports import Ports, can_bind, ephemeral_range


@pytest.fixture
def ports(tmp_path: Path) -> Ports:
    return Ports(MachineFolder(tmp_path / "machine"))


def test_ports_are_free_distinct_and_outside_the_range_of_the_kernel(ports: Ports) -> None:
    leases = [ports.take(4) for _ in range(5)]
    found = [port for lease in leases if lease for port in lease.ports]
    assert len(set(found)) == 20
    low, high = ephemeral_range()
    assert not any(low <= port <= high for port in found)
    assert all(can_bind(port) for port in found)
    for lease in leases:
        assert lease is not None
        os.close(lease.descriptor)


def test_a_port_is_held_until_its_lease_ends(ports: Ports) -> None:
    first = ports.take(3)
    assert first is not None
    second = ports.take(3, preferred=first.ports)
    assert second is not None
    assert not set(first.ports) & set(second.ports)
    os.close(first.descriptor)
    os.close(second.descriptor)
    third = ports.take(3, preferred=first.ports)
    assert third is not None
    assert third.ports == first.ports
    os.close(third.descriptor)


def test_a_port_that_somebody_listens_on_is_not_handed_out(ports: Ports) -> None:
    wanted = ports.take(3)
    assert wanted is not None
    os.close(wanted.descriptor)
    with socket.create_server(("127.0.0.1", wanted.ports[1])):
        other = ports.take(3, preferred=wanted.ports)
    assert other is not None
    assert wanted.ports[1] not in other.ports
    os.close(other.descriptor)


def test_when_there_are_none_nothing_is_taken(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_candidates", lambda: iter([20001, 20002]))
    assert ports.take(3) is None
    some = ports.take(2)
    assert some is not None
    os.close(some.descriptor)


def test_a_kernel_that_takes_every_port_leaves_us_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ephemeral_range", lambda: (1024, 65535))
    assert next(iter(module._candidates())) >= module.LOWEST
