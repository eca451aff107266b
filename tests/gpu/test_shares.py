"""Shares of a real GPU: two tasks at once, each limited in memory and multiprocessors; then the MPS daemon has ended."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from gpu_home import TORCH_PYTHON, Command, until

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-cuda-mps-control") is None, reason="the driver brings no service to share a GPU"),
]

GREEDY = """
import os, sys, time, torch
props = torch.cuda.get_device_properties(0)
taken = []
try:
    while len(taken) < 400:
        taken.append(torch.empty(512 << 20, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError:
    pass
print("processors", props.multi_processor_count, "blocks", len(taken), flush=True)
open(os.environ["MARKS"] + "/on-" + os.environ["FAIRWAY_JOB"], "w").close()
while not os.path.exists(os.environ["MARKS"] + "/go"):
    time.sleep(0.05)
"""
"""Allocates as much memory as it can, half a GiB at a time, and prints how many multiprocessors it sees."""


def _document(folder: Path, name: str, **resources: object) -> str:
    role = {"command": [TORCH_PYTHON, str(folder / "greedy.py")], "resources": {"cpu": 1, **resources}}
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({"kind": "TrainingJob", "name": name, "env": {"MARKS": str(folder)}, "roles": {"worker": role}}))
    return str(path)


def test_two_shares_run_side_by_side_within_their_bounds(fairway: Command, uuid: str, tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text(GREEDY)
    total = json.loads(fairway("top", "node", "-o", "json").stdout)["nodes"][0]["devices"][0]["memory"]
    assert fairway("submit", _document(tmp_path, "quarter", gpu="0.25")).returncode == 0
    assert fairway("submit", _document(tmp_path, "memory", gpu_share="0.5", gpu_memory="8Gi")).returncode == 0
    assert fairway("submit", _document(tmp_path, "toomuch", gpu="0.5")).returncode == 0
    for name in ("quarter", "memory"):
        until(fairway, name, "Running")
    assert until(fairway, "toomuch", "Pending")["hold"]["reason"] == "gpu"  # type: ignore[index]
    (tmp_path / "go").touch()
    told = {}
    for name in ("quarter", "memory", "toomuch"):
        until(fairway, name, "Succeeded")
        words = fairway("logs", name).stdout.split()
        told[name] = (int(words[words.index("processors") + 1]), int(words[words.index("blocks") + 1]))
    blocks = 512 << 20
    assert told["quarter"][1] * blocks <= 0.25 * total
    assert told["memory"][1] * blocks <= 8 << 30
    assert told["quarter"][0] < told["memory"][0], "half the processors are more than a quarter"
    fairway("top", "node")
    assert not [name for name in os.listdir("/tmp") if name.startswith("fairway-mps-")], "nobody shares any more"
