"""The import contracts of pyproject.toml hold, and each of them can fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from source import PACKAGE, ROOT

SEEDS = {
    "layers: a layer imports upwards": ("units/seed.py", "import fairway.spec.job", "Data flows one way"),
    "layers: siblings import each other": ("launch/seed.py", "import fairway.plan.action", "Data flows one way"),
    "layers: a package without a place": ("odds/__init__.py", "", "Data flows one way"),
    "layers: the cli hides it in a function": ("app/seed.py", "def f():\n    import fairway.engines", "Data flows one way"),
    "acyclic: two modules need each other": ("state/seed.py", "import fairway.state.other", "No cycles between siblings"),
    "pure: a clock in plan": ("plan/seed.py", "import time", "The pure packages do no I/O"),
    "pure: asyncio in views, for types only": (
        "views/seed.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio",
        "The pure packages do no I/O",
    ),
    "pure: os in spec, hidden in a function": ("spec/seed.py", "def f():\n    import os", "The pure packages do no I/O"),
    "runtime: a dependency": ("runtime/seed.py", "import pydantic", "What goes into a task stands alone"),
    "contract: spec uses what writes": ("spec/seed.py", "import fairway.runtime.metrics", "know the names alone"),
    "engines: an engine knows a store": ("engines/local/seed.py", "import fairway.stores.sqlite", "unaware of each other"),
    "sdk: it reaches into the application": ("sdk/seed.py", "import fairway.app.port.port", "The SDK knows the words"),
    "sqlite: a second door": ("app/seed.py", "import sqlite3", "One door to SQLite"),
    "aiohttp: a second door": ("engines/kubernetes/seed.py", "import aiohttp", "One door to the Kubernetes API"),
}


def lint(source: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter over a tree, with this project's contracts."""
    program = Path(sys.executable).parent / "lint-imports"
    return subprocess.run(
        [str(program), "--config", str(ROOT / "pyproject.toml"), "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(source), "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_contract_is_kept(tmp_path: Path) -> None:
    ended = lint(PACKAGE.parent, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def skeleton(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree for tests to break."""
    folder = tmp_path_factory.mktemp("skeleton")
    shutil.copytree(PACKAGE, folder / "fairway", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize("seed", SEEDS)
def test_a_violation_is_caught(skeleton: Path, tmp_path: Path, seed: str) -> None:
    place, text, contract = SEEDS[seed]
    spoilt = [skeleton / "fairway" / place]
    if seed.startswith("acyclic"):
        spoilt.append(spoilt[0].with_name("other.py"))
        spoilt[1].write_text("import fairway.state.seed\n")
    spoilt[0].parent.mkdir(exist_ok=True)
    spoilt[0].write_text(f'"""A seed."""\n{text}\n')
    try:
        ended = lint(skeleton, tmp_path)
    finally:
        for path in spoilt:
            path.unlink()
        if place.startswith("odds"):
            spoilt[0].parent.rmdir()
    broken = [line for line in ended.stdout.splitlines() if " BROKEN" in line]
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert any(contract in line for line in broken), ended.stdout


def test_every_contract_has_a_seed() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert {contract["id"] for contract in contracts} == {seed.split(":")[0] for seed in SEEDS}


def test_ruff_sees_what_import_linter_cannot(tmp_path: Path) -> None:
    place = tmp_path / "src" / "fairway" / "plan" / "seed.py"
    place.parent.mkdir(parents=True)
    place.write_text(
        '"""A seed."""\n\nimport datetime\n\nNOW = datetime.datetime.now(datetime.UTC)\nTEXT = open("file").read()\n'
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    program = Path(sys.executable).parent / "ruff"
    ended = subprocess.run(
        [str(program), "check", "--no-cache", "--output-format", "concise", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "TID251 `datetime.datetime.now` is banned" in ended.stdout
    assert "PTH123" in ended.stdout
