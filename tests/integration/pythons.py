"""Other interpreters than the one that runs the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def interpreter(version: str) -> str:
    """Return a Python of this version: the current one, one on the path, or one installed by pyenv or uv; else skip the test."""
    if sys.version_info[:2] == tuple(int(part) for part in version.split(".")):
        return sys.executable
    homes = (os.environ.get("PYENV_ROOT", "~/.pyenv") + "/versions", "~/.local/share/uv/python")
    installed = [path for home in homes for path in Path(home).expanduser().glob(f"*{version}.*/bin/python{version}")]
    candidates = [shutil.which(f"python{version}") or "", *map(str, sorted(installed))]
    for candidate in filter(None, candidates):
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    pytest.skip(f"there is no Python {version} on this machine")
