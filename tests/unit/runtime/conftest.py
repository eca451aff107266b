"""A clean environment: no variable of a job, unless a test sets it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOREIGN = ("TORCHELASTIC_", "OMPI_", "PMI_", "MPI_")


@pytest.fixture(autouse=True)
def _outside_of_a_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("FAIRWAY_", *FOREIGN)):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def in_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Set the variables and create the folders of an engine; return the run's folder."""
    for name in ("attempt", "shared", "checkpoints"):
        (tmp_path / name).mkdir()
        variable = {"checkpoints": "CHECKPOINT"}.get(name, name.upper())
        monkeypatch.setenv(f"FAIRWAY_{variable}_DIR", str(tmp_path / name))
    for name, value in {"JOB": "mnist-7", "ROLE": "worker", "INDEX": "0", "ATTEMPT": "0", "RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(f"FAIRWAY_{name}", value)
    return tmp_path
