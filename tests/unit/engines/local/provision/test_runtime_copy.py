"""The copy of the runtime that is injected into tasks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from fairway.engines.local.provision.runtime_copy import provide_runtime
from fairway.version import VERSION


def test_a_task_can_import_the_copy_alone(tmp_path: Path) -> None:
    folder = provide_runtime(tmp_path)
    code = "import fairway, json; print(json.dumps([fairway.__file__, fairway.__version__, fairway.rank()]))"
    # -S: no site-packages, so that only the copy can be found.
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(folder)}, capture_output=True, check=True, cwd="/"
    )
    assert json.loads(done.stdout) == [str(folder / "fairway" / "__init__.py"), VERSION, 0]


def test_it_is_made_once_and_anew_when_the_content_differs(tmp_path: Path) -> None:
    source = tmp_path / "fairway"
    (source / "runtime").mkdir(parents=True)
    for name in ("__init__.py", "version.py", "runtime/__init__.py"):
        (source / name).write_text("A = 1\n")
    first = provide_runtime(tmp_path / "home", source)
    made = (first / "fairway" / "__init__.py").stat().st_ino
    assert provide_runtime(tmp_path / "home", source) == first
    assert (first / "fairway" / "__init__.py").stat().st_ino == made
    (source / "runtime" / "__init__.py").write_text("A = 2\n")
    second = provide_runtime(tmp_path / "home", source)
    assert second != first
    assert (second / "fairway" / "runtime" / "__init__.py").read_text() == "A = 2\n"
    assert sorted(path.name for path in (tmp_path / "home" / "inject").iterdir()) == sorted([first.name, second.name])
