"""Batching while busy: requests that wait while the model runs are run together, and no request waits for a timer.

If rows may depend on each other, every request runs alone, as it was sent.

A fast model runs on the event loop's thread, once per iteration, for all requests that arrived in that iteration: switching
threads would cost more than the model. A slower model runs in a separate thread.
"""

from __future__ import annotations

import asyncio
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fairway.serving.replica.batching.backlog import BacklogRequest, RequestBacklog
from fairway.serving.replica.batching.cost_model import BatchCostModel
from fairway.serving.replica.model.datatype import Array
from fairway.serving.replica.request_error import ModelError, RequestError
from fairway.serving.replica.runtimes.runtime import ModelRuntime
from fairway.serving.replica.telemetry.replica_metrics import ReplicaMetrics
from fairway.state.serving.batching_verdict import BatchingBasis, BatchingVerdict

Key = tuple[object, ...]
Outputs = list[Array]
Finish = Callable[[Outputs | RequestError], None]
"""Receives the outputs or the error. Called on the event loop's thread."""

UNDECIDED = BatchingVerdict(False, BatchingBasis.UNKNOWN, "it was not tried")
LOOP_SECONDS = 0.001
"""Maximum time for one row with which a model runs on the event loop's thread."""
LOOP_BATCH_SECONDS = 0.02
"""The same for a batch, so that health checks do not wait."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits for batching and for admission."""

    max_batch: int = 64
    max_queue: int = 1024
    deadline: float = 30.0
    """Seconds; a request that would wait longer is refused at once."""
    objective: float = 0.0
    """Target latency in seconds, for which batches are kept small enough. 0: none."""
    answer: int = 64 << 20
    """Maximum bytes of outputs for one request of several rows, estimated from earlier rows."""


class BatchWork:
    """The rows of one request, and their progress."""

    __slots__ = ("arrived", "finish", "inputs", "left", "parts", "rows", "taken")

    def __init__(self, inputs: list[Array], rows: int, finish: Finish, arrived: float) -> None:
        self.inputs = inputs
        self.rows = rows
        self.finish = finish
        self.arrived = arrived
        self.taken = 0
        """Rows already put into a batch."""
        self.left = rows
        """Rows not answered yet; also 0 after a failure."""
        self.parts: dict[int, Outputs] = {}
        """Outputs by first row, for a request split over several batches."""


@dataclass(slots=True)
class RowBatch:
    """Rows that run together: pieces of requests, each with its first row and the one after its last."""

    pieces: list[tuple[BatchWork, int, int]] = field(default_factory=list)
    rows: int = 0


