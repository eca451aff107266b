"""A service that is open to other machines, by the command line and from Python: keys, TLS, refusals, warnings."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_home import DaemonHome

from fairway.app.system.clock import SystemClock
from fairway.serving.router.access import self_signed
from fairway.serving.router.access.certificate import read_certificate

SERVER = """\
import http.server, os

class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        said = "\\n".join(f"{name}: {value}" for name, value in self.headers.items()).encode()
        print("asked", dict(self.headers), flush=True)
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_POST = do_GET

http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["FAIRWAY_PORT"])), Answer).serve_forever()
"""

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl program")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[DaemonHome]:
    found = DaemonHome(tmp_path)
    (found.work / "server.py").write_text(SERVER)
    yield found
    found.close()


def serve(home: DaemonHome, *flags: str) -> subprocess.CompletedProcess[str]:
    return home.call("serve", "--name", "door", *flags, "--", sys.executable, str(home.work / "server.py"))


def found(home: DaemonHome) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(home.ask("get", "service/door", "-o", "json"))
    return shown


def run_example(home: DaemonHome, key: str) -> str:
    """Run the example command that `get` prints in a shell; return its output."""
    line = found(home)["example"]
    environment = {**os.environ, "FAIRWAY_KEY": key}
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=30, env=environment)
    return done.stdout


def test_the_line_that_is_printed_works_and_the_key_stays_hidden(home: DaemonHome) -> None:
    done = serve(home, "--bind", "0.0.0.0", "--tls", "self-signed", "--key", "ci", "--host", "models.example.org")
    assert done.returncode == 0, done
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("export FAIRWAY_KEY=")]
    key = line.partition("=")[2]
    assert done.stdout.startswith("https://127.0.0.1:")
    answer = run_example(home, key)
    assert "x-forwarded-proto: https" in answer
    assert "authorization" not in answer.lower()
    assert "not valid" in run_example(home, "wrong")

    # Neither the key nor its digest is in anything that is stored, shown or logged.
    for path in home.path.rglob("*"):
        if path.is_file():
            assert key.encode() not in path.read_bytes(), path
    digest = json.loads((home.path / "routers" / "default.door" / "keys.json").read_bytes())[0]["rule"]["digest"]
    shown = home.ask("get", "service/door", "-o", "json") + home.ask("key", "list", "door", "-o", "json")
    shown += home.ask("events", "service/door") + home.ask("logs", "service/door")
    assert digest not in shown
    assert key not in shown
    assert "KeyCreated" in shown

    # The load test creates a key for itself, and revokes it.
    bench = json.loads(home.ask("bench", "service/door", "-c", "2", "-t", "300ms", "-o", "json"))
    assert bench["points"][0]["failed"] == 0
    assert bench["points"][0]["answered"] > 0
    assert [one["name"] for one in json.loads(home.ask("key", "list", "door", "-o", "json"))["keys"]] == ["ci"]

    again = serve(home, "--bind", "0.0.0.0", "--tls", "self-signed", "--key", "ci", "--host", "models.example.org")
    assert "already has the key ci" in again.stderr
    assert "x-forwarded-proto: https" in run_example(home, key)


def test_keys_and_rules_outlive_every_process(home: DaemonHome) -> None:
    assert serve(home, "--tls", "self-signed", "--key", "ci").returncode == 0
    key = home.ask("key", "create", "service/door", "--name", "laptop")
    authority = (home.path / "routers" / "default.door" / "tls" / "authority.pem").read_bytes()
    home.ask("daemon", "stop")
    for pid, text in home.processes().items():
        if "fairway.serving.router" in text:
            os.kill(pid, signal.SIGKILL)
    home.ask("list", "services")
    home.until(lambda: found(home)["phase"] == "Ready", "the service")
    home.until(lambda: "x-forwarded-proto" in run_example(home, key), "an answer")
    assert (home.path / "routers" / "default.door" / "tls" / "authority.pem").read_bytes() == authority
    assert "not valid" in run_example(home, "wrong")
    home.ask("key", "revoke", "door", "laptop")
    assert "not valid" in run_example(home, key)
    home.ask("delete", "service/door")
    assert not (home.path / "routers" / "default.door").exists()


def test_what_would_fail_is_found_before_anything_changes(home: DaemonHome, tmp_path: Path) -> None:
    now = SystemClock().now()
    for name in ("one", "two"):
        self_signed.renew(tmp_path / name, name, ["localhost"], now)
    certificate, key = tmp_path / "one" / "certificate.pem", tmp_path / "one" / "key.pem"
    other = tmp_path / "two" / "key.pem"
    loose = tmp_path / "loose.pem"
    shutil.copy(key, loose)
    loose.chmod(0o644)
    for flags, said in [
        (("--bind", "0.0.0.0"), "without API keys"),
        (("--bind", "203.0.113.7", "--key", "ci"), "not an address of this machine"),
        (("--tls", f"{tmp_path}/none.pem,{key}"), "cannot be read"),
        (("--tls", f"{certificate},{other}"), "does not belong to"),
        (("--tls", f"{certificate},{loose}"), "chmod 600"),
        (("--tls", f"{key},{key}"), "holds no certificate"),
        (("--tls", "certificate.pem"), "self-signed"),
        (("--cors", "example.org"), "origins"),
    ]:
        for plan in ((), ("--plan",)):
            done = serve(home, *flags, *plan)
            assert done.returncode in (2, 5), done
            assert said in done.stderr, done
    done = serve(home, "--bind", "203.0.113.7", "--key", "ci", "--tls", f"{tmp_path}/none.pem,{loose}")
    for said in ("not an address of this machine", "none.pem cannot be read", "chmod 600"):
        assert said in done.stderr, done
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert port in serve(home, "--port", port, "--plan").stdout
    assert json.loads(home.ask("list", "services", "-o", "json"))["services"] == []
    assert serve(home, "--tls", f"{certificate},{key}", "--plan").returncode == 0
    told = serve(home, "--bind", "0.0.0.0", "--public", "--plan").stdout
    assert (
        "without TLS: every client that reaches this machine, at any of its addresses, could send requests without a key" in told
    )


def test_a_certificate_that_ends_soon_is_told_ahead(home: DaemonHome, tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.mkdir()
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "5", *subject]
    subprocess.run(
        [*command, "-keyout", str(short / "key.pem"), "-out", str(short / "cert.pem")], check=True, capture_output=True
    )
    (short / "key.pem").chmod(0o600)
    assert read_certificate(short / "cert.pem").self_issued
    assert serve(home, "--tls", f"{short}/cert.pem,{short}/key.pem").returncode == 0
    for words in (("get", "service/door"), ("why", "service/door")):
        assert "expires in 5 days: replace the file" in home.ask(*words)
    told = home.call("doctor").stdout
    assert "expires in" in told, told
    assert "fix: replace the file" in told
    # The certificate is for another name than the address: the printed command uses that name.
    line = found(home)["example"]
    assert "--connect-to localhost:" in line
    assert "x-forwarded-proto: https" in subprocess.run(shlex.split(line), capture_output=True, text=True, check=True).stdout


def test_from_python(home: DaemonHome, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairway import Client
    from fairway.errors import ConflictError, NotFoundError

    assert serve(home, "--key", "ci").returncode == 0
    for name in ("FAIRWAY_HOME", "FAIRWAY_MACHINE_DIR", "XDG_RUNTIME_DIR", "FAIRWAY_CPUS"):
        monkeypatch.setenv(name, home.environment[name])
    client = Client(home=home.path)
    made = client.create_key("door", "laptop", rate="10/m", expires="30d")
    assert "x-forwarded-proto: http" in run_example(home, made.key)
    assert [(key.name, key.rate) for key in client.keys("door")] == [("ci", ""), ("laptop", "10/m")]
    assert client.keys("door")[1].used is not None
    with pytest.raises(ConflictError):
        client.create_key("door", "laptop")
    client.revoke_key("door", "laptop")
    with pytest.raises(NotFoundError):
        client.revoke_key("door", "laptop")
    assert "not valid" in run_example(home, made.key)


DOCUMENT = """\
kind: ModelService
name: door
command: [{python}, {server}]
port: {port}
endpoint: {{bind: 0.0.0.0, public: true}}
"""


def free_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


def answers(url: str) -> bool:
    """Whether the first request to that address gets a response."""
    return subprocess.run(["curl", "-skf", "-m", "20", url], capture_output=True, check=False).returncode == 0


def test_a_change_of_address_is_in_force_when_the_verb_returns(home: DaemonHome) -> None:
    assert serve(home).returncode == 0
    one, two = free_port(), free_port()
    for flags, url in [
        (("--port", one), f"http://127.0.0.1:{one}"),
        (("--port", one, "--tls", "self-signed"), f"https://127.0.0.1:{one}"),
        (("--port", two, "--bind", "0.0.0.0", "--public"), f"http://127.0.0.1:{two}"),
    ]:
        done = serve(home, *flags)
        assert done.returncode == 0, done
        assert done.stdout.strip() == url
        assert answers(url), url
        assert found(home)["revision"] == 1
    home.ask("apply", "-f", "-", say=DOCUMENT.format(python=sys.executable, server=home.work / "server.py", port=one))
    assert answers(f"http://127.0.0.1:{one}"), "of apply, too"
    two = one
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = serve(home, "--port", port)
        assert done.returncode == 1, done
        assert port in done.stderr
    assert answers(f"http://127.0.0.1:{two}"), "it stays where it was"
