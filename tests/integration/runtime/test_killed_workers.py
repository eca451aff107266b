"""Real processes that share work and are killed in the middle of it: nothing is skipped, nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

WORKER = """
import os, sys, fairway
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
die_after = int(sys.argv[2])
seen = 0
for shard in fairway.shards(400, size=10):
    for i in shard:
        os.write(log, b"%d\\n" % i)
        seen += 1
        if seen == die_after:
            os.kill(os.getpid(), 9)
"""

SAVER = """
import os, sys, fairway
for step in range(1, 100000):
    with fairway.checkpoint.save(step) as folder:
        (folder / "model.bin").write_bytes(b"%d" % step * 5000)
    os.write(1, b"%d\\n" % step)
"""


def environment(folder: Path, **more: str) -> dict[str, str]:
    for name in ("attempt", "shared", "checkpoints"):
        (folder / name).mkdir(exist_ok=True)
    given = {"FAIRWAY_JOB": "a-1", "FAIRWAY_SHARED_DIR": f"{folder}/shared", "FAIRWAY_ATTEMPT_DIR": f"{folder}/attempt"}
    return {**os.environ, **given, "FAIRWAY_CHECKPOINT_DIR": f"{folder}/checkpoints", "FAIRWAY_RANK": "0", **more}


def start(folder: Path, name: str, die_after: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WORKER, str(folder / name), str(die_after)], env=environment(folder))


def items(folder: Path, name: str) -> list[int]:
    path = folder / name
    return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.mark.parametrize("deaths", [(35,), (1, 10, 11), (95, 95)])
def test_the_survivor_does_what_the_dead_left(tmp_path: Path, deaths: tuple[int, ...]) -> None:
    dying = [start(tmp_path, f"dying-{number}", after) for number, after in enumerate(deaths)]
    survivor = start(tmp_path, "survivor", 10**9)
    for worker in dying:
        worker.wait(60)
    assert survivor.wait(60) == 0
    done = Counter(items(tmp_path, "survivor"))
    for number in range(len(deaths)):
        done.update(items(tmp_path, f"dying-{number}"))
    assert set(done) == set(range(400))
    twice = {item // 10 for item, times in done.items() if times > 1}
    assert len(twice) <= len(deaths), "only the shard in the hands of a worker that died is done again"


def test_when_all_die_the_next_start_goes_on(tmp_path: Path) -> None:
    for attempt in range(30):
        worker = start(tmp_path, f"attempt-{attempt}", 57)
        if worker.wait(60) == 0:
            break
        assert worker.returncode == -signal.SIGKILL
    done = [item for number in range(attempt + 1) for item in items(tmp_path, f"attempt-{number}")]
    assert set(done) == set(range(400))
    assert attempt == 7, "57 items end in the sixth shard, so each start but the last finishes five or six"


def test_many_workers_never_share_a_shard(tmp_path: Path) -> None:
    workers = [start(tmp_path, f"worker-{number}", 10**9) for number in range(6)]
    assert [worker.wait(60) for worker in workers] == [0] * 6
    done = [item for number in range(6) for item in items(tmp_path, f"worker-{number}")]
    assert sorted(done) == list(range(400))


def test_a_process_killed_while_saving_leaves_the_newest_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairway.runtime import checkpoint

    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    for round_number in range(8):
        saver = subprocess.Popen([sys.executable, "-c", SAVER], env=environment(tmp_path), stdout=subprocess.PIPE)
        assert saver.stdout is not None
        told = [saver.stdout.readline() for _ in range(3)]
        deadline = time.monotonic() + round_number * 0.0007
        while time.monotonic() < deadline:
            pass
        saver.kill()
        told += saver.stdout.read().splitlines(keepends=True)
        saver.stdout.close()
        saver.wait()
        last_told = max(int(line) for line in told if line.endswith(b"\n"))
        found = checkpoint.latest(deep=True)
        assert found is not None
        assert found.step >= last_told, "a checkpoint that save() had promised is gone"
        assert (found.path / "model.bin").read_bytes() == b"%d" % found.step * 5000
