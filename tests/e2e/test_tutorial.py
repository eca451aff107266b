"""The tutorial as a reader follows it: its files, then its commands one after the other."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def wait_for_step(step: int, folder: Path, environment: dict[str, str]) -> None:
    """Wait until the job has reached this step, as a user does who checks `fairway get` before typing `stop`."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        got = subprocess.run(
            ["fairway", "get", "line", "-o", "json"], cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
        if (json.loads(got.stdout)["progress"]["step"] or 0) >= step:
            return
    pytest.fail(f"the job did not reach step {step}")


@pytest.mark.timeout(300)
def test_every_command_of_the_tutorial_works(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text(blocks("python")[0])
    (folder / "job.yaml").write_text(blocks("yaml")[0])
    tools = Path(sys.executable).parent
    environment = {**os.environ, "FAIRWAY_HOME": str(tmp_path / "home"), "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    environment |= {"FAIRWAY_MACHINE_DIR": str(tmp_path / "machine"), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    commands = [line for block in blocks("console") for line in block.splitlines() if line.startswith("fairway ")]
    assert len(commands) > 10
    printed: dict[str, str] = {}
    first_get = ""
    try:
        for command in commands:
            if command == "fairway stop line --wait":
                wait_for_step(75, folder, environment)
            ended = subprocess.run(
                command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
            )
            printed[command] = ended.stdout + ended.stderr
            first_get = first_get or printed.get("fairway get line", "")
            assert ended.returncode == 0, f"{command}\n{printed[command]}"
    finally:
        subprocess.run(["fairway", "daemon", "stop"], env=environment, capture_output=True, check=False)
    assert "worker 1 of 2: y = " in printed[commands[0]]
    assert "Succeeded" in first_get
    at = re.search(r"going on from step (\d+)", printed["fairway logs line --index 0"])
    assert at is not None
    assert int(at[1]) >= 75, "the work since the last periodic checkpoint, at step 50, was saved"
    assert subprocess.run([sys.executable, "train.py"], cwd=folder, capture_output=True, check=False).returncode == 0
