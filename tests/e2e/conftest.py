"""A new user's machine: a separate home, a folder with code, and `fairway` as it is typed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

FAIRWAY = str(Path(sys.executable).with_name("fairway"))


@dataclass
class Desk:
    """A folder and an environment in which commands are run."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def type(self, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run `fairway WORDS` and wait."""
        return subprocess.run(
            [FAIRWAY, *words], cwd=self.folder, env=self.environment, input=given, capture_output=True, timeout=100, check=False
        )

    def write(self, name: str, text: str) -> None:
        """Put a file into the folder."""
        (self.folder / name).write_text(text)


@contextmanager
def at_a_desk(folder: Path) -> Iterator[Desk]:
    """Yield a desk with a separate home; at the end no process of it runs any more."""
    (folder / "code").mkdir()
    with tempfile.TemporaryDirectory(prefix="fw") as runtime:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FAIRWAY_")},
            "FAIRWAY_HOME": str(folder / "home"),
            "FAIRWAY_MACHINE_DIR": str(folder / "machine"),
            "XDG_RUNTIME_DIR": runtime,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        found = Desk(folder / "code", environment)
        yield found
        for name in found.type("list", "--active", "-o", "name").stdout.decode().split():
            found.type("stop", "--now", "--wait", name)
        found.type("daemon", "stop")


@pytest.fixture(scope="module")
def shared_desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with at_a_desk(tmp_path_factory.mktemp("desk")) as found:
        yield found


@pytest.fixture
def desk(shared_desk: Desk, tmp_path: Path) -> Desk:
    """The same home for all tests of a file, because a daemon takes a moment to start; a folder for each test."""
    (tmp_path / "code").mkdir()
    return Desk(tmp_path / "code", dict(shared_desk.environment))


@pytest.fixture
def own_desk(tmp_path: Path) -> Iterator[Desk]:
    """A home for one test alone."""
    with at_a_desk(tmp_path) as found:
        yield found
