# ruff: noqa: BLE001, PT017
"""The table of cases of the MLflow client: what each calls, and how a case is run against a tracking server.

The same cases pass against `mlflow server`, which is how they were checked. A case with a reason why Fairway `differs` tests the
response of Fairway alone.
"""

from __future__ import annotations

import itertools
import time
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import requests
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException


@dataclass(frozen=True)
class Case:
    """One call, with one option or one rule of it."""

    method: str
    option: str
    check: Callable[[Place], Any]
    differs: str = ""
    """Why Fairway's response differs from that of an MLflow server; empty: both are the same."""
    unavailable: bool = False
    """Whether the case expects that Fairway refuses the method and names it."""

    @property
    def name(self) -> str:
        """`search_runs: order_by`."""
        return f"{self.method}: {self.option}"


CASES: list[Case] = []


def case(method: str, option: str, differs: str = "") -> Callable[[Callable[[Place], Any]], Callable[[Place], Any]]:
    """Add a function to the table."""

    def put(check: Callable[[Place], Any]) -> Callable[[Place], Any]:
        CASES.append(Case(method, option, check, differs))
        return check

    return put


class Place:
    """A client, and names that no other case uses."""

    _count = itertools.count()

    def __init__(self, uri: str, token: str, folder: Path, model: Path) -> None:
        self.client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        self.uri, self.token, self.model = uri, token, model
        self._prefix = f"case-{uuid.uuid4().hex[:8]}-{next(self._count)}"
        self.folder = folder / self._prefix
        self.folder.mkdir(parents=True)

    def name(self, word: str = "x") -> str:
        """Return a name for this case alone."""
        return f"{self._prefix}-{word}"

    def experiment(self, word: str = "x", **more: Any) -> str:
        """Create an experiment."""
        return str(self.client.create_experiment(self.name(word), **more))

    def run(self, experiment: str = "", **more: Any) -> str:
        """Create a run."""
        return str(self.client.create_run(experiment or self.experiment(uuid.uuid4().hex[:6]), **more).info.run_id)

    def runs(self, *started: int) -> tuple[str, list[str]]:
        """Create an experiment with runs that started at these times."""
        experiment = self.experiment("group")
        return experiment, [self.run(experiment, start_time=each) for each in started]

    def registered(self, word: str = "net", **more: Any) -> str:
        """Create a registered model."""
        return str(self.client.create_registered_model(self.name(word), **more).name)

    def source(self) -> tuple[str, str]:
        """Create a run with the files of a model; return it and their location."""
        run = self.run()
        self.client.log_artifact(run, str(self.model), "model")
        return run, f"runs:/{run}/model"

    def versions(self, count: int = 1, word: str = "net", **more: Any) -> tuple[str, str, str]:
        """Create a registered model with versions; return its name, the run, and the source."""
        name = self.registered(word)
        run, source = self.source()
        for _ in range(count):
            self.client.create_model_version(name, source, run, **more)
        return name, run, source

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> requests.Response:
        """Send a request in a form that no client sends."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        url = f"{self.uri}{path if path.startswith(('/api', '/ajax')) else '/api/2.0/mlflow/' + path}"
        data: dict[str, Any] = {"params": body} if method == "GET" else {"json": body}
        return requests.request(method, url, headers=headers, timeout=60, **data)


def refused(call: Callable[[], Any], code: str = "INVALID_PARAMETER_VALUE", *words: str) -> str:
    """Assert that a call raises the MLflow error with this code (empty: with any) and these words in its message."""
    try:
        made = call()
    except MlflowException as problem:
        assert code in ("", problem.error_code), f"{problem.error_code}: {problem}"
        for word in words:
            assert word.lower() in str(problem).lower(), f"{word!r} is not in {problem}"
        return str(problem)
    raise AssertionError(f"it was not refused: {made!r}")


def bad_request(answer: requests.Response, *words: str, code: str = "INVALID_PARAMETER_VALUE", status: int = 400) -> None:
    """Assert that a response is an MLflow error."""
    assert answer.status_code == status, answer.text
    assert answer.json()["error_code"] == code, answer.text
    for word in words:
        assert word in answer.json()["message"], answer.text


def pages(search: Callable[[Any], Any]) -> tuple[list[Any], int]:
    """Return everything on all pages, and the number of pages."""
    found, token, count = [], None, 0
    while True:
        page = search(token)
        found += list(page)
        token, count = page.token, count + 1
        if not token:
            return found, count


@dataclass(frozen=True)
class Outcome:
    """How one case ended."""

    case: str
    method: str
    passed: bool
    seconds: float
    differs: str
    unavailable: bool
    why: str = ""


def run_all(uri: str, token: str, folder: Path, model: Path, only: str = "", *, reference: bool = False) -> list[Outcome]:
    """Run every case, each in a place of its own."""
    found = []
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    for each in CASES:
        if only not in each.name or (reference and each.differs):
            continue
        began, why = time.monotonic(), ""
        try:
            each.check(Place(uri, token, folder, model))
        except Exception as problem:
            last = traceback.extract_tb(problem.__traceback__)
            where = next((frame for frame in reversed(last) if "mlflow_cases" in frame.filename), last[-1])
            why = f"{Path(where.filename).name}:{where.lineno} {type(problem).__name__}: {problem}"
        took = time.monotonic() - began
        found.append(Outcome(each.name, each.method, not why, took, each.differs, each.unavailable, why[:600]))
    return found
