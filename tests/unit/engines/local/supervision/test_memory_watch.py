"""Out-of-memory kills are distinguished from other kills."""

from __future__ import annotations

import pytest

from fairway.engines.local.supervision import memory_watch
from fairway.engines.local.supervision.memory_watch import MemoryWatch, OomKillEvidence


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    says: dict[str, object] = {"count": 5, "log": None}
    monkeypatch.setattr(memory_watch, "_count", lambda: says["count"])
    monkeypatch.setattr(memory_watch, "_kernel_log", lambda: says["log"])
    return says


@pytest.mark.parametrize(
    ("count", "log", "killed", "tail", "blamed"),
    [
        (5, None, True, b"", False),
        (6, None, True, b"", True),
        (6, None, False, b"ValueError", False),
        (6, b"Out of memory: Killed process 77 (python)", True, b"", True),
        (6, b"Out of memory: Killed process 770 (python)", True, b"", False),
        (6, b"nothing of ours", False, b"DataLoader worker (pid 9) is killed by signal: Killed.", True),
        (5, None, False, b"DataLoader worker (pid 9) is killed by signal: Killed.", False),
    ],
)
def test_the_kernel_is_believed(
    kernel: dict[str, object], count: int, log: bytes | None, killed: bool, tail: bytes, blamed: bool
) -> None:
    evidence = OomKillEvidence()
    kernel.update(count=count, log=log)
    assert evidence.blames({77}, killed, tail) is blamed


def test_the_real_kernel_counts_nothing_against_us() -> None:
    assert not OomKillEvidence().blames({1}, True, b"")


def test_a_limit_above_everything_is_never_passed() -> None:
    assert not MemoryWatch(1 << 50).exceeded()
