"""Megabytes that `pip install fairway` adds to an empty environment, without numpy."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from bench import tell

LIMIT = 80


def main() -> None:
    """Install into an empty environment and measure its size."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        before = _weigh(Path(folder))
        project = Path(__file__).resolve().parents[1]
        subprocess.run([f"{folder}/bin/pip", "install", "-q", str(project)], check=True)
        grown = _weigh(Path(folder)) - before
        numpy = sum(_weigh(path) for path in Path(folder).glob("lib/python3*/site-packages/numpy*"))
    size = (grown - numpy) / 1e6
    tell("base install besides numpy, in MB", size, f"<= {LIMIT}", met=size <= LIMIT)


def _weigh(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    main()
