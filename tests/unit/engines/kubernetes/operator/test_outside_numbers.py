"""2,000 generated termination messages, pod messages, annotations and loads: none raises, each bad one is skipped and reported.

Accepted values are written to a real store, so that a number that only the store refuses fails here too.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from fairway.api.mlflow.token import token_of
from fairway.api.pods.metric import MetricReportRoute
from fairway.app.port.port import ChangeSet, Observation
from fairway.app.tracking.run import TokenCaller
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.operator.pod import report as pod_report
from fairway.engines.kubernetes.scheduler import gang
from fairway.engines.kubernetes.serving.load_validation import InvalidLoadError, checked_replica, checked_route
from fairway.runtime.pod import termination_message
from fairway.serving.router.wire_format import add_loads, decode_load, encode_load
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey, JobState
from fairway.state.observation import fold_checkpoint, fold_progress, fold_report
from fairway.state.phase import TaskPhase
from fairway.state.serving.load import LATENCY_BOUNDS, BackendLoad, ReplicaLoad, RevisionLoad, RouteLoad
from fairway.state.task import Task, TaskKey
from fairway.stores.sqlite.store import SqliteStore

TRIES = 2000
KEY = TaskKey("team", "mnist-1", "worker", 0, 0)
SECRET = b"of this test"
BAD = (
    *(2**70, -(2**70), 2**63, 10**400, -1, 256, 1.5, 1e308, -1e308, math.nan, math.inf, -math.inf),
    *("boom", "", "NaN", "\ud800", "9" * 5000, True, False, None, [], {}, [[1]], {"code": 1}, [None] * 50),
)
"""Values in place of a number."""


def any_value(chance: random.Random) -> Any:
    return chance.choice((*BAD, chance.randrange(-300, 300), chance.uniform(-1e9, 1e9)))


def spoilt(plain: Any, chance: random.Random) -> Any:
    """Return the same data with one value somewhere replaced, removed or added."""
    if isinstance(plain, dict) and plain and chance.random() < 0.9:
        name = chance.choice(sorted(plain))
        if chance.random() < 0.1:
            return {key: value for key, value in plain.items() if key != name}
        return {**plain, name: spoilt(plain[name], chance)}
    if isinstance(plain, list) and plain and chance.random() < 0.9:
        at = chance.randrange(len(plain))
        return [*plain[:at], spoilt(plain[at], chance), *plain[at + 1 :]]
    return any_value(chance)


def text_of(plain: Any, chance: random.Random) -> str:
    """Return JSON, sometimes truncated, deeply nested, or invalid."""
    kind = chance.random()
    if kind < 0.05:
        return "[" * 2000 + "]" * 2000
    if kind < 0.1:
        return '{"code":' * 500 + "1" + "}" * 500
    if kind < 0.15:
        return "".join(chr(chance.choice((*range(256), 0x2028, 0x1F600))) for _ in range(chance.randrange(4096)))
    text = json.dumps(plain)
    return text[: chance.randrange(len(text) + 1)] if kind < 0.2 else text


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "fairway.db")


def ended(message: str, exit_code: int, **annotations: str) -> Pod:
    state = {"exitCode": exit_code, "message": message, "reason": "Error", "finishedAt": "2026-01-01T00:01:00Z"}
    status = {"phase": "Failed", "containerStatuses": [{"name": "task", "state": {"terminated": state}}]}
    metadata = {"name": "p", "annotations": annotations}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "a"}, "status": status}, Pod)


def test_no_termination_message_raises_and_each_bad_one_is_told(store: SqliteStore) -> None:
    chance = random.Random(14)
    told = 0
    for _ in range(TRIES):
        good = {"task": "worker-0", "rank": chance.randrange(8), "code": chance.randrange(256), "signal": None, "words": "x"}
        text = text_of(spoilt(good, chance), chance)
        exit_code = chance.randrange(1, 255)
        report = pod_report.report(KEY, ended(text, exit_code))
        store.commit(ChangeSet(tasks=(fold_report(Task(KEY, TaskPhase.RUNNING), report),)))
        assert report.exit is not None
        assert report.phase is TaskPhase.FAILED
        record = termination_message.decode(text)
        if report.message and "damaged" in report.message:
            told += 1
            assert str(exit_code) in report.message
            # The kubelet's own exit code is used then.
            assert (report.exit.code, report.exit.signal) in ((exit_code, None), (None, exit_code - 128))
        elif record is not None:
            assert (report.exit.code, report.exit.signal) == (record["code"], record["signal"])
    assert told > TRIES / 4


@pytest.mark.parametrize("code", [2**70, "boom", math.nan, [1], -1, 1.5, True, {"a": {"b": 1}}])
def test_a_code_that_no_program_exits_with_is_named(code: object) -> None:
    text = json.dumps({"task": "worker-0", "rank": 0, "code": code, "signal": None, "words": "it said this"})
    report = pod_report.report(KEY, ended(text, 3))
    assert report.exit is not None
    assert (report.exit.code, report.exit.signal, report.exit.tail) == (3, None, "")
    assert report.message is not None
    assert report.message.startswith("its termination message is damaged: code is ")
    assert report.message.endswith("; the exit code 3 of its container counts")


def test_no_annotation_of_a_pod_raises_in_the_operator_or_the_scheduler() -> None:
    chance = random.Random(15)
    parts = {"worker": {"size": 2, "least": 1, "most": 3, "together": False, "apart": True}}
    leave = {"cause": "priority", "message": "for b", "since": 10.0, "sizes": {"worker": 2}}
    refused = 0
    for _ in range(TRIES):
        annotations = {
            annotation.GANG: "g",
            annotation.PARTS: text_of(spoilt(parts, chance), chance),
            annotation.LEAVE: text_of(spoilt(leave, chance), chance),
        }
        for name in (
            annotation.GPUS,
            annotation.GPU_MILLI,
            annotation.GPU_MEMORY,
            annotation.PRIORITY,
            annotation.SAVED,
            annotation.TIME_LIMIT,
            annotation.GPU_SHARE,
        ):
            annotations[name] = chance.choice(("1", "-1", "9" * 30, "9" * 5000, "nan", "inf", "1e999", "\u00b2", "", "x", "0x10"))
        metadata = {"name": "p", "uid": "u", "annotations": annotations}
        pod = msgspec.convert({"metadata": metadata, "spec": {"nodeName": "a"}}, Pod)
        running = replace_status(pod)
        report = pod_report.report(KEY, running)
        if report.leave is None:
            assert report.message == f"its annotation {annotation.LEAVE} cannot be read and is ignored"
        else:
            assert math.isfinite(report.leave.since)
            assert all(type(size) is int for size in report.leave.sizes.values())
        member = gang.member_of(pod, None)
        wrong = gang.problem([member])
        refused += bool(wrong)
        assert wrong == "" or wrong.startswith("annotation fairway.dev/")
    assert refused > TRIES / 2


def replace_status(pod: Pod) -> Pod:
    running = {
        "phase": "Running",
        "containerStatuses": [{"name": "task", "state": {"running": {"startedAt": "0000-01-01T00:00:00Z"}}}],
    }
    return msgspec.structs.replace(pod, status=msgspec.convert(running, type(pod.status)))


def tell(told: MetricReportRoute, body: bytes) -> tuple[int, str]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    bearer = token_of(SECRET, TokenCaller("team", "mnist-1"))
    scope = {"type": "http", "method": "POST", "path": "/v1/told", "headers": [(b"authorization", f"Bearer {bearer}".encode())]}
    answer = asyncio.run(told(Request(scope, receive)))
    return answer.status_code, bytes(answer.body).decode()


def test_no_message_of_a_pod_raises_and_what_is_left_out_is_told(store: SqliteStore) -> None:
    chance = random.Random(16)
    spec = JobSpec.model_validate({"roles": {"worker": {"command": ["x"]}}})
    job = JobState(JobKey("team", "mnist-1"), "mnist", 1, spec)
    refused: list[str] = []

    async def take(seen: Observation) -> None:
        """Process the observation as the loop does."""
        points = [(point.time, point.step, point.metrics) for point in seen.points]
        folded = fold_progress(job, "worker-0", points)
        if seen.checkpoint_step is not None:
            folded = fold_checkpoint(folded, seen.checkpoint_step, seen.checkpoint_time)
        store.commit(ChangeSet(jobs=(folded,), points=tuple((seen.key, point) for point in seen.points)))

    told = MetricReportRoute(take, SECRET, lambda run, _task, words: refused.append(f"{run}: {words}"))
    for number in range(TRIES):
        point = {"time": 1.0, "step": 1, "metrics": {"loss": 1.0, "lr": 0.1}, "source": "report", "rank": 0}
        message = {
            **{"task": "worker-0", "attempt": 0, "sender": f"s{number}", "number": 1},
            **{"points": [point, point], "checkpoint": {"step": 1, "time": 1.0, "name": "step-1"}},
        }
        before = len(refused)
        status, words = tell(told, text_of(spoilt(message, chance), chance).encode(errors="replace"))
        assert status in (200, 204, 400)
        assert (status == 204) == (len(refused) == before), words
        assert bool(words) == (status != 204)
    assert len(refused) > TRIES / 2


def test_a_loss_that_became_nan_is_taken_and_the_rest_of_its_message_too() -> None:
    observations: list[Observation] = []

    async def take(seen: Observation) -> None:
        observations.append(seen)

    points = [{"time": 1.0, "step": 1, "metrics": {"loss": math.nan, "other": 1.0}}, {"time": 2.0, "step": 2**70, "metrics": {}}]
    body = json.dumps({"task": "worker-0", "attempt": 0, "points": points}).encode()
    status, words = tell(MetricReportRoute(take, SECRET), body)
    assert (status, words) == (
        200,
        "a metric point was left out: step is an integer of 71 bits, and a signed integer of 64 bits was expected\n",
    )
    (point,) = observations[0].points
    assert math.isnan(point.metrics["loss"])
    assert point.metrics["other"] == 1.0


def test_a_message_longer_than_allowed_is_not_held(store: SqliteStore) -> None:
    del store
    held = 0

    async def never(_seen: Observation) -> None:
        raise AssertionError

    async def receive() -> dict[str, Any]:
        nonlocal held
        held += 1
        return {"type": "http.request", "body": b" " * (1 << 16), "more_body": True}

    bearer = token_of(SECRET, TokenCaller("team", "mnist-1"))
    scope = {"type": "http", "method": "POST", "path": "/v1/told", "headers": [(b"authorization", f"Bearer {bearer}".encode())]}
    assert asyncio.run(MetricReportRoute(never, SECRET)(Request(scope, receive))).status_code == 413
    assert held == 17


GOOD = RouteLoad(
    time=1.0,
    epoch="e",
    held=1,
    held_since=-1.0,
    arrived=5,
    revisions={1: RevisionLoad(5, 4, latency=(1,) * (len(LATENCY_BOUNDS) + 1), outcomes={"clicks": (1, 2.0, 4.0)})},
    backends={"r1-1": BackendLoad(1, 2)},
)


def test_no_load_of_a_router_raises_anything_but_a_refusal() -> None:
    chance = random.Random(17)
    plain, taken, refused = json.loads(encode_load(GOOD)), 0, 0
    for _ in range(TRIES):
        text = text_of(spoilt(plain, chance), chance).encode(errors="replace")
        try:
            load = checked_route(decode_load(text))
        except ValueError:
            refused += 1
            continue
        taken += 1
        # An accepted load can be added to those of others, and encoded.
        both = add_loads([GOOD, load])
        assert decode_load(encode_load(both)) == both
        assert all(-(2**63) <= number < 2**63 for number in (both.arrived, both.held, both.expired))
    assert refused > TRIES / 4
    assert taken > TRIES / 20


@pytest.mark.parametrize(
    "spoil",
    [
        lambda load: replace(load, arrived=2**70),
        lambda load: replace(load, held=-1),
        lambda load: replace(load, held_since=math.nan),
        lambda load: replace(load, revisions={2**70: RevisionLoad()}),
        lambda load: replace(load, revisions={1: RevisionLoad(latency=(1, 2))}),
        lambda load: replace(load, revisions={1: RevisionLoad(latency_sum=math.inf)}),
        lambda load: replace(load, revisions={1: RevisionLoad(outcomes={"x": (1, 1e308, 1e308)})}),
        lambda load: replace(load, backends={"b": BackendLoad(busy_seconds=math.inf)}),
    ],
)
def test_a_load_that_cannot_be_is_refused(spoil: Callable[[RouteLoad], RouteLoad]) -> None:
    with pytest.raises(InvalidLoadError):
        checked_route(spoil(GOOD))
    assert checked_route(GOOD) == GOOD


@pytest.mark.parametrize("number", [2**70, -1, True, "boom", math.nan, 1.5])
def test_a_replica_that_counts_what_cannot_be_is_not_believed(number: Any) -> None:
    with pytest.raises(InvalidLoadError):
        checked_replica(ReplicaLoad(1.0, served=number))
