"""A separate home and runtime folder, and a daemon with canned answers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairway.testing.fake.fake_daemon import FakeDaemon


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="fw") as runtime:
        os.chmod(runtime, 0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.setenv("FAIRWAY_HOME", str(tmp_path / "home"))
        monkeypatch.delenv("FAIRWAY_NAMESPACE", raising=False)
        monkeypatch.delenv("FAIRWAY_CONTEXT", raising=False)
        (tmp_path / "home").mkdir()
        yield str(tmp_path / "home")


@pytest.fixture
def daemon(home: str) -> Iterator[FakeDaemon]:
    with FakeDaemon(home) as fake:
        yield fake
