"""The daemon dies at every act that a crash could cut in two; the next one finds everything and finishes what was asked."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable

import pytest
from daemon_home import DaemonHome, is_alive

from fairway.app import crash

PLACES = [f"{point}:{moment}" for point in crash.POINTS for moment in ("before", "after")]
UNAVAILABLE = 4
MOST = 60
"""Times that a story may pass one place."""


class Story:
    """What a user does one day: each step is repeated, as a user would, when the daemon died under it."""

    def __init__(self, home: DaemonHome, daemon: subprocess.Popen[bytes]) -> None:
        self.home = home
        self.daemon = daemon

    @property
    def dead(self) -> bool:
        return self.daemon.poll() is not None

    def do(self, *words: str, say: str = "", gone: bool = False) -> str:
        """One command. A daemon that dies under it is told of with exit code 4; then the command is given again."""
        for _ in range(2):
            before = self.dead
            ended = self.home.call(*words, say=say)
            if ended.returncode == 0:
                return ended.stdout.strip()
            if gone and ended.returncode == 3:
                return ""
            assert ended.returncode == UNAVAILABLE, f"{words}: {ended.returncode}\n{ended.stderr}\n{self.home.log}"
            assert not before and self.dead, f"{words} failed and no daemon died: {ended.stderr}"
        raise AssertionError(f"{words} failed twice")

    def submit(self, name: str) -> str:
        """A gang of two on two GPUs, with a snapshot of code and a secret."""
        document = self.home.document(name, code=".", secrets=["TOKEN"], role={"resources": {"gpu": 1}})
        path = self.home.write(document)
        before = set(self.home.names())
        if self.dead:
            return self.do("submit", path)
        ended = self.home.call("submit", path)
        if ended.returncode == 0:
            return ended.stdout.strip()
        assert self.dead, ended.stderr
        # The answer was lost. Whether the run was made is seen from the list; it must be there once or not at all.
        made = set(self.home.names()) - before
        assert len(made) <= 1
        return made.pop() if made else self.do("submit", path)

    def live(self) -> None:
        """Everything, from a secret to a deleted run."""
        self.do("secret", "set", "TOKEN", say="open sesame")
        assert self.do("secret", "list", "-o", "name") == "TOKEN"
        first = self.submit("gang")
        self.wait_running(first)
        self.home.tell(first)
        self.home.until_phase(first, "Succeeded")
        second = self.submit("again")
        self.wait_running(second)
        self.do("stop", second)
        self.home.until_phase(second, "Stopped")
        self.do("delete", second, gone=True)
        third = self.submit("third")
        self.wait_running(third)
        self.do("delete", third, gone=True)
        self.home.until(lambda: self.home.names() == [first], "the end of the deleted runs")

    def wait_running(self, run: str) -> None:
        """Both programs have begun, and go on however often the daemon dies."""
        view = self.home.until_phase(run, "Running")
        tasks = [f"{run}/{task['name']}#{task['attempt']}" for task in view["tasks"]]
        assert len(tasks) == 2
        pids = self.home.until_started(*tasks)
        assert all(is_alive(pids[task]) for task in tasks)
        assert len({task["devices"][0] for task in view["tasks"]}) == 2


def live_through(home: DaemonHome, place: str) -> bool:
    """The story with a daemon that dies at a place. Whether it came there."""
    daemon = home.start_child(FAIRWAY_CRASH_AT=place)
    home.until(lambda: home.status()["running"] or daemon.poll() is not None, "the start of the daemon")
    story = Story(home, daemon)
    story.live()
    if daemon.poll() is None:
        return False
    assert daemon.returncode == -signal.SIGKILL
    home.started()
    home.check_nothing_held()
    return True


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_lost_when_the_daemon_dies(make_home: Callable[..., DaemonHome], place: str) -> None:
    for count in range(1, MOST):
        home = make_home(f"home-{count}")
        reached = live_through(home, f"{place}:{count}")
        home.close()
        if not reached:
            assert count > 1, f"nothing reaches {place}"
            return
    raise AssertionError(f"{place} is reached more than {MOST} times: make the story shorter")
