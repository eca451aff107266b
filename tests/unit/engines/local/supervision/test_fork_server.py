"""The fork server stays small: every supervisor is a copy of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fairway

SOURCE = str(Path(fairway.__file__).resolve().parents[1])
LOAD = "import sys; sys.path.insert(0, sys.argv[1]); import fairway.engines.local.supervision.fork_server; "


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-I", "-S", "-c", LOAD + code, SOURCE], capture_output=True, text=True, check=True)
    return done.stdout


def test_it_loads_the_standard_library_and_its_neighbours_only() -> None:
    names = set(run("print(*sys.modules)").split())
    ours = {name for name in names if name.split(".")[0] == "fairway"}
    allowed = {"fairway", "fairway.engines"} | {name for name in ours if f"{name}.".startswith("fairway.engines.local.")}
    assert ours == allowed
    assert {name.split(".")[0] for name in names - ours} <= sys.stdlib_module_names | {"__main__", "sitecustomize"}


def test_it_loads_nothing_heavy() -> None:
    names = set(run("print(*sys.modules)").split())
    heavy = {
        "asyncio",
        "dataclasses",
        "hashlib",
        "inspect",
        "logging",
        "pathlib",
        "subprocess",
        "tempfile",
        "threading",
        "typing",
    }
    assert names & heavy == set()


def test_it_is_small() -> None:
    code = "print([int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('RssAnon')][0])"
    assert int(run(code)) < 10_000, "KiB"
