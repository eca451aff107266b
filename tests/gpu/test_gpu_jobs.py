"""Jobs on a real GPU, through the command line: one device per task, by UUID; other tasks wait, and foreign processes count."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from gpu_home import TORCH_PYTHON, Command, until

pytestmark = pytest.mark.gpu

SHOW = """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
value = torch.ones(4, device="cuda") * (dist.get_rank() + 1)
dist.all_reduce(value)
print("visible", os.environ["CUDA_VISIBLE_DEVICES"], torch.cuda.device_count(), value.sum().item())
dist.destroy_process_group()
"""
HOLD = """
import sys, torch
torch.ones(1, device="cuda")
print("on", flush=True)
sys.stdin.read() if len(sys.argv) > 1 else __import__("time").sleep(600)
"""


def test_run_takes_one_gpu_by_uuid_and_says_so(fairway: Command, uuid: str, tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text(SHOW)
    done = fairway("run", "--", TORCH_PYTHON, "show.py")
    assert done.returncode == 0, done.stderr
    assert f"visible {uuid} 1 4.0" in done.stdout
    assert "each worker takes one GPU of" in done.stderr


def test_a_second_job_waits_for_the_device_and_then_gets_it(fairway: Command, uuid: str, tmp_path: Path) -> None:
    (tmp_path / "hold.py").write_text(HOLD)
    (tmp_path / "show.py").write_text(SHOW)
    gpus = json.loads(fairway("top", "node", "-o", "json").stdout)["nodes"][0]["gpus"]
    assert fairway("run", "-d", "--gpus", str(gpus), "--", TORCH_PYTHON, "hold.py").returncode == 0
    until(fairway, "hold", "Running")
    assert fairway("run", "-d", "--gpus", "1", "--", TORCH_PYTHON, "show.py").returncode == 0
    waiting = until(fairway, "show", "Pending")
    assert waiting["hold"]["reason"] == "gpu", waiting  # type: ignore[index]
    assert "are free" in fairway("why", "show").stdout
    assert fairway("stop", "hold", "--now").returncode == 0
    until(fairway, "show", "Succeeded")


def test_a_foreign_process_on_the_device_counts_as_busy(fairway: Command, uuid: str, tmp_path: Path) -> None:
    (tmp_path / "hold.py").write_text(HOLD)
    (tmp_path / "show.py").write_text(SHOW)
    gpus = json.loads(fairway("top", "node", "-o", "json").stdout)["nodes"][0]["gpus"]
    with subprocess.Popen(
        [TORCH_PYTHON, str(tmp_path / "hold.py"), "stdin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as foreign:
        assert foreign.stdout is not None
        assert foreign.stdout.readline() == b"on\n"
        assert fairway("run", "-d", "--gpus", str(gpus), "--", TORCH_PYTHON, "show.py").returncode == 0
        until(fairway, "show", "Pending")
        why = fairway("why", "show").stdout
        assert f"pid {foreign.pid}" in why, why
        foreign.kill()
    until(fairway, "show", "Succeeded")
