"""Messages for programs that could not be started."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from fairway.engines.local.supervision.process.exec_failure import explain


@pytest.mark.parametrize(
    ("stage", "number", "words"),
    [
        ("folder", errno.EACCES, "cannot enter the working folder '/w': permission denied"),
        ("start", errno.EPERM, "cannot set up a process for 'x': operation not permitted"),
        ("program", errno.EACCES, "'x' is not executable"),
        ("program", errno.ENOEXEC, "name its interpreter, for example: bash x"),
        ("program", errno.E2BIG, "longer than the system allows"),
        ("program", errno.EINVAL, "zero byte"),
        ("program", errno.ETXTBSY, "cannot start 'x': text file busy"),
    ],
)
def test_every_reason_has_words(stage: str, number: int, words: str) -> None:
    assert words in explain(stage, number, ["x"], {"PATH": ""}, "/w")


def test_names_on_the_path_of_the_task_are_offered(tmp_path: Path) -> None:
    for name, mode in (("train", 0o755), ("trains", 0o644)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    assert "did you mean 'train'?" in explain("program", errno.ENOENT, ["trainz"], {"PATH": f"/nowhere:{tmp_path}"}, "/w")
    assert "did you mean" not in explain("program", errno.ENOENT, ["trainz"], {"PATH": "/nowhere"}, "/w")
