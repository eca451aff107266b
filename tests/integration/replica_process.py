"""A replica as a process, and functions that send it requests."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class ReplicaProcess:
    """One replica, from ready to its end."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "fairway.serving.replica", "--folder", str(folder), *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.words: list[str] = []
        self.port = 0
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.words.append(line)
            if found := re.search(r"is served at http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                break
        self._reader = threading.Thread(target=lambda: self.words.extend(self.process.stderr), daemon=True)  # type: ignore[arg-type]
        self._reader.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        """Send one request; return status, JSON or bytes, and headers."""
        wire = self.connection()
        sent = json.dumps(body).encode() if isinstance(body, dict | list) else body
        try:
            wire.request(method, path, sent, headers or {})
            return answer_of(wire.getresponse())
        finally:
            wire.close()

    def end(self) -> int:
        """Stop it with SIGTERM; return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


def answer_of(response: http.client.HTTPResponse) -> tuple[int, Any, dict[str, str]]:
    data: Any = response.read()
    headers = {name.lower(): value for name, value in response.getheaders()}
    if headers.get("content-type") == "application/json" and data and "inference-header-content-length" not in headers:
        data = json.loads(data)
    return response.status, data, headers


@contextmanager
def replica(folder: Path, *arguments: str) -> Iterator[ReplicaProcess]:
    """Yield a replica that is ready; it is stopped afterwards."""
    made = ReplicaProcess(folder, *arguments)
    try:
        assert made.port, "".join(made.words)
        yield made
    finally:
        made.end()


def framework_python(name: str) -> str | None:
    """Return the interpreter with a framework; None where its environment cannot be created."""
    made = subprocess.run([ROOT / "scripts" / "framework-venv", name], stdout=subprocess.PIPE, text=True, check=False)
    assert made.returncode == 0 or not os.environ.get("CI"), f"scripts/framework-venv {name} failed"
    return made.stdout.strip() if made.returncode == 0 else None
