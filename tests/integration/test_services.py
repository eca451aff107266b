"""A model becomes an endpoint on a real engine, and remains available whatever is done to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from daemon_home import DaemonHome, kill
from onnx import TensorProto, helper


def write_model(path: Path, add: float, operator: str = "Add", name: str = "x") -> Path:
    """Write a model that adds a number, so that its predictions identify the version."""
    graph = helper.make_graph(
        [helper.make_node(operator, [name, "c"], ["y"])],
        "adds",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor("c", TensorProto.FLOAT, [1], [add])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(path))
    return path


@pytest.fixture
def served(home: DaemonHome) -> DaemonHome:
    """A home with two versions of a model: the first adds 1, the second adds 2."""
    for number in (1, 2):
        home.ask("model", "register", "adds", str(write_model(home.work / f"v{number}.onnx", number)))
    return home


def service(home: DaemonHome, name: str = "adds") -> dict[str, Any]:
    """Return a service as the command line shows it."""
    found: dict[str, Any] = json.loads(home.persist("get", f"service/{name}", "-o", "json"))
    return found


BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [10, 20]}]})


def ask(connection: http.client.HTTPConnection, path: str = "/v2/models/adds/infer") -> tuple[int, Any]:
    connection.request("POST", path, BODY, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


class Askers:
    """Clients that send requests continuously, each on its own connection, and record the results."""

    def __init__(self, port: int, count: int = 3) -> None:
        self.port = port
        self.answers: Counter[float] = Counter()
        self.failures: list[str] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(count)]

    def __enter__(self) -> Askers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def new_answers(self, home: DaemonHome, value: float, count: int = 20) -> None:
        """Wait until there were this many more of these responses."""
        before = self.answers[value]
        home.until(lambda: self.answers[value] >= before + count, f"answers of {value}", within=90)

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        while not self._over.is_set():
            try:
                status, answer = ask(connection)
                if status == 200:
                    self.answers[answer["outputs"][0]["data"][0]] += 1
                else:
                    self.failures.append(f"{status} {answer}")
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.failures.append(repr(error))
                connection.close()
            time.sleep(0.002)
        connection.close()


@contextlib.contextmanager
def asking(home: DaemonHome, name: str = "adds") -> Iterator[Askers]:
    with Askers(service(home, name)["url"].rpartition(":")[2]) as askers:
        yield askers


@contextlib.contextmanager
def connected(home: DaemonHome, name: str = "adds") -> Iterator[http.client.HTTPConnection]:
    port = int(service(home, name)["url"].rpartition(":")[2])
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        yield connection


def pids_of(home: DaemonHome, *words: str) -> list[int]:
    """Return the processes of this home whose command line contains all of these."""
    return [pid for pid, text in home.processes().items() if all(word in text for word in words)]


def test_serve_prints_a_request_that_works(served: DaemonHome) -> None:
    served.ask("serve", "adds@1")
    found = service(served)
    assert found["phase"] == "Ready"
    assert (found["serves"], found["ready_replicas"]) == ("adds@1", 1)
    printed = subprocess.run(["bash", "-c", found["example"]], capture_output=True, check=True, timeout=30).stdout
    assert json.loads(printed)["outputs"][0]["data"] == [1.0, 1.0]
    assert "adds" in served.ask("list", "services")
    assert served.names() == [], "replicas are not listed among the runs"
    assert "is served at" in served.ask("logs", "service/adds")
    refused = served.call("delete", "adds")
    assert refused.returncode == 5 or "no job" in refused.stderr
    served.ask("delete", "service/adds")
    served.check_nothing_held()
    assert pids_of(served, "fairway.serving") == []


def test_every_page_says_whether_requests_are_batched(served: DaemonHome) -> None:
    served.ask("serve", "adds@1")
    proven = "batched (proven): rows alone and together gave the same outputs, in batches of up to 64 rows"
    served.until(lambda: service(served)["batching"] == proven, "the verdict of the first replica")
    for words in (("get", "service/adds"), ("why", "service/adds"), ("model", "get", "adds@1")):
        assert proven in served.ask(*words)
    assert "batched" not in served.ask("model", "get", "adds@2"), "no replica has loaded it"
    served.ask("serve", "adds@1", "--no-batching", "--detach")
    declared = [proven, "not batched (declared): by the service or --batching"]
    served.until(lambda: [each["batching"] for each in service(served)["revisions"]] == declared, "the verdict of the second")
    served.ask("delete", "service/adds")


def test_a_release_restarts_and_deaths_cost_no_request(served: DaemonHome) -> None:
    served.ask("serve", "adds@1", "--replicas", "1..3")
    with asking(served) as askers:
        askers.new_answers(served, 11.0)
        served.ask("scale", "adds", "2")
        served.until(lambda: service(served)["ready_replicas"] == 2, "two replicas")
        served.ask("rollout", "start", "adds", "adds@2")
        askers.new_answers(served, 12.0)
        served.kill_daemon()
        askers.new_answers(served, 12.0)
        served.start_daemon()
        served.until(lambda: service(served)["ready_replicas"] >= 2, "two replicas")
        (router,) = pids_of(served, "fairway.serving.router.process")
        assert askers.failures == []
        kill(router)
        # Only the requests in flight through the router lose their response.
        askers.new_answers(served, 12.0)
        assert len(askers.failures) <= 3, askers.failures
        before = len(askers.failures)
        replica = pids_of(served, "fairway.serving.replica", "--version 2")[0]
        kill(replica)
        askers.new_answers(served, 12.0, 200)
        served.until(lambda: service(served)["ready_replicas"] >= 2, "two replicas")
        assert len(askers.failures) - before <= 3, askers.failures
        final = len(askers.failures)
        askers.new_answers(served, 12.0, 100)
        assert len(askers.failures) == final
    served.ask("delete", "service/adds")
    served.check_nothing_held()


def test_a_service_without_replicas_holds_the_first_request_until_there_is_one(served: DaemonHome) -> None:
    document = {
        "kind": "ModelService",
        "name": "adds",
        "model": "adds@1",
        "replicas": {"min": 0, "max": 1},
        "scaling": {"idle": "1s"},
    }
    path = served.work / "service.yaml"
    path.write_text(json.dumps(document))
    served.ask("apply", "-f", str(path))
    served.until(lambda: service(served)["url"], "a port")
    served.until(lambda: service(served)["phase"] == "Idle", "the end of the last replica", within=60)
    with connected(served) as connection:
        status, answer = ask(connection)
    assert (status, answer["outputs"][0]["data"]) == (200, [11.0, 21.0])
    assert served.ask("apply", "-f", str(path)) == "ModelService adds unchanged"
    why = served.ask("why", "service/adds")
    assert "what would change it" in why


def test_a_name_can_be_used_again_at_once(served: DaemonHome) -> None:
    for number in (1, 2):
        served.ask("serve", f"adds@{number}")
        with connected(served) as connection:
            status, answer = ask(connection)
        assert (status, answer["outputs"][0]["data"][0]) == (200, 10 + number)
        assert [replica["name"] for replica in service(served)["replicas"]] == [f"r1-{number}"]
        served.ask("delete", "service/adds")


def test_a_version_that_cannot_start_never_takes_over(served: DaemonHome) -> None:
    served.ask("serve", "adds@1")
    broken = served.ask("model", "register", "adds", str(write_model(served.work / "broken.onnx", 3, "NoSuchOperator")))
    with asking(served) as askers:
        served.ask("rollout", "start", "adds", broken)
        served.until(lambda: service(served)["release"] is None, "the end of the release", within=90)
        askers.new_answers(served, 11.0)
        assert askers.failures == []
    history = json.loads(served.ask("rollout", "history", "adds", "-o", "json"))["history"]
    assert history[-1]["phase"] == "RolledBack"
    assert history[-1]["reason"]
    assert service(served)["serves"] == "adds@1"


def test_a_changed_signature_needs_consent_and_what_it_breaks_sends_it_back(served: DaemonHome) -> None:
    served.ask("serve", "adds@1")
    renamed = served.ask("model", "register", "adds", str(write_model(served.work / "renamed.onnx", 3, name="z"))).strip()
    for more in ((), ("--plan",)):
        refused = served.call("rollout", "start", "adds", renamed, *more)
        assert refused.returncode == 5
        assert "adds@3 would break clients of adds@1: input x: FP32[any, 2] -> gone; input z: none -> FP32" in refused.stderr
        assert "--allow-signature-change" in refused.stderr
    assert served.call("serve", renamed, "--name", "adds", "--plan").returncode == 5
    plan = served.ask("rollout", "start", "adds", renamed, "--allow-signature-change", "--plan")
    assert "input x: FP32[any, 2] -> gone (breaks clients)" in plan
    assert service(served)["release"] is None
    with asking(served) as askers:
        askers.new_answers(served, 11.0)
        served.ask("rollout", "start", "adds", renamed, "--allow-signature-change", "--strategy", "canary")
        served.until(lambda: service(served)["release"] is None, "the end of the release", within=90)
        askers.new_answers(served, 11.0)
    (last,) = json.loads(served.ask("rollout", "history", "adds", "-o", "json"))["history"][-1:]
    assert (last["phase"], last["reason"].partition(":")[0]) == ("RolledBack", "client_errors")
    assert askers.failures
    assert all(failure.startswith("400 ") for failure in askers.failures)
    assert len(askers.failures) < sum(askers.answers.values()) / 4


def test_any_server_can_be_served(home: DaemonHome) -> None:
    program = home.work / "server.py"
    program.write_text(
        "import http.server, os\n"
        "http.server.ThreadingHTTPServer(('127.0.0.1', int(os.environ['FAIRWAY_PORT'])),"
        " http.server.SimpleHTTPRequestHandler).serve_forever()\n"
    )
    home.ask("serve", "--name", "files", "--", sys.executable, str(program))
    with connected(home, "files") as connection:
        connection.request("GET", "/server.py")
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.read() == program.read_bytes()
        assert answer.getheader("fairway-revision") == "1"


def test_the_same_from_python(served: DaemonHome, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairway import Client
    from fairway.errors import NotFoundError

    for name in ("FAIRWAY_HOME", "FAIRWAY_MACHINE_DIR", "XDG_RUNTIME_DIR", "FAIRWAY_CPUS"):
        monkeypatch.setenv(name, served.environment[name])
    client = Client(home=served.path)
    made = client.serve("adds@1", spec={"replicas": {"min": 1, "max": 2}})
    assert (made.phase, made.serves, made.ready_replicas) == ("Ready", "adds@1", 1)
    assert [found.name for found in client.services()] == ["adds"]
    assert client.scale("adds", 2).floor == 2
    assert client.why_service("adds").wanted >= 1
    assert client.release("adds", "adds@2").target == 2
    assert client.undo("adds").phase == "RolledBack"
    client.delete_service("adds")
    with pytest.raises(NotFoundError, match="no service adds"):
        client.service("adds")


BURNS = """\
import http.server, os, time

