"""Files of third-party source distributions, downloaded once and unpacked beside the environments."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / ".venvs" / "sources"


def unpacked(requirement: str) -> Path:
    """Return the folder of a source distribution: `mpi4py==4.1.2`. Without a download the test is skipped, but never in CI."""
    name = requirement.replace("==", "-")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (FOLDER / name).is_dir():
            _download(requirement, name)
    return FOLDER / name


def _download(requirement: str, name: str) -> None:
    package = requirement.partition("==")[0]
    words = ["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package, "--dest", str(FOLDER), requirement]
    done = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode and not os.environ.get("CI"):
        pytest.skip(f"the sources of {requirement} cannot be downloaded here")
    assert done.returncode == 0, done.stdout
    aside = FOLDER / f".{name}"
    with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
        archive.extractall(aside, filter="data")
    (aside / name).rename(FOLDER / name)
