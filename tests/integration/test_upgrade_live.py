"""Another version takes over a home while a job and a service run: neither is restarted, and both are managed afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from daemon_home import DaemonHome

import fairway

ROOT = Path(__file__).parents[2]
EARLIER = "601906e"
"""A commit whose supervisors and routers this version must be able to take over."""
SERVER = """
import http.server, os
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = str(os.getpid()).encode()
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers(); self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(os.environ["FAIRWAY_PORT"])), Answer).serve_forever()
"""


def copied(folder: Path) -> Path:
    """Return a copy of this version with another version number."""
    shutil.copytree(Path(fairway.__file__).parent, folder / "src" / "fairway", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "src" / "fairway" / "version.py").write_text('VERSION = "0.0.1"\n__version__ = VERSION\n')
    return folder / "src"


def committed(folder: Path) -> Path:
    """Return the earlier commit; skip the test in a clone without its history."""
    known = subprocess.run(["git", "cat-file", "-e", f"{EARLIER}^{{commit}}"], cwd=ROOT, capture_output=True, check=False)
    if known.returncode:
        pytest.skip(f"this clone does not have the commit {EARLIER}")
    folder.mkdir()
    packed = folder / "earlier.tar"
    subprocess.run(["git", "archive", "-o", str(packed), EARLIER, "src"], cwd=ROOT, check=True)
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def is_of(pid: int, source: Path) -> bool:
    """Whether a process runs that source."""
    told = Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
    return str(source).encode() in told


@pytest.mark.timeout(180)
@pytest.mark.parametrize("make", [copied, committed])
def test_a_job_and_a_service_live_through_a_change_of_version(home: DaemonHome, tmp_path: Path, make: Any) -> None:
    source = make(tmp_path / "older")
    (home.work / "server.py").write_text(SERVER)
    home.environment["PYTHONPATH"] = str(source)
    run = home.submit(home.document("train", 2))
    home.until_phase(run, "Running")
    home.ask("serve", "--name", "chat", "--replicas", "1..2", "--", sys.executable, str(home.work / "server.py"))

    def service() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(home.persist("get", "service/chat", "-o", "json"))
        return found

    def answer() -> int:
        with urllib.request.urlopen(url, timeout=30) as answered:
            return int(answered.read())

    home.until(lambda: service()["ready_replicas"] == 1, "the service")
    url = service()["url"]
    replica, before = answer(), home.get(run)
    started = home.until_started(f"{run}/worker-0#0", f"{run}/worker-1#0")
    supervisor, daemon = home.supervisor(f"{run}/worker-0#0"), int(home.status()["pid"])
    assert is_of(daemon, source), "the earlier version does not run"
    assert is_of(supervisor, source)
    home.ask("daemon", "stop")
    assert answer() == replica, "the endpoint goes on without a daemon"
    del home.environment["PYTHONPATH"]
    after = home.get(run)
    assert not is_of(int(home.status()["pid"]), source), "the later version does not run"
    assert after["phase"] == "Running"
    assert [task["started"] for task in after["tasks"]] == [task["started"] for task in before["tasks"]]
    assert home.started() == started, "a task was started again"
    assert answer() == replica
    home.until(lambda: service()["ready_replicas"] == 1, "the service is known")
    assert service()["url"] == url
    home.ask("scale", "service/chat", "2")
    home.until(lambda: service()["ready_replicas"] == 2, "another replica")
    home.until(lambda: {answer() for _ in range(8)} > {replica}, "both answer")
    home.tell(run)
    home.until_phase(run, "Succeeded")
    home.ask("delete", "service/chat")
    home.until(lambda: not os.path.exists(f"/proc/{replica}"), "the earlier replica ends")
