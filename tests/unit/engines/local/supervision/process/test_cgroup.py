"""Control groups of version 2, on folders with the same layout."""

from __future__ import annotations

from pathlib import Path

from fairway.engines.local.supervision.process import cgroup


def a_tree(root: Path, control: str = "cpu memory pids") -> Path:
    root.mkdir(exist_ok=True)
    (root / "cgroup.procs").touch()
    (root / "cgroup.subtree_control").write_text(control + "\n")
    return root


def test_a_group_is_made_where_memory_can_be_limited(tmp_path: Path) -> None:
    made = cgroup.make("fairway-1", str(a_tree(tmp_path / "top")))
    assert made is not None
    assert Path(made.path).is_dir()
    made.remove()
    assert not Path(made.path).exists()


def test_no_group_is_made_where_memory_cannot_be_limited(tmp_path: Path) -> None:
    assert cgroup.make("fairway-1", str(a_tree(tmp_path / "top", "cpu pids"))) is None
    assert cgroup.make("fairway-1", str(tmp_path / "nothing")) is None


def test_limits_are_written_as_the_kernel_reads_them(tmp_path: Path) -> None:
    for name in ("memory.max", "memory.swap.max", "memory.oom.group", "cpu.max", "cgroup.kill", "cgroup.procs"):
        (tmp_path / name).touch()
    group = cgroup.Cgroup(str(tmp_path))
    group.limit(1 << 20, 1.5)
    group.enter()
    group.kill()
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written == {
        "memory.max": "1048576",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.max": "150000 100000",
        "cgroup.kill": "1",
        "cgroup.procs": "0",
    }


def test_a_controller_that_is_missing_is_no_mistake(tmp_path: Path) -> None:
    group = cgroup.Cgroup(str(tmp_path))
    group.limit(1 << 20, 1.5)
    group.kill()
    assert not group.killed_for_memory()


def test_kills_for_memory_are_counted(tmp_path: Path) -> None:
    group = cgroup.Cgroup(str(tmp_path))
    (tmp_path / "memory.events").write_text("low 0\noom 1\noom_kill 0\n")
    assert not group.killed_for_memory()
    (tmp_path / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
    assert group.killed_for_memory()
