"""One service that cannot work leaves runs and other services of a real daemon alone."""

from __future__ import annotations

import json
import socket
import sys
import urllib.error
import urllib.request
from typing import Any

import pytest
from daemon_home import DaemonHome

SERVER = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "{{port}}"]


def service(home: DaemonHome, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(home.ask("get", f"service/{name}", "-o", "json"))
    return found


@pytest.mark.timeout(120)
def test_a_taken_port_is_shown_on_its_service_and_stops_nothing_else(home: DaemonHome) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = home.call("serve", "--name", "web", "--port", str(port), "--", *SERVER)
        assert refused.returncode == 1
        assert str(port) in refused.stdout + refused.stderr
        assert home.ask("run", "--", "echo", "hello") == "hello"
        shown = service(home, "web")
        assert shown["phase"] == "Failing"
        assert [fault["work"] for fault in shown["faults"]] == ["route"]
        assert str(port) in shown["faults"][0]["cause"]
        assert str(port) in home.ask("why", "service/web")
        reasons = [event["reason"] for event in json.loads(home.ask("events", "service/web", "-o", "json"))["events"]]
        assert "Fault" in reasons
        assert home.call("doctor").stdout.count("service:default/web") == 1
        home.ask("serve", "--name", "other", "--", *SERVER)
        assert service(home, "other")["phase"] == "Ready"
    # No restart is needed: once the port is free, the next retry succeeds.
    home.until(lambda: service(home, "web")["url"], "the service listens")
    assert service(home, "web")["faults"] == []
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
        assert answer.status == 200


@pytest.mark.timeout(120)
def test_a_service_that_never_listened_is_deleted(home: DaemonHome) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        home.call("serve", "--name", "web", "--port", str(port), "-d", "--", *SERVER)
        home.until(lambda: service(home, "web")["faults"], "the fault is shown")
        home.ask("delete", "service/web")
        assert home.ask("list", "services", "-o", "name") == ""


@pytest.mark.timeout(120)
def test_an_outcome_needs_the_token_and_a_number_that_can_be_summed(home: DaemonHome) -> None:
    home.ask("serve", "--name", "web", "--", *SERVER)
    shown = service(home, "web")

    def report(value: str, token: str) -> int:
        headers = {"fairway-revision": "1", "fairway-outcome": f"x={value}"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        asked = urllib.request.Request(f"{shown['url']}/fairway/outcome", data=b"", headers=headers, method="POST")
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            return refused.code

    token = shown["outcome_token"]
    assert token
    assert report("1", "") == 401
    assert report("1", "guessed") == 401
    assert [report(value, token) for value in ("1e308", "inf", "nan", "1e400", "x")] == [400] * 5
    assert report("0.5", token) in (200, 202, 204)
    assert home.ask("run", "--", "echo", "hello") == "hello"
    assert service(home, "web")["faults"] == []
