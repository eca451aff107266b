"""The examples of serving, through the real command line."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from gang import EXAMPLES, call, run_example


def service(home: Path, name: str) -> dict[str, Any]:
    """Return the service, once all its wanted replicas are ready."""
    deadline = time.monotonic() + 60
    while True:
        code, output = call(home, "get", f"service/{name}", "-o", "json")
        assert code == 0, output
        found: dict[str, Any] = json.loads(output)
        if found["phase"] == "Ready" and found["ready_replicas"] == found["wanted_replicas"]:
            return found
        assert time.monotonic() < deadline, output
        time.sleep(0.1)


def ask(url: str, body: object = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def test_any_server_gets_two_replicas_behind_one_address(home: Path) -> None:
    code, output = call(home, "apply", "-f", str(EXAMPLES / "20-any-server" / "service.yaml"))
    assert code == 0, output
    url = service(home, "hello")["url"]
    greeted = {ask(f"{url}/") for _ in range(20)}
    assert len(greeted) == 2, "both replicas were asked"
    assert all(text.startswith("hello from process ") for text in greeted)
    assert call(home, "delete", "service/hello")[0] == 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl program")
def test_a_service_for_other_machines_asks_for_a_key_over_tls(home: Path) -> None:
    code, output = call(home, "apply", "-f", str(EXAMPLES / "22-exposed" / "service.yaml"))
    assert code == 0, output
    found = service(home, "exposed")
    trusted = ssl.create_default_context(cafile=found["access"]["authority"])
    code, key = call(home, "key", "create", "exposed", "--name", "ci")
    assert code == 0, key

    def status(path: str, **headers: str) -> int:
        try:
            with urllib.request.urlopen(urllib.request.Request(found["url"] + path, headers=headers), context=trusted) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as answer:
            return answer.code

    given = re.search("fwk-[0-9a-f-]+", key)
    assert given is not None, key
    assert status("/", Authorization=f"Bearer {given[0]}") == 200
    assert (status("/"), status("/health")) == (401, 200)
    assert call(home, "key", "revoke", "exposed", "ci")[0] == 0
    assert status("/", Authorization=f"Bearer {given[0]}") == 401
    assert call(home, "delete", "service/exposed")[0] == 0


@pytest.mark.framework("torch")
def test_the_first_examples_model_is_served(home: Path, python: str) -> None:
    run = run_example(home, "01-first-job", "--python", python)
    assert run.code == 0, run.output
    code, output = call(home, "apply", "-f", str(EXAMPLES / "19-serve" / "service.yaml"))
    assert code == 0, output
    found = service(home, "lenet")
    assert found["serves"] == "lenet@1"
    answer = json.loads(ask(f"{found['url']}{found['example_path']}", json.loads(found["example_body"])))
    assert answer["model_name"] == "lenet"
    assert len(answer["outputs"][0]["data"]) == 10
    assert call(home, "delete", "service/lenet")[0] == 0
