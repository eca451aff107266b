"""The logs of a service are followed across all changes of its replicas."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from daemon_home import FAIRWAY, DaemonHome, kill
from test_services import pids_of, service

PROGRAM = """
import http.server, os, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print("asked for", self.path, flush=True)
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    def log_message(self, *_): pass
print("I begin", os.environ["FAIRWAY_JOB"], flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["FAIRWAY_PORT"])), Answer).serve_forever()
"""


class Reader:
    """A command whose output is read as it is written."""

    def __init__(self, home: DaemonHome, *words: str) -> None:
        self.process = subprocess.Popen(
            [FAIRWAY, *words],
            env=home.environment,
            cwd=home.work,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell's background job ignores SIGINT, and would pass that on to the processes it starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))


@contextmanager
def reading(home: DaemonHome, *words: str) -> Iterator[Reader]:
    reader = Reader(home, *words)
    try:
        yield reader
    finally:
        reader.process.kill()
        reader.process.communicate()


def test_following_shows_replicas_that_come_later_and_ends_with_the_service(home: DaemonHome) -> None:
    (home.work / "server.py").write_text(PROGRAM)
    home.ask("serve", "--name", "echo", "--", "python3", str(home.work / "server.py"))
    home.until(lambda: service(home, "echo")["phase"] == "Ready", "the service")
    with (
        reading(home, "logs", "-f", "service/echo", "--grep", "begin") as follower,
        reading(home, "logs", "-f", "service/echo", "--tail", "1") as other,
    ):
        home.until(lambda: follower.lines, "the first replica's line")
        assert follower.lines == ["r1-1 | I begin echo-r1-1\n"]
        home.until(lambda: other.lines, "the last line")
        assert other.lines[0].startswith("r1-1 | asked for /")
        (replica,) = pids_of(home, "server.py")
        kill(replica)
        home.until(lambda: len(follower.lines) == 2, "the line of the replica that replaced it")
        assert follower.lines[1] == "r1-2 | I begin echo-r1-2\n"
        other.process.send_signal(signal.SIGINT)
        assert other.process.wait(10) == 130
        home.ask("delete", "service/echo")
        assert follower.process.wait(30) == 0
    refused = home.call("logs", "service/echo", "--role", "worker")
    assert (refused.returncode, "--role does not apply to the replicas" in refused.stderr) == (2, True)