class Burns(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        until = time.process_time() + 0.01
        while time.process_time() < until:
            pass
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["FAIRWAY_PORT"])), Burns).serve_forever()
"""


def test_what_a_server_uses_of_its_cores_adds_replicas(home: DaemonHome) -> None:
    """The server reports nothing and has one request in flight, of 32: only the engine's CPU usage adds replicas."""
    program = home.work / "burns.py"
    program.write_text(BURNS)
    document = home.work / "burns.yaml"
    document.write_text(
        "kind: ModelService\nname: burns\nreplicas: {min: 1, max: 2}\nresources: {cpu: 0.1}\n"
        f"command: [{sys.executable}, {program}]\n"
    )
    home.ask("apply", "-f", str(document))
    home.until(lambda: service(home, "burns")["ready_replicas"], "the first replica", within=60)
    over = threading.Event()

    def ask_for_nothing() -> None:
        with connected(home, "burns") as connection:
            while not over.is_set():
                connection.request("GET", "/")
                connection.getresponse().read()

    asker = threading.Thread(target=ask_for_nothing, daemon=True)
    asker.start()
    try:
        home.until(lambda: service(home, "burns")["wanted_replicas"] == 2, "a second replica", within=90)
        told = home.ask("why", "service/burns")
    finally:
        over.set()
        asker.join(30)
    assert "of their cores" in told
    assert "(rule: max)" in told or "(rule: cpu)" in told


