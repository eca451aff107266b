"""Shares of devices, with a script in place of the sharing service."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairway.devices.mps_service import GpuShare, MpsService
from fairway.devices.nvidia_probe import NvidiaProbe
from fairway.errors import RefusedError

GIB = 1 << 30

SERVICE = """#!/bin/sh
echo "$@" >> "$LOG"
if [ "$1" = -d ]; then : > "$CUDA_MPS_PIPE_DIRECTORY/control"; exit 0; fi
[ -e "$CUDA_MPS_PIPE_DIRECTORY/control" ] || exit 1
read word
echo "$word $CUDA_VISIBLE_DEVICES" >> "$LOG"
echo 100.0
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin" / "nvidia-cuda-mps-control"
    program.parent.mkdir()
    program.write_text(SERVICE)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-of-somebody-else")
    return tmp_path / "log"


def test_the_first_share_starts_the_service_and_the_second_finds_it(tmp_path: Path, log: Path) -> None:
    sharing = MpsService(tmp_path / "mps", NvidiaProbe.service)
    sharing.start()
    first = sharing.variables(GpuShare(250, 0, (80 * GIB,)))
    sharing.start()
    second = sharing.variables(GpuShare(500, 8 * GIB, (80 * GIB, 40 * GIB)))
    assert log.read_text().count("-d") == 1
    assert "somebody-else" not in log.read_text()
    assert first["CUDA_MPS_PIPE_DIRECTORY"] == str(tmp_path / "mps" / "pipe")
    assert first["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert first["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=20480M"
    assert second["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=8192M,1=8192M"
    assert second["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.100", "of the larger device"


def test_a_service_that_died_is_started_again(tmp_path: Path, log: Path) -> None:
    sharing = MpsService(tmp_path / "mps", NvidiaProbe.service)
    sharing.start()
    (tmp_path / "mps" / "pipe" / "control").unlink()
    sharing.start()
    assert log.read_text().count("-d") == 2


def test_when_nobody_shares_the_service_ends(tmp_path: Path, log: Path) -> None:
    sharing = MpsService(tmp_path / "mps", NvidiaProbe.service)
    sharing.end()
    assert not log.exists(), "it never ran"
    sharing.start()
    assert sharing.started
    sharing.end()
    assert "quit" in log.read_text()
    assert not (tmp_path / "mps").exists()


def test_without_the_service_frameworks_are_still_told_to_be_modest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    sharing = MpsService(tmp_path / "mps", NvidiaProbe.service)
    sharing.start()
    assert not sharing.available
    assert not sharing.started
    assert sharing.variables(GpuShare(500, 0, (GIB,))) == {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.500",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path, log: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "mps").symlink_to(tmp_path / "theirs")
    with pytest.raises(RefusedError, match="not a folder of this user"):
        MpsService(tmp_path / "mps", NvidiaProbe.service).start()
