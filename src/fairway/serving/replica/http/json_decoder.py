"""Decodes large JSON bodies in steps, between other work of the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairway.serving.replica.http.memory_budget import MemoryBudget
from fairway.serving.replica.http.pacer import LargeRequestPacer
from fairway.serving.replica.model.served_model import InferenceRequest
from fairway.serving.replica.protocols.json_piece import WORTH, Steps, weight
from fairway.serving.replica.request_error import RequestError

_log = logging.getLogger("fairway.replica")
_SLICE = 0.001
"""Maximum seconds of steps in one iteration of the event loop while no small requests arrive."""
_GONE = 499
"""The status recorded when the client has disconnected."""
Done = Callable[[InferenceRequest | RequestError], None]


class IncrementalJsonDecoder:
    """Decodes large bodies on the event loop's thread, one step per iteration.

    Promises:
    1. The event loop does all other work between two steps; while small requests arrive, steps take at most a quarter of the
       time, so that small requests do not wait for large ones.
    2. The smallest body and the oldest one take turns: neither waits for all others.
    3. Before each step its memory is counted (`memory_budget.py`). A body that does not fit beside the others gets 429;
       one that would not fit alone gets 413.
    """

    def __init__(self, held: MemoryBudget, no_room: Callable[[], RequestError], pace: LargeRequestPacer) -> None:
        self._held = held
        self._no_room = no_room
        self._pace = pace
        self._jobs: dict[JsonDecodeTask, None] = {}
        self._turn = 0
        self._scheduled = False

    def start(self, size: int, steps: Steps[InferenceRequest], done: Done, gone: Callable[[], bool]) -> JsonDecodeTask:
        """Start decoding a body of `size` bytes. `done` gets the parsed request or the error, once.

        No more steps are made when `gone` returns true.
        """
        job = JsonDecodeTask(self, size, steps, done, gone)
        self._jobs[job] = None
        self._schedule()
        return job

    @contextmanager
    def whole(self, size: int) -> Iterator[None]:
        """Account for decoding a body of `size` bytes in a single step, for protocols without smaller steps."""
        self._check(size, WORTH * size)
        holder = _SingleStepDecode()
        self._held.resize(holder, WORTH * size)
        if holder.refused:
            raise self._no_room()
        self._held.keep(holder)
        try:
            yield
        finally:
            self._held.free(holder)

    def _check(self, size: int, need: int) -> None:
        """Raise 413 when a body and its decoded form would not fit even alone."""
        limit = self._held.most_of_one
        if size + need > limit:
            message = f"decoding this JSON body of {size} bytes needs {need} more bytes, and the limit is {limit}"
            fix = "send fewer rows at once or binary tensors, or start the replica with a larger --max-held"
            raise RequestError(413, message, fix=fix)

    def end(self, job: JsonDecodeTask, found: InferenceRequest | RequestError) -> None:
        """Deliver the result of a job."""
        if job not in self._jobs:
            return
        del self._jobs[job]
        job.steps.close()
        if isinstance(found, InferenceRequest):
            self._held.resize(job, weight(found.inputs))
            self._held.keep(job)
        else:
            self._held.free(job)
        job.done(found)

    def refuse(self, job: JsonDecodeTask) -> None:
        """End a job because its memory is needed for others."""
        # Deferred, because a step of another job may be running.
        asyncio.get_running_loop().call_soon(self.end, job, self._no_room())

    def free(self, job: JsonDecodeTask) -> None:
        """Release a job's memory after the request was answered."""
        self._held.free(job)

    def _schedule(self, pause: float = 0.0) -> None:
        if not self._jobs or self._scheduled:
            return
        self._scheduled = True
        loop = asyncio.get_running_loop()
        if pause > 0.0:
            loop.call_later(pause, self._step)
        else:
            loop.call_soon(self._step)

    def _step(self) -> None:
        self._scheduled = False
        started = time.perf_counter()
        self._advance()
        if self._pace.alone():
            while self._jobs and time.perf_counter() - started < _SLICE:
                self._advance()
        self._schedule(self._pace.pause_after(time.perf_counter() - started))

    def _advance(self) -> None:
        """Run one step of one body."""
        self._turn ^= 1
        if not self._jobs:
            return
        job = next(iter(self._jobs)) if self._turn else min(self._jobs, key=_size)
        try:
            if job.gone():
                self.end(job, RequestError(_GONE, "the client closed the connection"))
            elif not job.refused:
                need = next(job.steps)
                self._check(job.size, need)
                self._held.resize(job, need)
        except StopIteration as end:
            self.end(job, end.value)
        except RequestError as error:
            self.end(job, error)
        except Exception:  # noqa: BLE001  # a bug in the server must not stop it
            _log.exception("a request could not be read")
            self.end(job, RequestError(500, "internal server error; see the log of the server"))


class JsonDecodeTask:
    """A body that is being decoded, as a holder of the memory that this takes."""

    __slots__ = ("_decoding", "done", "gone", "refused", "size", "steps")

    def __init__(
        self, decoding: IncrementalJsonDecoder, size: int, steps: Steps[InferenceRequest], done: Done, gone: Callable[[], bool]
    ) -> None:
        self._decoding = decoding
        self.size = size
        self.steps = steps
        self.done = done
        self.gone = gone
        self.refused = False

    def let_go(self) -> None:
        """End the job to free its memory."""
        self.refused = True
        self._decoding.refuse(self)

    def free(self) -> None:
        """Release the memory of its arrays after the request was answered."""
        self._decoding.free(self)


class _SingleStepDecode:
    """A body that is decoded in one step."""

    refused = False

    def let_go(self) -> None:
        """Record that it does not fit."""
        self.refused = True


def _size(job: JsonDecodeTask) -> int:
    return job.size
