"""All processes of a task are found, whatever they do to hide."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairway.engines.local.supervision.process import descendant
from fairway.engines.local.supervision.process.process_identity import identify

TREE = "import subprocess, sys, time\nprint(subprocess.Popen(['sleep', '600'], env={}).pid, flush=True)\ntime.sleep(600)"


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Start a process that carries the mark, with a child process that does not."""
    env = {"FAIRWAY_ATTEMPT_DIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-I", "-c", TREE], stdout=subprocess.PIPE, env=env, start_new_session=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        yield parent.pid, child
        descendant.end_leftovers(
            str(tmp_path), [identity for pid in (parent.pid, child) if (identity := identify(pid))], time.monotonic() + 5
        )


def test_descendants_come_parents_first(tree: tuple[int, int]) -> None:
    found = descendant.descendants(os.getpid())
    assert [pid for pid in found if pid in tree] == list(tree)


def test_descendants_are_found_where_the_kernel_does_not_list_children(
    tree: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descendant, "_children", lambda _pid: None)
    assert [pid for pid in descendant.descendants(os.getpid()) if pid in tree] == list(tree)


def test_leftovers_are_found_by_their_mark_and_their_family(tmp_path: Path, tree: tuple[int, int]) -> None:
    assert {identity.pid for identity in descendant.find_leftovers(str(tmp_path), [])} == set(tree)
    assert descendant.find_leftovers(str(tmp_path / "other"), []) == []
    assert descendant.find_leftovers(str(tmp_path)[:-1], []) == []


def test_leftovers_are_found_by_their_session_when_the_leader_is_known(tmp_path: Path, tree: tuple[int, int]) -> None:
    leader = identify(tree[0])
    assert leader is not None
    assert {identity.pid for identity in descendant.find_leftovers("/another/folder", [leader])} == set(tree)


def test_leftovers_are_ended(tmp_path: Path, tree: tuple[int, int]) -> None:
    assert descendant.end_leftovers(str(tmp_path), [], time.monotonic() + 10)
    assert descendant.find_leftovers(str(tmp_path), []) == []


def test_we_never_end_ourselves(tmp_path: Path) -> None:
    own = identify(os.getpid())
    assert own is not None
    assert os.getpid() not in {identity.pid for identity in descendant.find_leftovers(str(tmp_path), [own])}


def test_memory_is_added_up(tree: tuple[int, int]) -> None:
    both = descendant.resident_bytes(tree)
    assert 0 < descendant.resident_bytes([tree[0]]) < both
    assert 0 < descendant.proportional_bytes(tree) <= both
    assert descendant.resident_bytes([2**22 + 5]) == 0


@contextlib.contextmanager
def processes(*environments: dict[str, str]) -> Iterator[list[int]]:
    """Start processes with these environments, which live until the end of the block."""
    pipe = subprocess.PIPE
    started = [subprocess.Popen(["/bin/cat"], env=env, stdin=pipe, stdout=pipe, bufsize=0) for env in environments]
    for process in started:
        # The kernel shows the environment only once the program runs.
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b".")
        assert process.stdout.read(1) == b"."
    try:
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.communicate()


GIVEN = {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "mnist-7", "OMPI_COMM_WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("environments", "seen"),
    [
        ([GIVEN], (0, False)),
        ([{}], (0, False)),
        ([{**GIVEN, "TORCHELASTIC_RUN_ID": "none", "RANK": "0", "WORLD_SIZE": "1"}], (1, True)),
        ([{**GIVEN, "TORCHELASTIC_RUN_ID": "none"}], (2, False)),
        ([{**GIVEN, "PMIX_NAMESPACE": "a@1", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"}], (3, True)),
        ([{"TORCHELASTIC_RUN_ID": "a", "RANK": rank, "WORLD_SIZE": size} for rank, size in ("12", "01")], (2, False)),
        ([{"TORCHELASTIC_RUN_ID": "a", "RANK": rank, "WORLD_SIZE": "2"} for rank in "10"], (2, True)),
        ([{"TORCHELASTIC_RUN_ID": "a", "RANK": "0", "WORLD_SIZE": "many"}], (0, False)),
    ],
)
def test_the_world_of_a_launcher_inside_the_task_is_seen(environments: list[dict[str, str]], seen: tuple[int, bool]) -> None:
    watch = descendant.LauncherWorldWatch(GIVEN)
    with processes(*environments) as pids:
        watch.look([*pids, 1 << 30])
    assert (watch.size, watch.leads) == seen