class Batcher:
    """Runs one model for concurrent requests.

    Promises:
    1. Rows of different shapes are never put together, and no request gets the rows of another. Requests are combined, or split
       over batches, only if the verdict allows it.
    2. A batch that fails is run again once, piece by piece, so that only the faulty requests fail.
    3. A request that cannot be answered in time is refused before any work is done.
    """

    def __init__(
        self, runtime: ModelRuntime, limits: BatchLimits, metrics: ReplicaMetrics, verdict: BatchingVerdict = UNDECIDED
    ) -> None:
        self._runtime = runtime
        self._limits = limits
        self._metrics = metrics
        self.cost = BatchCostModel()
        self._backlog = RequestBacklog()
        self._submitted = 0
        """Decoded requests with rows not in a batch yet."""
        self._rows_waiting = 0
        self._groups: dict[Key, deque[BatchWork]] = {}
        self._ticking = False
        self._busy = False
        self._admitted = False
        """Whether the requests submitted now were admitted when they arrived."""
        self.decide(verdict)
        self._row_bytes = 0.0
        """The largest size of the outputs of a row so far, in bytes."""
        self._most_rows = 1 << 62
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: ModelThread | None = None

    @property
    def limits(self) -> BatchLimits:
        """The limits for batching and for admission."""
        return self._limits

    @property
    def waiting(self) -> int:
        """Requests with rows not in a batch yet, decoded or not."""
        return self._submitted + len(self._backlog)

    def decide(self, verdict: BatchingVerdict) -> None:
        """Set the verdict on whether requests may be combined."""
        self.verdict = verdict
        self._batches = verdict.batched and self._runtime.batches
        self._most_batched = min(self._limits.max_batch, verdict.rows or self._limits.max_batch)

    async def ask(self, inputs: list[Array], rows: int) -> Outputs:
        """Run the rows of one request, together with other waiting requests."""
        future: asyncio.Future[Outputs] = asyncio.get_running_loop().create_future()

        def finish(found: Outputs | RequestError) -> None:
            if future.done():
                return
            if isinstance(found, RequestError):
                future.set_exception(found)
            else:
                future.set_result(found)

        self.submit(inputs, rows, finish)
        return await future

    def offer(self, request: BacklogRequest) -> None:
        """Accept a request that is not decoded: decode it now if the next batch has room, otherwise add it to the backlog.

        Promises: requests are decoded in the order of arrival, and each is answered or refused once. A request that is refused
        because too many are waiting is not decoded.
        """
        if self._submitted and self._may_be_late(1):
            try:
                self._admit(1)
            except RequestError as error:
                request.refuse(error)
                return
        if self._backlog or self._rows_waiting >= self._most_batched:
            self._backlog.add(request)
        else:
            request.read()

    def _read_ahead(self) -> None:
        """Decode as many requests as the next batch can take."""
        backlog, self._admitted = self._backlog, True
        while backlog and self._rows_waiting < self._most_batched:
            request = backlog.next()
            if request.is_gone():
                request.refuse(RequestError(499, "the client has left"))
            elif time.perf_counter() - request.arrived > self._limits.deadline:
                request.refuse(self._too_late())
            else:
                backlog.was_read(request.read())
        self._admitted = False

    def submit(self, inputs: list[Array], rows: int, finish: Finish, arrived: float = 0.0) -> None:
        """Submit the rows of a request; `finish` gets the outputs.

        Raises 429 when the answer would be too late. `arrived`: by `time.perf_counter`; 0 is now.
        """
        if rows > self._most_rows:
            raise self._too_many(rows)
        if not self._admitted and self._submitted and self._may_be_late(rows):
            self._admit(rows)
        work = BatchWork(inputs, rows, finish, arrived or time.perf_counter())
        key: Key = tuple([array.shape[1:] for array in inputs]) if self._batches else ()
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = deque()
        group.append(work)
        self._submitted += 1
        self._rows_waiting += rows
        if not self._ticking and not self._busy:
            self._ticking = True
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._tick)

    def close(self) -> None:
        """Stop the model's thread."""
        if self._thread is not None:
            self._thread.close()

    def warm_up(self, inputs: list[Array], times: int = 3) -> None:
        """Run the model before the first request, so that lazy initialisation is done and its speed is known.

        The first run is not measured. A larger batch is run as well, to separate the cost of rows from that of batches.
        """
        self._runtime.run(inputs)
        sizes = [1] * times
        if self._batches:
            sizes += [min(8, self._most_batched)] * times
        for size in sizes:
            rows = [np.concatenate([array] * size) if size > 1 else array for array in inputs]
            started = time.perf_counter()
            self._measure(self._runtime.run(rows), size)
            self.cost.add(size, time.perf_counter() - started)

    def estimate(self, rows: int = 0) -> float:
        """Estimate the seconds until this many additional rows would be answered."""
        ahead = self._rows_waiting + self._backlog.rows + rows
        batches = math.ceil(ahead / self._cap()) if self._batches else self.waiting + (1 if rows else 0)
        batches += 1 if self._busy else 0
        return self.cost.per_row * ahead + self.cost.per_batch * batches

    def _may_be_late(self, rows: int) -> bool:
        """Whether the exact admission check is needed: a cheap upper bound that counts each row as a batch."""
        cost, limits = self.cost, self._limits
        worst = (self._rows_waiting + self._backlog.rows + rows + 1) * (cost.per_row + cost.per_batch)
        return self.waiting >= limits.max_queue or worst > limits.deadline

    def _admit(self, rows: int) -> None:
        limits = self._limits
        if self.waiting >= limits.max_queue:
            message = f"{self.waiting} requests are already waiting, which is the limit"
        elif (wait := self.estimate(rows)) > limits.deadline:
            message = f"the answer would take about {wait:.1f} s, longer than the {limits.deadline:g} s allowed"
        else:
            return
        raise _too_busy(message, self.estimate())

    def _cap(self) -> int:
        limits = self._limits
        if not self._batches:
            return 1
        if limits.objective <= 0.0:
            return self._most_batched
        # A request that arrives just after a batch began waits for that batch, and then runs in the next.
        return min(self._most_batched, self.cost.rows_within(limits.objective / 2))

    def _tick(self) -> None:
        """Run the next batch. On the event loop's thread, the next iteration continues with the remaining requests."""
        if self._backlog:
            self._read_ahead()
        self._ticking = False
        if self._busy or not self._groups:
            return
        batch = self._take()
        if not batch.pieces:
            self._go_on()  # all requests had exceeded the deadline
        elif self._runtime.quick and self.cost.seconds(1) < LOOP_SECONDS and self.cost.seconds(batch.rows) < LOOP_BATCH_SECONDS:
            self._settle(batch, *self._run(batch))
        else:
            self._busy = True
            if self._thread is None:
                self._thread = ModelThread()
            self._thread.do(lambda: self._beside(batch))
            if self._backlog:
                self._read_ahead()  # while the model runs

    def _beside(self, batch: RowBatch) -> None:
        answers, seconds = self._run(batch)
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._back, batch, answers, seconds)
        except RuntimeError:
            pass  # the event loop is closed, and no request is waiting

    def _back(self, batch: RowBatch, answers: list[Outputs | RequestError], seconds: float) -> None:
        self._busy = False
        self._settle(batch, answers, seconds)

    def _take(self) -> RowBatch:
        """Form a batch from the oldest request and the others of its shape."""
        key = (
            next(iter(self._groups))
            if len(self._groups) == 1
            else min(self._groups, key=lambda shape: self._groups[shape][0].arrived)
        )
        group, cap, batch = self._groups[key], self._cap(), RowBatch()
        now = time.perf_counter()
        pieces, waited, fresh = batch.pieces, 0.0, 0
        while group and batch.rows < cap:
            work = group[0]
            if not work.taken and now - work.arrived > self._limits.deadline:
                self._leave(group, work)
                work.finish(self._too_late())
                continue
            # Without batching a request runs unchanged, whatever its first dimension.
            stop = min(work.rows, work.taken + cap - batch.rows) if self._batches else work.rows
            if not work.taken:
                waited += now - work.arrived
                fresh += 1
            pieces.append((work, work.taken, stop))
            batch.rows += stop - work.taken
            work.taken = stop
            if stop == work.rows:
                group.popleft()
                self._submitted -= 1
        self._rows_waiting -= batch.rows
        self._metrics.queue_seconds += waited
        self._metrics.queued += fresh
        if not group:
            del self._groups[key]
        return batch

    def _leave(self, group: deque[BatchWork], work: BatchWork) -> None:
        group.popleft()
        self._submitted -= 1
        self._rows_waiting -= work.rows - work.taken

    def _too_late(self) -> RequestError:
        return _too_busy(f"waited longer than the {self._limits.deadline:g} s allowed", self.estimate())

    def _run(self, batch: RowBatch) -> tuple[list[Outputs | RequestError], float]:
        """Run a batch; return the outputs or error of each piece, and the time taken."""
        started = time.perf_counter()
        answers: list[Outputs | RequestError]
        try:
            answers = self._together(batch)
        except ModelError as error:
            answers = [error] if len(batch.pieces) == 1 else [self._alone(piece) for piece in batch.pieces]
        except Exception as error:  # noqa: BLE001  # a bug of one runtime must not affect other requests
            answers = [ModelError(500, f"the runtime failed: {error!r}")] * len(batch.pieces)
        return answers, time.perf_counter() - started

    def _together(self, batch: RowBatch) -> list[Outputs | RequestError]:
        pieces = batch.pieces
        if len(pieces) == 1:
            outputs = self._runtime.run(_rows_of(pieces[0]))
            self._measure(outputs, batch.rows)
            return [outputs]
        parts = [_rows_of(piece) for piece in pieces]
        outputs = self._runtime.run([np.concatenate(columns) for columns in zip(*parts, strict=True)])
        for output in outputs:
            if not output.ndim or len(output) != batch.rows:
                # The model mixes rows, whatever its author declared.
                message = f"the model returned {output.shape} for {batch.rows} rows"
                self.decide(BatchingVerdict(False, BatchingBasis.MIXED, message))
                raise ModelError(500, message)
        self._measure(outputs, batch.rows)
        answers: list[Outputs | RequestError] = []
        begin = 0
        for _, start, stop in pieces:
            end = begin + stop - start
            answers.append([output[begin:end] for output in outputs])
            begin = end
        return answers

    def _measure(self, outputs: Outputs, rows: int) -> None:
        """Record the size of outputs."""
        size = sum([output.nbytes for output in outputs]) / rows
        if self._runtime.batches and size > self._row_bytes:
            self._row_bytes = size
            self._most_rows = max(1, int(self._limits.answer / size))

    def _too_many(self, rows: int) -> RequestError:
        size = int(rows * self._row_bytes)
        message = f"the outputs for {rows} rows would take about {size} bytes, more than {self._limits.answer}"
        return RequestError(413, message, fix=f"send at most {self._most_rows} rows at once, or start with a larger --max-body")

    def _alone(self, piece: tuple[BatchWork, int, int]) -> Outputs | RequestError:
        try:
            return self._runtime.run(_rows_of(piece))
        except ModelError as error:
            return error

    def _settle(self, batch: RowBatch, answers: list[Outputs | RequestError], seconds: float) -> None:
        """Distribute the results of a batch, update the metrics, and continue with waiting requests."""
        self.cost.add(batch.rows, seconds)
        self._metrics.batch(batch.rows, seconds, len(batch.pieces))
        for (work, start, stop), answer in zip(batch.pieces, answers, strict=True):
            if stop - start == work.rows:
                work.finish(answer)
            elif work.left:
                _put_together(work, start, stop, answer)
        self._go_on()

    def _go_on(self) -> None:
        if (self._groups or self._backlog) and not self._ticking and not self._busy:
            assert self._loop is not None
            self._ticking = True
            self._loop.call_soon(self._tick)


class ModelThread:
    """A single worker thread."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    def do(self, job: Callable[[], None]) -> None:
        """Queue a job."""
        self._jobs.put(job)

    def close(self) -> None:
        """Accept no more jobs, and wait until those queued have run."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _rows_of(piece: tuple[BatchWork, int, int]) -> list[Array]:
    work, start, stop = piece
    return work.inputs if stop - start == work.rows else [array[start:stop] for array in work.inputs]


def _put_together(work: BatchWork, start: int, stop: int, answer: Outputs | RequestError) -> None:
    """Record a piece of a request that was split over batches; the first error ends the request."""
    if isinstance(answer, RequestError):
        work.left = 0
        work.finish(answer)
        return
    work.parts[start] = answer
    work.left -= stop - start
    if not work.left:
        parts = [part for _, part in sorted(work.parts.items())]
        work.finish([np.concatenate(columns) for columns in zip(*parts, strict=True)])


def _too_busy(message: str, wait: float) -> RequestError:
    return RequestError(429, message, fix="try again later", retry_after=max(1.0, math.ceil(wait)))
