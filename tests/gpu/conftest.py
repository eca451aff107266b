"""A home and a device for the tests that need a real GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from gpu_home import FAIRWAY, PATIENCE, Command

from fairway.devices.nvidia_probe import NvidiaProbe


@pytest.fixture
def uuid() -> str:
    probe = NvidiaProbe.open()
    if probe is None:
        pytest.skip("no NVIDIA driver on this machine")
    return probe.devices(lambda _: True)[0].uuid


@pytest.fixture
def fairway(tmp_path: Path) -> Iterator[Command]:
    environment = {**os.environ, "FAIRWAY_HOME": str(tmp_path / "home"), "FAIRWAY_MACHINE_DIR": str(tmp_path / "machine")}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [FAIRWAY, *arguments], env=environment, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path, check=False
        )

    yield call
    call("stop", "hold", "--now")
    call("daemon", "stop")
    shutil.rmtree(tmp_path, ignore_errors=True)
