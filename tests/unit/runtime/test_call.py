"""A function submitted by the client is called, and its result is stored."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]


def run(
    tmp_path: Path, function: Any, *args: Any, rank: int = 0, path: list[str] | None = None
) -> tuple[int, dict[str, Any] | None, str]:
    shared, sent = tmp_path / "shared", tmp_path / "sent"
    shared.mkdir(exist_ok=True)
    sent.mkdir(exist_ok=True)
    packed = function if isinstance(function, bytes) else cloudpickle.dumps({"function": function, "args": args, "kwargs": {}})
    (sent / "call.pkl").write_bytes(pickle.dumps({"path": path or [], "call": packed}))
    environment = {**os.environ, "FAIRWAY_SHARED_DIR": str(shared), "FAIRWAY_RANK": str(rank), "FAIRWAY_WORLD_SIZE": "4"}
    done = subprocess.run(
        [sys.executable, "-m", "fairway.runtime.call", "call.pkl"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    kept = shared / f"result-{rank}.pkl"
    return done.returncode, pickle.loads(kept.read_bytes()) if kept.exists() else None, done.stderr


def test_what_it_returns_is_kept_by_rank(tmp_path: Path) -> None:
    assert run(tmp_path, lambda x: {"twice": 2 * x}, 21, rank=3) == (0, {"value": {"twice": 42}, "error": None}, "")


def test_what_it_raises_is_kept_and_shown(tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("no such digit")

    code, kept, said = run(tmp_path, fail)
    assert code == 1
    assert kept is not None
    assert repr(kept["error"]) == "ValueError('no such digit')"
    assert "ValueError: no such digit" in said


def test_an_exit_is_what_it_says(tmp_path: Path) -> None:
    assert run(tmp_path, lambda: sys.exit(75))[0] == 75


def test_what_cannot_be_sent_back_is_a_failure_in_words(tmp_path: Path) -> None:
    code, kept, said = run(tmp_path, lambda: (item for item in ()))
    assert code == 1
    assert kept is not None
    assert "a generator cannot be sent back" in str(kept["error"])
    assert "cannot be sent back" in said


def test_modules_are_found_where_the_caller_found_them(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "sums.py").write_text("def add(a, b): return a + b\n")
    # A function of a module is pickled by its name.
    packed = b"(dS'function'\ncsums\nadd\nsS'args'\n(I1\nI2\ntsS'kwargs'\n(ds."
    assert run(tmp_path, packed, path=[str(folder)])[1] == {"value": 3, "error": None}


def test_outside_of_a_task_it_says_how_it_is_used() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRWAY_")}
    done = subprocess.run(
        [sys.executable, "-m", "fairway.runtime.call", "x"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "usage, inside a task: python -m fairway.runtime.call PAYLOAD\n")
