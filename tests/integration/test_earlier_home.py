"""A home that an earlier version wrote opens without loss: ended and running runs, a service, a queue, numbers."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tarfile
from pathlib import Path

import pytest
from daemon_home import DaemonHome

ARCHIVE = Path(__file__).parents[1] / "data" / "home-format-6.tar.gz"
"""Written by the version that wrote format 6; its daemon was killed while a run and a replica ran."""


def unpack(home: DaemonHome) -> dict[str, str]:
    """Unpack the earlier home to the path of this one; return the content of what its runs have saved and printed."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(home.path.parent, filter="data")
    kept = [*home.path.glob("jobs/*/*/checkpoints/*/*"), *home.path.glob("jobs/*/*/attempts/*/out-0.log")]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


@pytest.mark.timeout(120)
def test_a_home_of_the_format_before_opens_without_loss(home: DaemonHome) -> None:
    files = unpack(home)
    assert len(files) >= 6
    assert set(home.names()) == {"done-2", "failed-1", "stays-1", "huge-1"}
    done = home.get("done-2")
    assert (done["phase"], len(done["tasks"]), done["progress"]["step"]) == ("Succeeded", 2, 3)
    assert done["labels"] == {"team": "vision"}
    failed = home.get("failed-1")
    assert (failed["phase"], failed["outcome"]["exit_code"]) == ("Failed", 7)
    # Its process ended with the machine that the home was copied from: that is reported, and nothing else.
    stays = home.until_phase("stays-1", "Failed", "Running", "Restarting")
    assert stays["progress"]["checkpoint_step"] == 3
    assert "trained" in home.ask("logs", "done-2")
    assert json.loads(home.ask("metrics", "done-2", "-o", "json"))["points"]
    assert json.loads(home.ask("get", "service/echo", "-o", "json"))["name"] == "echo"
    assert "research" in home.ask("queue", "list")
    assert "Submitted" in home.ask("events", "done-2")
    for path, digest in files.items():
        assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == digest
    document = home.document("done", 1)
    assert home.submit(document) == "done-3", "done-1 was deleted, and its number stays taken"
    before = [path for path in (home.path / "backups").iterdir() if path.name.endswith("-6.db")]
    assert len(before) == 1, "the file as it was is kept"


def test_the_copy_made_before_the_change_of_format_can_be_read_by_the_version_that_wrote_it(home: DaemonHome) -> None:
    unpack(home)
    with sqlite3.connect(home.path / "fairway.db") as earlier:
        rows = earlier.execute("SELECT namespace, name, phase, body FROM job ORDER BY id").fetchall()
    home.start_daemon()
    (copy,) = (home.path / "backups").glob("*-6.db")
    with sqlite3.connect(copy) as kept:
        assert kept.execute("PRAGMA user_version").fetchone() == (6,)
        assert kept.execute("SELECT namespace, name, phase, body FROM job ORDER BY id").fetchall() == rows
