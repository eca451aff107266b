"""Requests that a service samples become a dataset automatically, and a model can be run over it."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from pathlib import Path
from typing import Any

from daemon_home import DaemonHome, kill
from test_services import pids_of, service, write_model


def ask(home: DaemonHome, value: float) -> float:
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [value, value]}]})
    with closing(http.client.HTTPConnection("127.0.0.1", int(service(home)["url"].rpartition(":")[2]), timeout=30)) as connection:
        connection.request("POST", "/v2/models/adds/infer", body, {"Content-Type": "application/json"})
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
    return float(answer["outputs"][0]["data"][0])


def written(home: DaemonHome) -> int:
    """Return how many requests are in the folders of replicas."""
    paths = home.path.glob("jobs/default.services/*/shared/requests/*")
    return sum(path.read_bytes().count(b"\n") for path in paths)


def kept(home: DaemonHome) -> list[float]:
    """Return the inputs in the newest version of the dataset."""
    version = json.loads(home.ask("data", "get", "asked", "-o", "json"))["version"]
    files = sorted((home.path / "data" / "asked" / str(version)).glob("*.jsonl"))
    return [json.loads(line)["inputs"][0]["data"][0] for path in files for line in path.read_text().splitlines()]


def version_of(home: DaemonHome, models: list[str]) -> dict[str, Any]:
    """Return the newest version of the dataset, once its requests were served by these models."""

    def look() -> dict[str, Any] | None:
        found = json.loads(home.ask("data", "list", "-o", "json"))["datasets"]
        return found[-1] if found and found[-1]["models"] == models else None

    return home.until(look, f"a version with requests to {models}")


def test_requests_of_killed_and_of_drained_replicas_are_in_the_dataset_once(home: DaemonHome, tmp_path: Path) -> None:
    for number in (1, 2):
        home.ask("model", "register", "adds", str(write_model(home.work / f"v{number}.onnx", number)))
    document = {"kind": "ModelService", "name": "adds", "model": "adds@1", "sampling": {"rate": "100%", "dataset": "asked"}}
    home.ask("apply", "-f", home.write(document))
    home.until(lambda: service(home)["phase"] == "Ready", "the service")
    assert [ask(home, value) for value in (1, 2, 3)] == [2, 3, 4]
    home.until(lambda: written(home) == 3, "the samples")
    (replica,) = pids_of(home, "fairway.serving.replica")
    kill(replica)
    first = version_of(home, ["adds@1"])
    assert first["services"] == ["default/adds"]
    home.until(lambda: service(home)["ready_replicas"] == 1, "another replica")
    assert ask(home, 4) == 5
    home.ask("rollout", "start", "adds", "adds@2")
    home.until(lambda: version_of(home, ["adds@1"])["files"] == 2, "the end of the first version's replica")
    assert ask(home, 5) == 7
    home.kill_daemon()
    home.ask("delete", "service/adds")
    version_of(home, ["adds@1", "adds@2"])
    assert "requests to default/adds that adds@1 and adds@2 answered" in home.ask("data", "get", "asked")
    home.ask("predict", "adds@2", "--data", "asked", "--out", "scored")
    assert kept(home) == [1, 2, 3, 4, 5]
    assert written(home) == 0
    (scored,) = home.path.glob("jobs/default/predict-adds-1/outputs/dataset/*.jsonl")
    answers = [json.loads(line)["y"][0] for line in scored.read_text().splitlines()]
    assert answers == [3, 4, 5, 6, 7], "the second version, asked what the first was asked"
    home.check_nothing_held()
