"""Ports are reserved across the machine and free when handed out."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from other_user import NEIGHBOUR, STRANGER, acting_as, do_as, needs_root, public_folder

from fairway.engines.local import port_lease as module
from fairway.engines.local.file_lock import release, try_lock
from fairway.engines.local.machine_folder import MachineFolder
from fairway.engines.local.port_lease import PortLeases, can_bind, ephemeral_range


@pytest.fixture
def ports(tmp_path: Path) -> PortLeases:
    return PortLeases(MachineFolder(tmp_path / "machine"))


def test_ports_are_free_distinct_and_outside_the_range_of_the_kernel(ports: PortLeases) -> None:
    leases = [ports.take(4) for _ in range(5)]
    found = [port for lease in leases if lease for port in lease.ports]
    assert len(set(found)) == 20
    low, high = ephemeral_range()
    assert not any(low <= port <= high for port in found)
    assert all(can_bind(port) for port in found)
    for lease in leases:
        assert lease is not None
        release(*lease.descriptors)


def test_a_port_is_held_until_its_lease_ends(ports: PortLeases) -> None:
    first = ports.take(3)
    assert first is not None
    second = ports.take(3, preferred=first.ports)
    assert second is not None
    assert not set(first.ports) & set(second.ports)
    release(*first.descriptors)
    release(*second.descriptors)
    third = ports.take(3, preferred=first.ports)
    assert third is not None
    assert third.ports == first.ports
    release(*third.descriptors)


def test_a_port_that_somebody_listens_on_is_not_handed_out(ports: PortLeases) -> None:
    wanted = ports.take(3)
    assert wanted is not None
    release(*wanted.descriptors)
    with socket.create_server(("127.0.0.1", wanted.ports[1])):
        other = ports.take(3, preferred=wanted.ports)
    assert other is not None
    assert wanted.ports[1] not in other.ports
    release(*other.descriptors)


def test_when_there_are_none_nothing_is_taken(ports: PortLeases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_candidates", lambda: iter([20001, 20002]))
    assert ports.take(3) is None
    some = ports.take(2)
    assert some is not None
    release(*some.descriptors)


def test_a_kernel_that_takes_every_port_leaves_us_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ephemeral_range", lambda: (1024, 65535))
    assert next(iter(module._candidates())) >= module.LOWEST


@pytest.fixture
def public() -> Iterator[Path]:
    with public_folder() as folder:
        yield folder


def lock_all(path: Path, kind: int) -> None:
    """Lock a whole file until the process ends."""
    descriptor = os.open(path, os.O_RDONLY if kind == fcntl.F_RDLCK else os.O_RDWR)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0))


@needs_root
def test_ports_of_another_user_are_left_alone(public: Path) -> None:
    first = PortLeases(MachineFolder(public / "machine")).take(3)
    assert first is not None

    def check() -> None:
        other = PortLeases(MachineFolder(public / "machine")).take(3, preferred=first.ports)
        assert other is not None
        assert not set(other.ports) & set(first.ports)

    do_as(STRANGER, check)
    release(*first.descriptors)


@needs_root
@pytest.mark.parametrize("layout", ["own", "earlier"])
def test_a_user_who_holds_every_port_delays_nobody(public: Path, layout: str) -> None:
    def hold() -> None:
        if layout == "own":
            descriptor, path = (folder := MachineFolder(public / "machine")).create()
            lock_all(folder.publish(descriptor, path, "ports"), fcntl.F_WRLCK)
        else:
            (public / "machine").mkdir()
            (public / "machine").chmod(0o1777)
            (public / "machine" / "ports").touch()
            (public / "machine" / "ports").chmod(0o666)
            lock_all(public / "machine" / "ports", fcntl.F_WRLCK)

    with acting_as(STRANGER, hold):
        began = time.monotonic()
        leases = [PortLeases(MachineFolder(public / "machine")).take(4) for _ in range(3)]
        assert time.monotonic() - began < 20
        found = [port for lease in leases if lease is not None for port in lease.ports]
        assert len(set(found)) == 12
        for lease in leases:
            assert lease is not None
            release(*lease.descriptors)


@needs_root
def test_shared_locks_on_a_users_file_cost_that_file_alone(public: Path) -> None:
    ports = PortLeases(MachineFolder(public / "machine"))
    first = ports.take(3)
    assert first is not None

    def lock() -> None:
        for start, length in ((0, min(first.ports)), (max(first.ports) + 1, 0)):
            descriptor = os.open(public / "machine-0" / "ports", os.O_RDONLY)
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, start, length, 0))

    with acting_as(STRANGER, lock):
        second, third = ports.take(3, first.ports), ports.take(3)
        assert second is not None
        assert third is not None
        assert len({*first.ports, *second.ports, *third.ports}) == 9
        assert len(list((public / "machine-0").iterdir())) == 3

        def check() -> None:
            other = PortLeases(MachineFolder(public / "machine")).take(3, preferred=second.ports)
            assert other is not None
            assert not set(other.ports) & set(second.ports), "others see these leases too"

        do_as(NEIGHBOUR, check)
        release(*second.descriptors, *third.descriptors, *first.descriptors)
        again = ports.take(2)
        assert again is not None
        assert len(list((public / "machine-0").iterdir())) == 2, "the files of ended leases are removed"
        release(*again.descriptors)


@needs_root
@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "closed"])
def test_hostile_files_in_place_of_the_shared_file_are_ignored(public: Path, kind: str) -> None:
    def plant() -> None:
        (public / "machine").mkdir()
        (public / "machine").chmod(0o1777)
        for path in (public / "machine" / "ports", MachineFolder(public / "machine").own() / "ports"):
            if kind == "pipe":
                os.mkfifo(path)
            elif kind == "folder":
                path.mkdir()
            elif kind == "link":
                path.symlink_to("/dev/zero")
            else:
                path.touch(mode=0o000)

    do_as(STRANGER, plant)

    def check() -> None:
        folder = MachineFolder(public / "machine")
        began = time.monotonic()
        lease = PortLeases(folder).take(3)
        assert time.monotonic() - began < 10
        assert lease is not None
        assert folder.warnings

    do_as(NEIGHBOUR, check)


def test_ports_of_an_earlier_version_are_left_alone_and_see_ours(tmp_path: Path, ports: PortLeases) -> None:
    (tmp_path / "machine").mkdir()
    old = os.open(tmp_path / "machine" / "ports", os.O_RDWR | os.O_CREAT, 0o666)
    wanted = ports.take(3)
    assert wanted is not None
    assert not try_lock(old, wanted.ports[0])
    release(*wanted.descriptors)
    assert try_lock(old, wanted.ports[1])
    other = ports.take(3, preferred=wanted.ports)
    assert other is not None
    assert wanted.ports[1] not in other.ports
    release(*other.descriptors)
    os.close(old)
