"""Spans of a real service, as a collector receives them; and the behaviour without a collector."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_home import DaemonHome
from otlp_receiver import Receiver
from test_observability import apply
from test_services import BODY, connected, service, write_model

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
FAST = {"OTEL_BSP_SCHEDULE_DELAY": "50"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        yield found


def served(folder: Path, **environment: str) -> DaemonHome:
    home = DaemonHome(folder, environment=environment)
    home.ask("model", "register", "adds", str(write_model(home.work / "v1.onnx", 1)))
    apply(home, replicas=1, logs={"access": "100%"})
    home.until(lambda: service(home)["ready_replicas"] == 1, "a replica", within=60)
    return home


def post(connection: http.client.HTTPConnection, body: str = BODY, **headers: str) -> int:
    connection.request("POST", "/v2/models/adds/infer", body, {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_spans_of_router_and_replica_join_the_trace_of_the_client(tmp_path: Path, receiver: Receiver) -> None:
    home = served(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, **FAST)
    try:
        with connected(home) as connection:
            state = {"tracestate": "vendor=1", "X-Request-Id": "mine"}
            assert post(connection, traceparent=f"00-{TRACE}-{SPAN}-01", **state) == 200
            assert post(connection, traceparent=f"00-{TRACE}-{SPAN}-00") == 200  # the client does not sample
            assert post(connection, traceparent="00-zz-malformed-01") == 200
            assert post(connection, "{") == 400

        def of(trace: str) -> list[dict[str, Any]]:
            return [span for span in receiver.spans if span["trace"] == trace]

        home.until(lambda: len(of(TRACE)) == 2 and len(receiver.spans) >= 6, "the spans")
        router = next(span for span in of(TRACE) if span["service"] == "fairway-router")
        replica = next(span for span in of(TRACE) if span["service"] == "fairway-replica")
        assert (router["parent"], replica["parent"]) == (SPAN, router["id"])
        assert (router["name"], replica["name"]) == ("POST default/adds", "infer adds")
        assert router["attributes"]["fairway.request_id"] == replica["attributes"]["fairway.request_id"] == "mine"
        assert router["attributes"]["http.response.status_code"] == 200
        assert router["attributes"]["fairway.replica"] == service(home)["replicas"][0]["name"]
        assert 0 < replica["nanoseconds"] <= router["nanoseconds"]
        assert replica["attributes"]["fairway.predict_ms"] > 0
        others = {span["trace"] for span in receiver.spans} - {TRACE}
        assert all({span["service"] for span in of(trace)} == {"fairway-router", "fairway-replica"} for trace in others)

        def traces() -> list[str]:
            return [json.loads(line)["trace_id"] for line in home.ask("logs", "service/adds", "--access").splitlines()]

        home.until(lambda: len(traces()) == 4, "the lines")
        assert traces()[:2] == [TRACE, TRACE]
    finally:
        home.close()


@pytest.mark.parametrize("away", ["refuses", "hangs"])
def test_a_collector_that_is_away_costs_no_request(tmp_path: Path, away: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        if away == "refuses":
            listener.close()
        home = served(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}", **FAST)
        try:
            with connected(home) as connection:
                began = time.monotonic()
                assert {post(connection) for _ in range(300)} == {200}
                assert time.monotonic() - began < 30
            began = time.monotonic()
            home.ask("delete", "service/adds")
            assert time.monotonic() - began < 30
        finally:
            home.close()


def test_without_traces_the_context_goes_through_as_it_is(tmp_path: Path) -> None:
    home = DaemonHome(tmp_path)
    try:
        (home.work / "server.py").write_text(
            "import http.server, json, os\n"
            "class Handler(http.server.BaseHTTPRequestHandler):\n"
            "    def do_GET(self):\n"
            "        body = json.dumps(dict(self.headers)).encode()\n"
            "        self.send_response(200); self.send_header('Content-Length', str(len(body))); self.end_headers()\n"
            "        self.wfile.write(body)\n"
            "http.server.HTTPServer(('127.0.0.1', int(os.environ['FAIRWAY_PORT'])), Handler).serve_forever()\n"
        )
        home.ask("serve", "--name", "echo", "--", "python3", "server.py")
        with connected(home, "echo") as connection:
            lines = {"traceparent": "00-zz-anything", "tracestate": "vendor=1", "X-Request-Id": "mine"}
            connection.request("GET", "/", headers=lines)
            found = {name.lower(): value for name, value in json.loads(connection.getresponse().read()).items()}
            assert {name.lower(): found[name.lower()] for name in lines} == {name.lower(): value for name, value in lines.items()}
    finally:
        home.close()
