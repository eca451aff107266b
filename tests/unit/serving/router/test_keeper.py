from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fairway.serving.router.keeper import bind, inherit, take_lock


def test_it_stands_on_the_standard_library_alone() -> None:
    code = (
        "import sys; import fairway.serving.router.keeper;"
        "print(sorted(name for name in sys.modules if name.split('.')[0] not in sys.stdlib_module_names"
        " and not name.startswith(('fairway', '_', 'sitecustomize'))))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [name for name in eval(ran.stdout) if "editable" not in name] == []


def test_one_lock_a_folder(tmp_path: Path) -> None:
    take_lock(str(tmp_path))
    with pytest.raises(BlockingIOError):
        take_lock(str(tmp_path))


def test_a_socket_that_nobody_answers_at_is_cleared_away(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "17.sock"))
    assert inherit(str(tmp_path), 0) == (None, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_port_is_taken_by_one(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as listener, pytest.raises(OSError, match="in use"):
        bind("127.0.0.1", listener.getsockname()[1])
