"""Messages to the operator while a task runs: none lost, none counted twice, and the task never waits for them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fairway.runtime import task_contract
from fairway.runtime.pod.metric_collector import MetricCollector
from fairway.runtime.pod.metric_reporter import MetricReporter


class Operator:
    """Receives messages, or answers with an error."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.answer = 204
        operator = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if operator.answer == 204:
                    operator.heard.append({**body, "token": self.headers["Authorization"], "path": self.path})
                self.send_response(operator.answer)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                del format, args

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def operator() -> Iterator[Operator]:
    found = Operator()
    serving = threading.Thread(target=found.server.serve_forever, daemon=True)
    serving.start()
    yield found
    found.server.shutdown()
    found.server.server_close()


def report(folder: Path, step: int, rank: int = 0) -> None:
    line = json.dumps({"time": float(step), "step": step, "metrics": {"loss": 1.0 / step}})
    with (folder / task_contract.METRICS_FILE.format(local_rank=rank)).open("a") as file:
        file.write(line + "\n")


def telling(folder: Path, address: str, ranks: int = 1) -> MetricReporter:
    return MetricReporter("worker-0", 2, MetricCollector(str(folder), ranks), str(folder / "checkpoints"), address, "secret")


def steps(operator: Operator) -> list[int]:
    return [point["step"] for message in operator.heard for point in message["points"]]


def test_new_points_of_every_rank_are_told_once_with_who_speaks(operator: Operator, tmp_path: Path) -> None:
    speaks = telling(tmp_path, operator.address, ranks=2)
    report(tmp_path, 1)
    report(tmp_path, 2, rank=1)
    assert speaks.tell()
    assert speaks.tell()
    assert steps(operator) == [1, 2]
    (message,) = operator.heard
    assert (message["task"], message["attempt"], message["token"]) == ("worker-0", 2, "Bearer secret")
    assert [(point["rank"], point["source"]) for point in message["points"]] == [(0, "report"), (1, "report")]


def test_a_line_that_is_half_written_waits_for_its_end(operator: Operator, tmp_path: Path) -> None:
    speaks = telling(tmp_path, operator.address)
    report(tmp_path, 1)
    path = tmp_path / task_contract.METRICS_FILE.format(local_rank=0)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    speaks.tell()
    path.write_bytes(whole)
    speaks.tell()
    assert steps(operator) == [1]


def test_what_could_not_be_sent_is_sent_later(operator: Operator, tmp_path: Path) -> None:
    speaks = telling(tmp_path, operator.address)
    report(tmp_path, 1)
    operator.answer = 503
    assert not speaks.tell()
    operator.answer = 204
    report(tmp_path, 2)
    assert speaks.tell()
    assert steps(operator) == [1, 2]
    # A message is repeated unchanged, so that the operator recognizes it if only its answer was lost.
    assert [(message["number"], len(message["points"])) for message in operator.heard] == [(1, 1), (2, 1)]
    assert len({message["sender"] for message in operator.heard}) == 1


def test_what_is_refused_is_not_sent_for_ever(operator: Operator, tmp_path: Path) -> None:
    speaks = telling(tmp_path, operator.address)
    report(tmp_path, 1)
    operator.answer = 403
    assert speaks.tell()
    operator.answer = 204
    speaks.tell()
    assert steps(operator) == []


def test_a_finished_checkpoint_is_told_once(operator: Operator, tmp_path: Path) -> None:
    speaks = telling(tmp_path, operator.address)
    made = tmp_path / "checkpoints" / task_contract.STEP_FOLDER.format(step=40)
    made.mkdir(parents=True)
    (tmp_path / "checkpoints" / task_contract.LATEST).write_text(made.name)
    speaks.tell()
    assert operator.heard == []  # no manifest: the checkpoint is incomplete
    (made / task_contract.MANIFEST).write_text("{}")
    speaks.tell()
    speaks.tell()
    assert [message["checkpoint"]["step"] for message in operator.heard] == [40]


def test_the_last_words_are_sent_at_the_end(operator: Operator, tmp_path: Path) -> None:
    speaks = telling(tmp_path, operator.address)
    speaks.start()
    report(tmp_path, 1)
    speaks.finish()
    assert steps(operator) == [1]


def test_nobody_there_costs_nothing_but_the_message(tmp_path: Path) -> None:
    report(tmp_path, 1)
    assert not telling(tmp_path, "http://127.0.0.1:1").tell()
