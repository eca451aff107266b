"""Orders and their descriptors are transferred completely."""

from __future__ import annotations

import fcntl
import os
import socket

import pytest

from fairway.engines.local.supervision.order import ProcessConditions, TaskCommand, TaskOrder, receive, send


def an_order(**fields: object) -> TaskOrder:
    return TaskOrder(
        **{"task": "t", "folder": "/f", "cwd": "/w", "env": {"A": "1"}, "commands": [TaskCommand(["true"], {"B": "2"})], **fields}
    )


def test_an_order_comes_back_as_it_went_in() -> None:
    conditions = ProcessConditions(5, {"NOFILE": (1, -1)}, (0, 3))
    env = {"BYTES": "\udcff\n", "ß": "é"}
    order = an_order(
        env=env, terminal=True, secrets=["A"], memory_limit=7, cleanup=[["rm", "x"]], umask=0o77, conditions=conditions
    )
    back = TaskOrder.decode(order.encode())
    for name in TaskOrder.__slots__:
        if name not in ("commands", "conditions"):
            assert getattr(back, name) == getattr(order, name), name
    assert [(command.argv, command.env) for command in back.commands] == [(["true"], {"B": "2"})]
    assert back.conditions.as_dict() == {"nice": 5, "limits": {"NOFILE": [1, -1]}, "affinity": [0, 3]}


def test_what_may_be_written_to_a_disk_holds_no_values() -> None:
    public = an_order(env={"TOKEN": "s3cr3t"}).public()
    assert "s3cr3t" not in str(public)
    assert public["commands"] == [{"argv": ["true"], "variables": ["B", "TOKEN"]}]


@pytest.mark.parametrize("count", [0, 1, 200, 450])
@pytest.mark.parametrize("length", [0, 10, 3_000_000])
def test_descriptors_and_text_of_any_length_arrive(count: int, length: int) -> None:
    ours, theirs = socket.socketpair()
    descriptor = os.open(os.devnull, os.O_RDONLY)
    text = os.urandom(length)
    pid = os.fork()
    if pid == 0:
        send(ours, text, [descriptor] * count)
        send(ours, b"next", [])
        os._exit(0)
    received = receive(theirs)
    assert received is not None
    assert received[0] == text
    assert len(received[1]) == count
    assert all(fcntl.fcntl(each, fcntl.F_GETFD) & fcntl.FD_CLOEXEC for each in received[1])
    assert receive(theirs) == (b"next", [])
    os.waitpid(pid, 0)
    ours.close()
    assert receive(theirs) is None
    for each in (*received[1], descriptor):
        os.close(each)
    theirs.close()


@pytest.mark.parametrize("kept", [1, 7, 9, 20])
def test_a_message_cut_short_is_no_message(kept: int) -> None:
    a, b = socket.socketpair()
    send(a, b"x" * 100, [])
    whole = b.recv(1000)
    a.sendall(whole[:kept])
    a.close()
    assert receive(b) is None
    b.close()
