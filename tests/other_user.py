"""A second user of the machine for a test: a child process with another user id. Needs root."""

from __future__ import annotations

import encodings.idna  # noqa: F401 - the other user may not be able to read where Python lies
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

STRANGER = 65_534
NEIGHBOUR = 54_321

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as two users")


@contextmanager
def public_folder() -> Iterator[Path]:
    """Create a folder like /tmp: all users can create files in it, and only their owners can remove them."""
    folder = Path(tempfile.mkdtemp(prefix="fairway-public-"))
    folder.chmod(0o1777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def do_as(user: int, act: Callable[[], object]) -> None:
    """Do something as another user, to the end. An exception there fails the test here."""
    pid = _fork(user, act)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, f"see above what failed as user {user}"


@contextmanager
def acting_as(user: int, act: Callable[[], object]) -> Iterator[None]:
    """Do something as another user, and keep that process alive, with everything it holds, until the end of the block."""
    read, write = os.pipe()

    def act_and_wait() -> None:
        act()
        os.write(write, b"+")
        signal.pause()

    pid = _fork(user, act_and_wait)
    os.close(write)
    try:
        assert os.read(read, 1) == b"+", f"see above what failed as user {user}"
        yield
    finally:
        os.close(read)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _fork(user: int, act: Callable[[], object]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        os.umask(0o022)
        act()
        code = 0
    except BaseException:  # noqa: BLE001 - the child must end here, and the test's own process goes on
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
