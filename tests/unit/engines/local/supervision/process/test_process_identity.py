"""A process is identified correctly, also when its PID is reused."""

from __future__ import annotations

import os
import signal
import subprocess

from fairway.engines.local.supervision.process.kernel_call import name_process
from fairway.engines.local.supervision.process.process_identity import ProcessIdentity, boot_id, identify, read_status


def test_a_process_is_itself_and_nobody_else() -> None:
    own = identify(os.getpid())
    assert own is not None
    assert own.alive
    assert own.boot == boot_id() != ""
    assert not ProcessIdentity(own.pid, own.start + 1, own.boot).alive
    assert not ProcessIdentity(own.pid, own.start, "another boot").alive


def test_an_identity_survives_a_file() -> None:
    own = identify(os.getpid())
    assert own is not None
    back = ProcessIdentity.from_dict(own.as_dict())
    assert back is not None
    assert (back.pid, back.start, back.boot) == (own.pid, own.start, own.boot)
    for nonsense in (None, [], {}, {"pid": "1", "start": 2, "boot": "b"}):
        assert ProcessIdentity.from_dict(nonsense) is None


def test_signals_reach_the_process_meant_and_no_other() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        identity = identify(child.pid)
        assert identity is not None
        impostor = ProcessIdentity(identity.pid, identity.start + 1, identity.boot)
        assert not impostor.send(signal.SIGKILL)
        assert child.poll() is None
        assert identity.send(signal.SIGTERM)
        assert child.wait(10) == -signal.SIGTERM
        assert not identity.send(signal.SIGTERM)
        assert identify(child.pid) is None


def test_a_zombie_is_not_alive() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    identity = identify(pid)
    assert identity is not None
    assert not identity.alive
    os.waitpid(pid, 0)


def test_names_with_brackets_and_spaces_are_read() -> None:
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        name_process(") Z 1 (")
        os.write(tell, b"+")
        signal.pause()
    os.read(ready, 1)
    try:
        status = read_status(pid)
        assert status is not None
        assert (status.parent, status.dead) == (os.getpid(), False)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(tell)
