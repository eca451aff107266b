"""Decoding large JSON beside other work: accounted, in turns, and refused where it does not fit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from small_models import Told, app_of, ask, signature

from fairway.serving.replica.batching.batcher import BatchLimits
from fairway.serving.replica.http.json_decoder import IncrementalJsonDecoder
from fairway.serving.replica.http.memory_budget import MemoryBudget
from fairway.serving.replica.http.pacer import LargeRequestPacer, SmallRequestClock
from fairway.serving.replica.http.request_body import BodyLimits
from fairway.serving.replica.model.served_model import InferenceRequest
from fairway.serving.replica.request_error import RequestError

MOST = 1 << 20


class Steady(SmallRequestClock):
    """Reports that small requests arrive all the time."""

    def recent(self) -> bool:
        return True


class Bench:
    """Bodies with steps that the test specifies."""

    def __init__(self, most: int = MOST, small: SmallRequestClock | None = None) -> None:
        self.held = MemoryBudget(most)
        pace = LargeRequestPacer(small or Steady())
        self.decoding = IncrementalJsonDecoder(self.held, lambda: RequestError(429, "no room", retry_after=1.0), pace)
        self.steps: list[str] = []
        self.found: dict[str, Any] = {}
        self.absent: set[str] = set()

    def add(self, name: str, size: int, *needs: int, failure: Exception | None = None) -> Any:
        def steps() -> Generator[int, None, InferenceRequest]:
            for need in needs:
                yield need
                self.steps.append(name)
            if failure is not None:
                raise failure
            return InferenceRequest([np.zeros(4, np.float32)], 1)

        return self.decoding.start(size, steps(), lambda found: self.found.update({name: found}), lambda: name in self.absent)

    async def all_of(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.found) < count:
                await asyncio.sleep(0)


async def test_the_smallest_and_the_oldest_take_turns() -> None:
    bench = Bench()
    for name, size in (("old", 900), ("large", 800), ("small", 100)):
        bench.add(name, size, *[10] * 4)
    await bench.all_of(3)
    assert bench.steps[:6].count("small") >= 2
    assert bench.steps[:6].count("old") >= 2
    assert "large" not in bench.steps[:6]
    assert bench.steps.count("large") == 4


async def test_steps_are_counted_and_arrays_stay_counted() -> None:
    bench = Bench()
    job = bench.add("a", 100, 5000, 3000)
    seen = set()
    async with asyncio.timeout(10):
        while not bench.found:
            seen.add(bench.held.total)
            await asyncio.sleep(0)
    assert {5000, 3000} <= seen
    assert bench.held.total == 16
    job.free()
    assert bench.held.total == 0


async def test_without_small_requests_one_turn_of_the_loop_takes_several_steps() -> None:
    counts = []
    for bench in (Bench(), Bench(small=SmallRequestClock())):
        bench.add("a", 100, *[10] * 200)
        turns = 0
        async with asyncio.timeout(10):
            while not bench.found:
                turns += 1
                await asyncio.sleep(0)
        counts.append(turns)
    assert counts[0] >= 200
    assert counts[1] < 200


async def test_one_that_never_fits_gets_413() -> None:
    bench = Bench()
    bench.add("a", MOST // 2, 10, MOST // 2)
    await bench.all_of(1)
    assert bench.found["a"].status == 413
    assert "--max-held" in bench.found["a"].words
    assert (bench.held.total, bench.steps) == (0, ["a"])


async def test_those_that_do_not_fit_together_get_429() -> None:
    """The largest is refused: not the small one, and none that is already decoded."""
    bench = Bench()
    for name, size in (("a", 300), ("b", 200), ("c", 100)):
        bench.add(name, size, MOST // 4, *[MOST // 2 + 1000] * 50)
    bench.add("small", 10, *[1000] * 50)
    await bench.all_of(4)
    refused = [name for name, found in bench.found.items() if isinstance(found, RequestError)]
    assert 1 <= len(refused) <= 2
    assert "small" not in refused
    assert all(bench.found[name].status == 429 for name in refused)
    assert bench.held.total == 16 * (4 - len(refused))


async def test_who_is_gone_costs_nothing() -> None:
    bench = Bench()
    bench.absent.add("a")
    bench.add("a", 100, *[10] * 100)
    bench.add("b", 200, 10)
    await bench.all_of(2)
    assert bench.steps == ["b"]


async def test_a_mistake_is_an_answer() -> None:
    bench = Bench()
    bench.add("a", 100, 10, failure=ZeroDivisionError())
    bench.add("b", 100, 10, failure=RequestError(400, "bad"))
    await bench.all_of(2)
    assert [bench.found[name].status for name in "ab"] == [500, 400]
    assert bench.held.total == 0


async def test_what_is_decoded_at_once_is_counted() -> None:
    decoding = Bench().decoding
    with pytest.raises(RequestError) as raised, decoding.whole(MOST // 10):
        pass
    assert raised.value.status == 413
    with decoding.whole(1000), pytest.raises(RequestError) as raised, decoding.whole(MOST // 90), decoding.whole(MOST // 90):
        pass
    assert raised.value.status == 429


def told_app(**more: Any) -> Any:
    return app_of(Told(signature(x=("FP32", [-1, 3]), out_y=("FP32", [-1, 3])), lambda inputs: inputs), **more)


def infer(rows: int) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [rows, 3], "data": [float(each % 7) for each in range(3 * rows)]}
    return json.dumps({"inputs": [tensor]}).encode()


async def test_large_json_is_answered_and_nothing_stays_held() -> None:
    app = told_app()
    body = infer(20_000)
    status, answer, _ = await ask(app, "POST", "/v2/models/m/infer", body)
    assert (status, answer["outputs"][0]["data"]) == (200, json.loads(body)["inputs"][0]["data"])
    rows = [[1.0, 2.0, 3.0]] * 20_000
    status, answer, _ = await ask(app, "POST", "/v1/models/m:predict", {"instances": rows})
    assert (status, answer["predictions"]) == (200, rows)
    assert (await ask(app, "POST", "/v2/models/m/infer", body[:-9]))[0] == 400
    assert app.bodies.held.total == 0


async def test_json_has_a_limit_of_its_own() -> None:
    app = told_app(bodies=BodyLimits(size=1 << 20, json=1000))
    status, answer, _ = await ask(app, "POST", "/v2/models/m/infer", b" " * 1001)
    assert status == 413
    assert "binary tensors" in answer["error"]
    assert "--max-json" in answer["error"]
    rows = 1000
    tensor = {"name": "x", "datatype": "FP32", "shape": [rows, 3], "parameters": {"binary_data_size": 12 * rows}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    length = {"Inference-Header-Content-Length": str(len(head))}
    assert (await ask(app, "POST", "/v2/models/m/infer", head + bytes(12 * rows), length))[0] == 200
    large = {"Inference-Header-Content-Length": "1001"}
    assert (await ask(app, "POST", "/v2/models/m/infer", head + bytes(12 * rows), large))[0] == 413


async def test_outputs_that_go_as_json_have_the_same_limit() -> None:
    widens = Told(signature(x=("FP32", [-1, 1]), out_y=("FP32", [-1, 1000])), lambda inputs: [np.repeat(inputs[0], 1000, axis=1)])
    app = app_of(widens, bodies=BodyLimits(json=10_000))
    asked = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 1], "data": [1, 2]}]}
    assert (await ask(app, "POST", "/v2/models/m/infer", asked))[0] == 200
    asked["inputs"][0].update(shape=[3, 1], data=[1, 2, 3])  # type: ignore[attr-defined]
    status, answer, _ = await ask(app, "POST", "/v2/models/m/infer", asked)
    assert status == 413
    assert "binary_data_output" in answer["error"]
    assert (await ask(app, "POST", "/v2/models/m/infer", {**asked, "parameters": {"binary_data_output": True}}))[0] == 200


async def test_rows_whose_outputs_would_be_too_large_are_not_run() -> None:
    widens = Told(signature(x=("FP32", [-1, 1]), out_y=("FP32", [-1, 1000])), lambda inputs: [np.repeat(inputs[0], 1000, axis=1)])
    app = app_of(widens, limits=BatchLimits(answer=20_000))
    for rows, wanted in ((1, 200), (5, 200), (6, 413)):
        asked = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 1], "data": [1.0] * rows}]}
        status, answer, _ = await ask(app, "POST", "/v2/models/m/infer", asked)
        assert status == wanted
    assert "send at most 5 rows at once" in answer["error"]
    assert widens.sizes == [1, 5]
