"""Reads the script files of a command, to see which launcher they call."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from fairway.runtime.regular_file import open_regular
from fairway.units.launcher import LauncherScript, Read

LONGEST = 64 * 1024
"""Limit of bytes read of a script."""

_SHEBANG = re.compile(r"#!\s*(\S*/)?(env\s+(-S\s*)?)?(ba|da|z)?sh\b")


def reader(folder: Path | None) -> Read:
    """Return a reader of scripts in the folder in which commands start; without a folder it reads none."""
    return _nothing if folder is None else of_text(lambda path: _beginning(folder / path))


def of_text(beginning: Callable[[str], bytes | None]) -> Read:
    """Return a reader of scripts based on a function that returns the first bytes of a file."""

    def read(file: LauncherScript) -> str | None:
        content = beginning(file.path)
        if content is None or b"\0" in content:
            return None
        text = content.decode(errors="replace")
        return text if file.by_shell or _SHEBANG.match(text) else None

    return read


def _nothing(_file: LauncherScript) -> str | None:
    return None


def _beginning(path: Path) -> bytes | None:
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return file.read(LONGEST)
    except (OSError, ValueError):
        return None
