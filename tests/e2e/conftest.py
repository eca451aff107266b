"""A newcomer's machine: a home of one's own, a folder with code, and `fairway` as it is typed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

FAIRWAY = str(Path(sys.executable).with_name("fairway"))


@dataclass
class Desk:
    """Where commands are typed."""

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


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    folder = tmp_path / "code"
    folder.mkdir()
    with tempfile.TemporaryDirectory(prefix="fw") as runtime:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FAIRWAY_")},
            "FAIRWAY_HOME": str(tmp_path / "home"),
            "FAIRWAY_MACHINE_DIR": str(tmp_path / "machine"),
            "XDG_RUNTIME_DIR": runtime,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        found = Desk(folder, environment)
        yield found
        for name in found.type("list", "--active", "-o", "name").stdout.decode().split():
            found.type("stop", "--now", "--wait", name)
        found.type("daemon", "stop")
