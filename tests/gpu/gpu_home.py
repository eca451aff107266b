"""A home on a machine with a GPU, driven through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

FAIRWAY = str(Path(sys.executable).with_name("fairway"))
TORCH_PYTHON = os.environ.get("FAIRWAY_TEST_TORCH_PYTHON", sys.executable)
PATIENCE = 90.0


Command = Callable[..., subprocess.CompletedProcess[str]]


def until(fairway: Command, name: str, phase: str) -> dict[str, object]:
    """Return the run, once it is in that phase."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        job = json.loads(fairway("get", name, "-o", "json").stdout)
        if job["phase"] == phase:
            return job
        time.sleep(0.05)
    message = f"{name} never got to {phase}: {job}"
    raise AssertionError(message)
