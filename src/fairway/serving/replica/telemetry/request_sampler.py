"""Stores a sample of requests and answers as JSON lines for later evaluation, without delaying requests."""

from __future__ import annotations

import base64
import logging
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from fairway.serving.replica.model.datatype import Array, as_bytes
from fairway.serving.replica.model.served_model import ServedModel
from fairway.serving.replica.request_id import Headers, id_of
from fairway.serving.replica.telemetry.replica_metrics import ReplicaMetrics
from fairway.state.model import TensorSpec

_log = logging.getLogger("fairway.replica")
_LARGEST = 1 << 20
"""Maximum elements of a request that is sampled."""


@dataclass(frozen=True, slots=True)
class SampleLimits:
    """Limits for the samples."""

    file_size: int = 16 << 20
    total_size: int = 256 << 20
    """All files together; the oldest are removed first."""
    seconds: float = 60.0
    """Seconds after which a file is closed, so that it can be collected."""
    waiting: int = 256
    """Maximum samples waiting to be written; more are dropped."""


class RequestSampler:
    """Writes samples in a thread of its own.

    Promises:
    1. A request never waits for the disk; a full or failing disk only costs samples.
    2. A file named `*.jsonl` is complete; one that is being written ends in `.part`.
    """

    def __init__(
        self,
        folder: Path,
        rate: float,
        model: ServedModel,
        metrics: ReplicaMetrics,
        now: Callable[[], float],
        limits: SampleLimits = SampleLimits(),
    ) -> None:
        self._folder = folder
        self._rate = rate
        self._model = model
        self._metrics = metrics
        self._now = now
        self._limits = limits
        self._due = 0.0
        self._waiting: queue.Queue[tuple[float, list[Array], list[Array], str] | None] = queue.Queue(limits.waiting)
        self._file: IO[bytes] | None = None
        self._opened = 0.0
        self._number = 0
        self._thread = threading.Thread(target=self._work, name="samples", daemon=True)
        self._thread.start()

    def see(self, inputs: list[Array], outputs: list[Array], headers: Headers = ()) -> None:
        """Sample an answered request, if it is due."""
        self._due += self._rate
        if self._due < 1.0:
            return
        self._due -= 1.0
        if self._waiting.full() or sum(array.size for array in (*inputs, *outputs)) > _LARGEST:
            self._metrics.samples_dropped += 1
        else:
            self._waiting.put_nowait(
                (self._now(), inputs, outputs, id_of(headers))
            )  # this is the only producer, so the queue cannot be full here

    def close(self) -> None:
        """Write the waiting samples."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        while True:
            try:
                sample = self._waiting.get(timeout=self._limits.seconds)
            except queue.Empty:
                self._finish()
                continue
            if sample is None:
                self._finish()
                return
            try:
                self._write(*sample)
            except OSError as error:
                self._metrics.samples_dropped += 1
                _log.warning("a sample could not be written: %s", error)

    def _write(self, time: float, inputs: list[Array], outputs: list[Array], request_id: str) -> None:
        signature = self._model.signature
        sample = {
            "time": time,
            "model": self._model.name,
            "version": self._model.version,
            **({"request_id": request_id} if request_id else {}),
            "inputs": [_told(*pair) for pair in zip(signature.inputs, inputs, strict=True)],
            "outputs": [_told(*pair) for pair in zip(signature.outputs, outputs, strict=True)],
        }
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._number += 1
            name = f"requests-{int(1000 * time):013d}-{os.getpid()}-{self._number}.jsonl.part"
            self._file, self._opened = open(self._folder / name, "xb", buffering=0), time  # noqa: SIM115  # kept open
        self._file.write(msgspec.json.encode(sample) + b"\n")
        self._metrics.sampled += 1
        if self._file.tell() >= self._limits.file_size or time - self._opened >= self._limits.seconds:
            self._finish()

    def _finish(self) -> None:
        """Rename the file to its final name, and remove the oldest files beyond the limit."""
        if self._file is None:
            return
        file, self._file = self._file, None
        file.close()
        try:
            os.rename(file.name, file.name.removesuffix(".part"))
            files = sorted(self._folder.glob("requests-*.jsonl"))
            sizes = [path.stat().st_size for path in files]
            while len(files) > 1 and sum(sizes) > self._limits.total_size:
                files.pop(0).unlink(missing_ok=True)
                sizes.pop(0)
        except OSError as error:
            _log.warning("the sample files could not be renamed or pruned: %s", error)


def _told(spec: TensorSpec, array: Array) -> dict[str, Any]:
    flat: list[Any] = array.ravel().tolist()
    data = [_text(as_bytes(element)) for element in flat] if spec.datatype == "BYTES" else flat
    return {"name": spec.name, "datatype": spec.datatype, "shape": array.shape, "data": data}


def _text(text: bytes) -> Any:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(text).decode()}
