"""Batch while busy: which requests are combined, fail alone, or are refused."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from small_models import DECLARED, Told, signature

from fairway.serving.replica.batching.batcher import UNDECIDED, Batcher, BatchLimits
from fairway.serving.replica.request_error import ModelError, RequestError
from fairway.serving.replica.telemetry.replica_metrics import ReplicaMetrics
from fairway.state.serving.batching_verdict import BatchingBasis, BatchingVerdict

ROWS = signature(x=("FP32", [-1, -1]), out_y=("FP32", [-1, -1]))


def twice(inputs: list[Any]) -> list[Any]:
    if np.isnan(inputs[0]).any():
        raise ModelError(400, "not a number")
    return [2 * inputs[0]]


def rows(count: int, width: int = 2, value: float = 1.0) -> list[Any]:
    return [np.full((count, width), value, np.float32)]


def batcher_of(work: Any = twice, *, quick: bool = True, **limits: Any) -> tuple[Batcher, Told, ReplicaMetrics]:
    runtime, metrics = Told(ROWS, work), ReplicaMetrics()
    runtime.quick = quick
    return Batcher(runtime, BatchLimits(**limits), metrics, DECLARED), runtime, metrics


@pytest.mark.parametrize("quick", [True, False])
async def test_what_comes_in_one_turn_is_run_together(quick: bool) -> None:
    batcher, runtime, metrics = batcher_of(quick=quick)
    answers = await asyncio.gather(*(batcher.ask(rows(count, value=float(count)), count) for count in (1, 2, 3)))
    assert [answer[0].tolist() for answer in answers] == [[[2.0 * count] * 2] * count for count in (1, 2, 3)]
    assert runtime.sizes == [6]
    assert metrics.batch_rows.total == 6
    batcher.close()


async def test_different_shapes_never_meet() -> None:
    batcher, runtime, _ = batcher_of()
    answers = await asyncio.gather(*(batcher.ask(rows(1, width), 1) for width in (2, 3, 2)))
    assert [answer[0].shape for answer in answers] == [(1, 2), (1, 3), (1, 2)]
    assert sorted(runtime.sizes) == [1, 2]


async def test_a_request_larger_than_a_batch_is_split_and_put_together_again() -> None:
    batcher, runtime, _ = batcher_of(max_batch=4)
    values = [np.arange(22, dtype=np.float32).reshape(11, 2)]
    large, small = await asyncio.gather(batcher.ask(values, 11), batcher.ask(rows(1), 1))
    assert large[0].tolist() == (2 * values[0]).tolist()
    assert small[0].tolist() == [[2.0, 2.0]]
    assert runtime.sizes == [4, 4, 4]


async def test_one_bad_input_fails_alone() -> None:
    batcher, runtime, _ = batcher_of()
    results = await asyncio.gather(
        *(batcher.ask(rows(1, value=value), 1) for value in (1.0, np.nan, 3.0)), return_exceptions=True
    )
    assert results[0][0].tolist() == [[2.0, 2.0]]
    assert isinstance(results[1], ModelError)
    assert results[2][0].tolist() == [[6.0, 6.0]]
    assert runtime.sizes == [3, 1, 1, 1]


async def test_a_piece_that_fails_fails_its_request_once() -> None:
    batcher, _, _ = batcher_of(max_batch=2)
    values = [np.array([[1.0], [2.0], [np.nan], [4.0], [np.nan]], np.float32)]
    with pytest.raises(ModelError):
        await batcher.ask(values, 5)
    assert (await batcher.ask(rows(1), 1))[0].tolist() == [[2.0, 2.0]]
    assert batcher.waiting == 0


async def test_a_model_whose_rows_do_not_stay_apart_is_run_one_by_one() -> None:
    batcher, runtime, _ = batcher_of(lambda inputs: [inputs[0].sum(0, keepdims=True)])
    answers = await asyncio.gather(*(batcher.ask(rows(1, value=value), 1) for value in (1.0, 2.0)))
    assert [answer[0].tolist() for answer in answers] == [[[1.0, 1.0]], [[2.0, 2.0]]]
    await asyncio.gather(*(batcher.ask(rows(1), 1) for _ in range(3)))
    assert runtime.sizes == [2, 1, 1, 1, 1, 1]


async def test_a_runtime_that_breaks_its_promise_is_an_error_of_the_server() -> None:
    def broken(_: list[Any]) -> list[Any]:
        raise ZeroDivisionError

    batcher, _, _ = batcher_of(broken)
    with pytest.raises(RequestError) as caught:
        await batcher.ask(rows(1), 1)
    assert caught.value.status == 500


async def test_more_than_may_wait_is_refused_before_any_work() -> None:
    batcher, runtime, _ = batcher_of(max_queue=2)
    asked = [asyncio.ensure_future(batcher.ask(rows(1), 1)) for _ in range(3)]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(each, RequestError) for each in results] == [False, False, True]
    assert (results[2].status, results[2].retry_after >= 1) == (429, True)
    assert runtime.sizes == [2]


async def test_who_would_wait_too_long_is_refused_with_the_time_it_takes() -> None:
    batcher, _, _ = batcher_of(deadline=5.0, max_batch=1)
    for _ in range(3):
        batcher.cost.add(1, 2.0)
    results = await asyncio.gather(*(batcher.ask(rows(1), 1) for _ in range(4)), return_exceptions=True)
    assert [isinstance(each, RequestError) for each in results] == [False, False, True, True]
    assert results[2].retry_after == 4


async def test_who_waited_too_long_is_told_so_without_work() -> None:
    gate = threading.Event()

    def slow(inputs: list[Any]) -> list[Any]:
        assert gate.wait(30)
        return twice(inputs)

    batcher, runtime, _ = batcher_of(slow, quick=False, deadline=0.05)
    first = asyncio.ensure_future(batcher.ask(rows(1), 1))
    while not runtime.sizes:
        await asyncio.sleep(0)
    second = asyncio.ensure_future(batcher.ask(rows(1), 1))
    while not batcher.waiting:
        await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(0.1, gate.set)
    with pytest.raises(RequestError) as caught:
        await second
    assert caught.value.status == 429
    assert (await first)[0].tolist() == [[2.0, 2.0]]
    assert runtime.sizes == [1]
    batcher.close()


async def test_what_comes_while_the_model_runs_is_the_next_batch() -> None:
    gate = threading.Event()

    def slow(inputs: list[Any]) -> list[Any]:
        assert gate.wait(30)
        return twice(inputs)

    batcher, runtime, _ = batcher_of(slow, quick=False)
    first = asyncio.ensure_future(batcher.ask(rows(1), 1))
    while not runtime.sizes:
        await asyncio.sleep(0)
    later = [asyncio.ensure_future(batcher.ask(rows(1), 1)) for _ in range(5)]
    while batcher.waiting < 5:
        await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, *later)
    assert runtime.sizes == [1, 5]
    batcher.close()


async def test_batches_stay_small_enough_for_the_objective() -> None:
    batcher, runtime, _ = batcher_of(objective=0.1)
    for size in (1, 8, 1, 8):
        batcher.cost.add(size, 0.01 * size)
    await asyncio.gather(*(batcher.ask(rows(1), 1) for _ in range(9)))
    assert max(runtime.sizes[:2]) <= 5


def cumulative(inputs: list[Any]) -> list[Any]:
    return [np.cumsum(inputs[0], axis=0)]


@pytest.mark.parametrize("quick", [True, False])
async def test_without_a_verdict_each_request_runs_alone_and_whole(quick: bool) -> None:
    batcher, runtime, metrics = batcher_of(cumulative, quick=quick, max_batch=2)
    batcher.decide(UNDECIDED)
    answers = await asyncio.gather(*(batcher.ask(rows(count, width), count) for count, width in ((1, 2), (5, 3), (3, 2))))
    assert [answer[0].tolist() for answer in answers] == [
        [[float(at + 1)] * width for at in range(count)] for count, width in ((1, 2), (5, 3), (3, 2))
    ]
    assert runtime.sizes == [1, 5, 3], "in the order in which they came, none of them cut"
    assert (metrics.batch_rows.total, sum(metrics.batch_rows.counts)) == (9, 3)
    batcher.close()


async def test_without_batching_the_limits_hold_as_with_it() -> None:
    batcher, runtime, _ = batcher_of(max_queue=2)
    batcher.decide(UNDECIDED)
    results = await asyncio.gather(*(batcher.ask(rows(1), 1) for _ in range(3)), return_exceptions=True)
    assert [isinstance(each, RequestError) and each.status for each in results] == [False, False, 429]
    assert runtime.sizes == [1, 1]


async def test_without_batching_the_time_to_an_answer_counts_runs_not_rows() -> None:
    batcher, _, _ = batcher_of(deadline=5.0)
    batcher.decide(UNDECIDED)
    for size in (1, 8, 1, 8):
        batcher.cost.add(size, 2.0)
    results = await asyncio.gather(*(batcher.ask(rows(4), 4) for _ in range(4)), return_exceptions=True)
    assert [isinstance(each, RequestError) for each in results] == [False, False, True, True]


async def test_outputs_are_bounded_without_batching_too() -> None:
    batcher, _, _ = batcher_of(answer=64)
    batcher.decide(UNDECIDED)
    await batcher.ask(rows(1), 1)
    with pytest.raises(RequestError) as caught:
        await batcher.ask(rows(9), 9)
    assert caught.value.status == 413


async def test_batches_are_no_larger_than_what_was_proven() -> None:
    batcher, runtime, _ = batcher_of()
    batcher.decide(BatchingVerdict(True, BatchingBasis.PROVEN, rows=4))
    await asyncio.gather(*(batcher.ask(rows(1), 1) for _ in range(9)))
    assert runtime.sizes == [4, 4, 1]


async def test_a_declaration_that_is_wrong_by_its_shapes_is_withdrawn() -> None:
    batcher, runtime, _ = batcher_of(lambda inputs: [inputs[0].sum(axis=0, keepdims=True)])
    answers = await asyncio.gather(*(batcher.ask(rows(1, value=value), 1) for value in (1.0, 2.0)))
    assert [answer[0].tolist() for answer in answers] == [[[1.0, 1.0]], [[2.0, 2.0]]]
    assert str(batcher.verdict) == "not batched (mixed): the model returned (1, 2) for 2 rows"
    await asyncio.gather(*(batcher.ask(rows(1), 1) for _ in range(2)))
    assert runtime.sizes == [2, 1, 1, 1, 1]


async def test_warm_up_learns_what_rows_and_batches_cost() -> None:
    batcher, runtime, metrics = batcher_of()
    batcher.warm_up(rows(1))
    assert sorted(set(runtime.sizes)) == [1, 8]
    assert batcher.cost.seconds(1) > 0.0
    assert metrics.batch_rows.total == 0


@settings(max_examples=40, deadline=None)
@given(some.lists(some.tuples(some.integers(1, 9), some.integers(1, 3)), min_size=1, max_size=25), some.integers(1, 8))
def test_everybody_gets_their_own_rows(asked: list[tuple[int, int]], cap: int) -> None:
    async def run() -> None:
        batcher, runtime, _ = batcher_of(max_batch=cap)
        waits = [batcher.ask(rows(count, width, float(place)), count) for place, (count, width) in enumerate(asked)]
        answers = await asyncio.gather(*waits)
        for place, ((count, width), answer) in enumerate(zip(asked, answers, strict=True)):
            assert answer[0].tolist() == [[2.0 * place] * width] * count
        assert max(runtime.sizes) <= cap
        assert (batcher.waiting, sum(runtime.sizes)) == (0, sum(count for count, _ in asked))

    asyncio.run(run())


class Unread:
    """A request that records whether it was decoded."""

    def __init__(
        self, batcher: Batcher, log: list[str], name: str, *, rows: int = 1, age: float = 0.0, gone: bool = False
    ) -> None:
        self.batcher, self.log, self.name, self.rows, self.gone = batcher, log, name, rows, gone
        self.arrived = time.perf_counter() - age

    def is_gone(self) -> bool:
        return self.gone

    def read(self) -> int:
        self.log.append(f"read {self.name}")
        try:
            self.batcher.submit(rows(self.rows), self.rows, lambda _: self.log.append(f"answered {self.name}"), self.arrived)
        except RequestError as error:
            self.refuse(error)
            return 0
        return self.rows

    def refuse(self, error: RequestError) -> None:
        self.log.append(f"{error.status} {self.name}")


async def test_no_more_is_decoded_than_the_next_batch_takes() -> None:
    batcher, runtime, _ = batcher_of(max_batch=2)
    log: list[str] = []
    for number in range(5):
        batcher.offer(Unread(batcher, log, str(number)))
    assert log == ["read 0", "read 1"]
    assert batcher.waiting == 5
    while batcher.waiting:
        await asyncio.sleep(0)
    assert log == [
        "read 0", "read 1", "answered 0", "answered 1", "read 2", "read 3", "answered 2", "answered 3", "read 4", "answered 4",
    ]  # fmt: skip
    assert runtime.sizes == [2, 2, 1]


async def test_while_the_model_runs_beside_the_loop_the_next_batch_is_decoded() -> None:
    gate = threading.Event()

    def slow(inputs: list[Any]) -> list[Any]:
        assert gate.wait(30)
        return twice(inputs)

    batcher, runtime, _ = batcher_of(slow, quick=False, max_batch=2)
    log: list[str] = []
    for number in range(6):
        batcher.offer(Unread(batcher, log, str(number)))
    while not runtime.sizes:
        await asyncio.sleep(0)
    assert log == ["read 0", "read 1", "read 2", "read 3"]
    gate.set()
    while len(log) < 12:
        await asyncio.sleep(0)
    assert [line for line in log if line.startswith("answered")] == [f"answered {number}" for number in range(6)]
    batcher.close()


async def test_what_is_refused_was_not_decoded() -> None:
    batcher, _, _ = batcher_of(max_batch=1, max_queue=3)
    log: list[str] = []
    for number in range(5):
        batcher.offer(Unread(batcher, log, str(number)))
    assert log == ["read 0", "429 3", "429 4"]


async def test_undecoded_requests_count_in_the_time_to_an_answer() -> None:
    batcher, _, _ = batcher_of(max_batch=1, deadline=5.0)
    for _ in range(3):
        batcher.cost.add(1, 2.0)
    log: list[str] = []
    for number in range(5):
        batcher.offer(Unread(batcher, log, str(number)))
    assert log == ["read 0", "429 2", "429 3", "429 4"]


async def test_who_left_or_waited_too_long_is_not_decoded() -> None:
    batcher, runtime, _ = batcher_of(max_batch=1, deadline=5.0)
    log: list[str] = []
    batcher.offer(Unread(batcher, log, "first"))
    batcher.offer(Unread(batcher, log, "gone", gone=True))
    batcher.offer(Unread(batcher, log, "late", age=6.0))
    batcher.offer(Unread(batcher, log, "last"))
    while batcher.waiting:
        await asyncio.sleep(0)
    assert log == ["read first", "answered first", "499 gone", "429 late", "read last", "answered last"]
    assert runtime.sizes == [1, 1]


@given(some.lists(some.integers(1, 5), min_size=1, max_size=40), some.integers(1, 8), some.integers(1, 30))
@settings(max_examples=50, deadline=None)
def test_each_request_is_answered_or_refused_once_and_in_order(sizes: list[int], cap: int, queue: int) -> None:
    async def play() -> list[str]:
        batcher, _, _ = batcher_of(max_batch=cap, max_queue=queue)
        log: list[str] = []
        for number, size in enumerate(sizes):
            batcher.offer(Unread(batcher, log, str(number), rows=size))
            if number % 7 == 6:
                await asyncio.sleep(0)
        async with asyncio.timeout(30):
            # After a slow batch, batches run in a thread beside the loop: nothing waits then, and answers still arrive.
            while sum(not line.startswith("read") for line in log) < len(sizes):
                await asyncio.sleep(0)
        return log

    log = asyncio.run(play())
    ends = [line for line in log if not line.startswith("read")]
    assert sorted(int(line.split()[1]) for line in ends) == list(range(len(sizes)))
    answered = [int(line.split()[1]) for line in ends if line.startswith("answered")]
    assert answered == sorted(answered)
