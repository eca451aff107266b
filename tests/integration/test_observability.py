"""What a real service exposes: its metrics page, its responses to probes, its access log and its description."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from daemon_home import DaemonHome
from openapi_spec_validator import validate
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text
from test_services import ask, connected, service, write_model


@pytest.fixture
def served(home: DaemonHome) -> DaemonHome:
    """A home with a model that adds 1."""
    home.ask("model", "register", "adds", str(write_model(home.work / "v1.onnx", 1)))
    return home


def apply(home: DaemonHome, **more: Any) -> None:
    document = {"kind": "ModelService", "name": "adds", "model": "adds@1", "resources": {"cpu": 0.1}, **more}
    path = home.work / "service.yaml"
    path.write_text(json.dumps(document))
    home.ask("apply", "-f", str(path))
    home.until(lambda: service(home)["url"], "a port")


def get(connection: http.client.HTTPConnection, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, Any]:
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.headers


def samples(text: bytes, read: Any = read_text) -> dict[str, float]:
    """Return the sums over all labels."""
    found: dict[str, float] = {}
    for family in read(text.decode()):
        for one in family.samples:
            found[one.name] = found.get(one.name, 0) + one.value
    return found


def test_one_page_of_metrics_for_two_replicas_of_which_one_is_killed(served: DaemonHome) -> None:
    apply(served, replicas=2)
    served.until(lambda: service(served)["ready_replicas"] == 2, "two replicas", within=60)
    with connected(served) as connection:
        for _ in range(40):
            assert ask(connection)[0] == 200
        found = samples(get(connection, "/metrics")[1])
        names = ("nv_inference_request_success_total", "request_predict_seconds_count", "fairway_router_arrived_total")
        assert [found[name] for name in names] == [40, 40, 40]
        assert found["revision_app_request_count_total"] == found["fairway_requests_total"] == 40
        assert found["fairway_replica_up"] == 2
        text = get(connection, "/metrics", Accept="application/openmetrics-text; version=1.0.0")[1]
        assert samples(text, read_openmetrics)["nv_inference_request_success"] == 40
        victim = service(served)["replicas"][0]["name"]
        os.kill(replica_pid(served, victim), signal.SIGKILL)
        served.until(lambda: all(each["name"] != victim for each in service(served)["replicas"]), "the end of one", within=60)
        served.until(lambda: service(served)["ready_replicas"] == 2, "another replica", within=60)
        for _ in range(10):
            assert ask(connection)[0] == 200
        assert samples(get(connection, "/metrics")[1])["nv_inference_request_success_total"] == 50


def replica_pid(home: DaemonHome, name: str) -> int:
    """Return the process that listens at the address of a replica."""
    address = next(each["address"] for each in service(home)["replicas"] if each["name"] == name)
    port = int(address.rpartition(":")[2])
    inode = next(
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
    )
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(descriptor) == f"socket:[{inode}]":
                return int(descriptor.parts[2])
        except OSError:
            continue
    raise AssertionError(name)


PROBES = [
    ("/v2/health/live", ""), ("/v2/health/ready", ""), ("/v2/models/adds/ready", ""), ("/v1/models/adds", ""), ("/metrics", ""),
    ("/healthz", ""), ("/x", "kube-probe/1.36"), ("/x", "Prometheus/3.0"),
]  # fmt: skip


def test_probes_neither_wake_a_service_at_zero_nor_keep_it_awake(served: DaemonHome) -> None:
    apply(served, replicas={"min": 0, "max": 1}, scaling={"idle": "1s"})

    def probe() -> None:
        with connected(served) as connection:
            for path, agent in PROBES:
                get(connection, path, User_Agent=agent or "curl/8")

    def is_idle() -> bool:
        probe()
        return bool(service(served)["phase"] == "Idle")

    served.until(is_idle, "the end of the last replica, while it is probed", within=90)
    made = service(served)["replicas"]
    with connected(served) as connection:
        for _ in range(3):
            for path, agent in PROBES:
                status, body, _ = get(connection, path, User_Agent=agent or "curl/8")
                assert status == 200, (path, body)
        assert json.loads(get(connection, "/v2/health/ready")[1])["scaled_to_zero"] is True
        assert samples(get(connection, "/metrics")[1])["fairway_router_probes_total"] > 20
        shown = service(served)
        assert (shown["phase"], shown["replicas"]) == ("Idle", made)
        status, answer = ask(connection)
        assert (status, answer["outputs"][0]["data"]) == (200, [11.0, 21.0])


def test_probes_wake_it_when_the_document_says_so(served: DaemonHome) -> None:
    apply(served, replicas={"min": 0, "max": 1}, scaling={"idle": "1s", "wake": "all"})
    served.until(lambda: service(served)["phase"] == "Idle", "the end of the last replica", within=90)
    with connected(served) as connection:
        assert get(connection, "/v2/health/ready")[0] == 200
    assert service(served)["phase"] != "Idle"


def test_the_access_log_is_shown(served: DaemonHome) -> None:
    apply(served, replicas=1, logs={"access": "100%"})
    served.until(lambda: service(served)["ready_replicas"] == 1, "a replica", within=60)
    with connected(served) as connection:
        for number in range(5):
            connection.request(
                "POST", "/v2/models/adds/infer?key=hidden", b"{}" if number else b"{", {"X-Request-Id": f"id-{number}"}
            )
            answer = connection.getresponse()
            assert (answer.status, answer.headers["x-request-id"]) == (400, f"id-{number}")
            answer.read()
        assert ask(connection)[0] == 200

    def lines(*more: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in served.ask("logs", "service/adds", "--access", *more).splitlines()]

    served.until(lambda: len(lines()) >= 6, "the lines")
    found = lines()  # and none of the daemon's, which probes the port every second
    assert [line["status"] for line in found] == [400] * 5 + [200]
    assert [line["request_id"] for line in found[:5]] == [f"id-{number}" for number in range(5)]
    assert {line["path"] for line in found} == {"/v2/models/adds/infer"}
    assert {line["replica"] for line in found} == {service(served)["replicas"][0]["name"]}
    assert [line["status"] for line in lines("--tail", "1")] == [200]
    assert [line["request_id"] for line in lines("--grep", "id-3")] == ["id-3"]
    assert len(lines("--since", "1h")) == len(lines())
    assert served.call("logs", "service/adds", "--access", "--since", "2099-01-01").stdout == ""
    refused = served.call("logs", "adds", "--access")
    assert (refused.returncode, "only services have an access log" in refused.stderr) == (2, True)


ROOT = Path(__file__).parents[2]


def test_every_metric_of_the_board_and_the_docs_exists_and_the_description_works(served: DaemonHome) -> None:
    apply(served, replicas=1)
    served.until(lambda: service(served)["ready_replicas"] == 1, "a replica", within=60)
    with connected(served) as connection:
        assert ask(connection)[0] == 200
        text = get(connection, "/metrics")[1].decode()
        there = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
        board = json.loads((ROOT / "examples/24-observability/grafana.json").read_text())
        queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        named = set(re.findall(r"\b(?:fairway|nv|request|revision)_[a-z_]+", " ".join(queries)))
        docs = re.findall(
            r"`((?:fairway_|nv_inf|request_p|request_e|revision_)[a-z_]+)`", (ROOT / "docs/observability.md").read_text()
        )
        wanted = {name.removesuffix("_bucket") for name in {*named, *docs}} - {"request_id"}
        assert len(wanted) > 35
        assert wanted - there == set()
        description = json.loads(get(connection, "/openapi.json")[1])
        validate(description)
        for path, methods in description["paths"].items():
            example = methods.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
            if example is not None:
                connection.request("POST", path, json.dumps(example), {"Content-Type": "application/json"})
                answer = connection.getresponse()
                assert (answer.status, answer.read()[:0]) == (200, b""), path
        status, page, headers = get(connection, "/docs")
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert b"openapi.json" in page