def test_a_damaged_model_is_refused_by_name_and_repaired_by_a_good_copy(served: DaemonHome) -> None:
    contents = json.loads(served.ask("model", "get", "adds@1", "-o", "json"))["contents"]
    (digest,) = [each["sha256"] for each in contents]
    blob = served.path / "blobs" / "sha256" / digest[:2] / digest[2:]
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes()[::-1])
    found = served.call("model", "verify")
    assert (found.returncode, "adds@1" in found.stdout, "v1.onnx" in found.stdout) == (1, True, True), found
    assert "adds@2" not in found.stdout
    damaged = "adds@1: v1.onnx is damaged"
    refused = served.call("model", "pull", "adds@1", "pulled")
    assert (refused.returncode, damaged in refused.stderr) == (5, True), refused
    refused = served.call("serve", "adds@1", "--detach")
    assert (refused.returncode, damaged in refused.stderr) == (5, True), refused
    assert served.call("get", "service/adds").returncode == 3, "nothing was made"
    served.ask("model", "register", "adds", str(served.work / "v1.onnx"))
    assert served.call("model", "verify", "adds").returncode == 0
    served.ask("serve", "adds@1", "--detach")
    served.until(lambda: service(served)["phase"] == "Ready", "the service", within=90)
    with connected(served) as connection:
        assert ask(connection)[1]["outputs"][0]["data"] == [11.0, 21.0]
