"""Encode values to bytes and decode them: frozen dataclasses with msgspec, documents with pydantic.

MessagePack, because losses can be NaN and infinity, which JSON cannot represent: decoded values equal the encoded ones.
"""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from fairway.spec.job import JobSpec
from fairway.spec.service import ServiceSpec
from fairway.state.job import JobState
from fairway.state.mlflow_record import KINDS, TrackingRecord
from fairway.state.queue import Queue
from fairway.state.request_receipt import RequestReceipt
from fairway.state.service import ServiceRecord
from fairway.state.task import Task


def plain(value: Any) -> Any:
    """Encode a document as its JSON text."""
    if isinstance(value, JobSpec):
        return _text(value)
    if isinstance(value, ServiceSpec):
        return value.model_dump_json()
    message = f"{type(value).__name__} cannot be stored"
    raise NotImplementedError(message)


def rich(kind: type, value: Any) -> Any:
    """Decode a document encoded by `plain`."""
    if kind is JobSpec:
        return _spec(value)
    if kind is ServiceSpec:
        return _service_spec(value)
    message = f"{kind.__name__} cannot be read back"
    raise NotImplementedError(message)


_texts: dict[int, tuple[JobSpec, str]] = {}
"""JSON texts of recently written documents, by identity: a run is written at every step of its life, with the same document."""
_MOST_TEXTS = 256


def _text(spec: JobSpec) -> str:
    cached = _texts.get(id(spec))
    if cached is not None and cached[0] is spec:
        return cached[1]
    text = spec.model_dump_json()
    if len(_texts) >= _MOST_TEXTS:
        del _texts[next(iter(_texts))]
    _texts[id(spec)] = (spec, text)
    return text


@lru_cache(maxsize=256)
def _spec(text: str) -> JobSpec:
    """Decode a document, with a cache.

    Runs of a series mostly share one, and validation is the expensive part of reading a run.
    """
    return JobSpec.model_validate_json(text)


@lru_cache(maxsize=64)
def _service_spec(text: str) -> ServiceSpec:
    """Decode a document, with a cache: a service keeps the document of every revision, mostly the same."""
    return ServiceSpec.model_validate_json(text)


class _OlderNeed(msgspec.Struct):
    gpu: float = 0.0


class _OlderTask(msgspec.Struct):
    need: _OlderNeed = msgspec.field(default_factory=_OlderNeed)


_encoder = msgspec.msgpack.Encoder(enc_hook=plain)
_job_decoder = msgspec.msgpack.Decoder(JobState, dec_hook=rich)
_task_decoder = msgspec.msgpack.Decoder(Task)
_older_decoder = msgspec.msgpack.Decoder(_OlderTask)
_GPUS = msgspec.msgpack.encode("gpus")
_receipt_decoder = msgspec.msgpack.Decoder(RequestReceipt)
_queue_decoder = msgspec.msgpack.Decoder(Queue)
_service_decoder = msgspec.msgpack.Decoder(ServiceRecord, dec_hook=rich)
_tracked_decoders: dict[type[TrackingRecord], msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in KINDS
}
_Kind = TypeVar("_Kind", bound=TrackingRecord)


def pack(value: JobState | Task | Queue | ServiceRecord | TrackingRecord | RequestReceipt) -> bytes:
    """Encode a run, a task, a queue, a service, a tracked record or a receipt."""
    return _encoder.encode(value)


def unpack_job(data: bytes) -> JobState:
    """Decode a run."""
    return _job_decoder.decode(data)


def unpack_task(data: bytes) -> Task:
    """Decode a task, including one of an older version, which stored GPUs as one number."""
    return _task_decoder.decode(data) if _GPUS in data else _older_task(data)


def _older_task(data: bytes) -> Task:
    task, count = _task_decoder.decode(data), _older_decoder.decode(data).need.gpu
    milli = round(count * 1000) if 0 < count < 1 else 1000
    return replace(task, need=replace(task.need, gpus=math.ceil(count), gpu_milli=milli))


def unpack_queue(data: bytes) -> Queue:
    """Decode a queue."""
    return _queue_decoder.decode(data)


def unpack_service(data: bytes) -> ServiceRecord:
    """Decode a service."""
    return _service_decoder.decode(data)


def unpack_receipt(data: bytes) -> RequestReceipt:
    """Decode a receipt."""
    return _receipt_decoder.decode(data)


def unpack_tracked(kind: type[_Kind], data: bytes) -> _Kind:
    """Decode a tracked record."""
    record: _Kind = _tracked_decoders[kind].decode(data)
    return record


def pack_floats(values: list[float]) -> bytes:
    """Encode numbers exactly, in eight bytes each."""
    return struct.pack(f"<{len(values)}d", *values)


def unpack_floats(data: bytes) -> tuple[float, ...]:
    """Decode numbers encoded by `pack_floats`."""
    return struct.unpack(f"<{len(data) // 8}d", data)
