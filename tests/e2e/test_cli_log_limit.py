"""Too much output: the newest part is kept, and the output states what is missing."""

from __future__ import annotations

import json

WRITES = """
import os
line = b"x" * 99 + b"\\n"
block = line * 10_000
for number in range(60):
    os.write(1, block)
os.write(1, b"the end\\n")
"""


def test_the_oldest_part_goes_and_logs_and_get_say_how_much(desk) -> None:
    desk.write("much.py", WRITES)
    desk.write("job.yaml", "kind: TrainingJob\nname: much\ncode: .\ncommand: python much.py\nkeep: {log_size: 8Mi}\n")
    assert desk.type("submit", "job.yaml").returncode == 0
    assert desk.type("wait", "much", "--timeout", "60s").returncode == 0
    shown = desk.type("logs", "much")
    assert shown.stdout.endswith(b"the end\n")
    assert 4 << 20 <= len(shown.stdout) <= 8 << 20
    assert set(shown.stdout.splitlines()[:-1]) == {b"x" * 99}, "it begins with a whole line"
    removed = json.loads(desk.type("get", "much", "-o", "json").stdout)["warnings"][0]
    assert b"the oldest 5" in shown.stderr, shown.stderr
    assert b"MiB that worker-0 printed were removed (limit 8Mi" in shown.stderr
    assert "MiB that worker-0 printed were removed (limit 8Mi" in removed
    assert "were removed" in desk.type("get", "much").stdout.decode()
    tail = desk.type("logs", "much", "--tail", "1")
    assert (tail.stdout, tail.stderr) == (b"the end\n", b"")


def test_a_flag_sets_the_limit_and_0_keeps_everything(desk) -> None:
    desk.write("much.py", WRITES)
    assert desk.type("run", "-d", "--log-limit", "16Mi", "--name", "some", "--", "python", "much.py").returncode == 0
    assert desk.type("run", "-d", "--log-limit", "0", "--name", "all", "--", "python", "much.py").returncode == 0
    assert desk.type("wait", "some", "all", "--timeout", "60s").returncode == 0
    assert len(desk.type("logs", "some").stdout) <= 16 << 20
    kept = desk.type("logs", "all")
    assert (len(kept.stdout), kept.stderr) == (60_000_008, b"")
    refused = desk.type("run", "--log-limit", "lots", "--", "true")
    assert refused.returncode == 2
